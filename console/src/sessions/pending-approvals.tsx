// Pending approvals of all conversations. Each leads to its card: a decision needs the whole input.
import { useEffect, useRef } from "react";
import { summary, visible, visibleName } from "../conversation/json.ts";
import { reviewCall } from "../conversation/review.ts";
import { TimeLeft } from "../conversation/time-left.tsx";
import { useCan } from "../me.ts";
import { notify } from "../notifications.ts";
import { Shape } from "../ui/state.tsx";
import type { PendingReply } from "./store.ts";

export function PendingApprovals({ waiting }: { waiting: readonly PendingReply[] }) {
  const asking = waiting.flatMap((one) => one.confirm.map((call) => ({ one, call })));
  const known = useRef<ReadonlySet<string> | null>(null);
  const canApprove = useCan("approve");
  const title = canApprove ? "Waiting for you" : "Waiting for someone who can approve";
  useEffect(() => {
    const fresh = asking.filter(({ call }) => known.current !== null && !known.current.has(call.id));
    known.current = new Set(asking.map(({ call }) => call.id));
    const [first] = fresh;
    if (first !== undefined && canApprove)
      notify(`${visible(first.call.name)} waits for you`, first.one.title ?? "Turnwire", () =>
        reviewCall(first.one.session_id, first.call.id),
      );
  });
  if (asking.length === 0) return null;
  return (
    <section className="waiting" aria-label={title}>
      <h2>
        <Shape tone="wait" /> {title} <span className="count">{asking.length}</span>
      </h2>
      <ul>
        {asking.map(({ one, call }) => (
          <li key={`${one.session_id} ${call.id}`}>
            <button type="button" className="open" onClick={() => reviewCall(one.session_id, call.id)}>
              <span className="review">Review</span> <bdi className="tool-name">{visibleName(call.name)}</bdi>
              <span className="dim">
                {" in "}
                <bdi>{one.title || "Untitled"}</bdi>
              </span>
              <code>{summary(call.input)}</code>
              <TimeLeft expires={one.expires_at} />
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
