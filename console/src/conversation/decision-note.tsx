// What was decided about a call: it stays on the card.
import { useState } from "react";
import type { Decision } from "turnwire";
import { clock, exactTime } from "../time.ts";
import { Icon } from "../ui/icon.tsx";
import { Shape } from "../ui/state.tsx";
import { visible } from "./json.ts";
import { describeRule } from "./rule.ts";
import { Json } from "./tool.tsx";

export function DecisionNote({ decision }: { decision: Decision }) {
  const { at, by, client, confirmed, expired, reason, rules } = decision;
  const { input_before: before, input_after: after } = decision;
  const isEdited = before !== undefined && after !== undefined;
  const [isShown, setShown] = useState(false);
  const word = expired ? "Expired, nobody answered" : confirmed ? "Allowed" : "Denied";
  return (
    <div className="decision" role="group" aria-label="Decision">
      <p>
        <Shape tone={confirmed ? "ok" : "bad"} /> <b>{word}</b>
        {by !== undefined && (
          <>
            {" by "}
            <bdi>{visible(by)}</bdi>
          </>
        )}{" "}
        <time dateTime={at} title={exactTime(at)}>
          {clock(at)}
        </time>
        {client !== undefined && (
          <span className="dim">
            {" in "}
            <bdi>{visible(client)}</bdi>
          </span>
        )}
        {isEdited && (
          <button type="button" className="link" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
            <Icon name={isShown ? "down" : "right"} size={12} /> Input changed
          </button>
        )}
      </p>
      {reason !== undefined && (
        <p>
          Reason: <bdi>{visible(reason)}</bdi>
        </p>
      )}
      {rules.map((rule) => (
        <p key={describeRule(rule)}>{describeRule(rule)}, in this session</p>
      ))}
      {isEdited && isShown && (
        <div className="before-after">
          <div>
            <span className="dim">Before</span>
            <Json text={before} label="Input before" />
          </div>
          <div>
            <span className="dim">After</span>
            <Json text={after} label="Input after" />
          </div>
        </div>
      )}
    </div>
  );
}
