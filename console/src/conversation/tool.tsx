// A tool call as a card: input, state, result.
import { memo, useContext, useMemo, useState } from "react";
import type { Payload, ToolCall, ToolResult } from "turnwire/message";
import { can, useAbout } from "../me.ts";
import { WAITING } from "../sessions/status.ts";
import { between, duration } from "../time.ts";
import { Copy } from "../ui/copy.tsx";
import { State } from "../ui/state.tsx";
import { ApprovalForm, ExternalForm } from "./approval.tsx";
import { stateOf } from "./content-items.ts";
import { ConversationContext } from "./context.ts";
import { Data } from "./data-block.tsx";
import { DecisionNote } from "./decision-note.tsx";
import { layout, pretty, visible, visibleName } from "./json.ts";
import { ansi, hasAnsi } from "./markdown/ansi.ts";
import { useThrottled } from "./markdown/throttle.ts";
import { Message } from "./message.tsx";
import { TraceButton } from "./trace-button.tsx";

export const Tool = memo(function Tool({
  call,
  result,
  isOpen,
}: {
  call: ToolCall | null;
  result: ToolResult | null;
  isOpen: boolean;
}) {
  const { pending, nested, answers, decisions } = useContext(ConversationContext);
  const id = call?.id ?? result?.id ?? "";
  const name = call?.name || result?.name || "tool";
  const { title } = (call ?? {}) as { title?: unknown };
  const about = useAbout();
  const [canApprove, canChat] = [can(about, "approve"), can(about, "chat")];
  const asking = pending.get(id);
  const agents = nested.get(id) ?? [];
  // A reply that ended has no running call: an open call was left unfinished.
  const decision = decisions.get(id);
  const state = stateOf(call, result, decision?.expired);
  const shown =
    !isOpen && state.tone === "run"
      ? { word: "Not finished", tone: "bad" as const }
      : state.word === WAITING.you && !canApprove
        ? { ...state, word: WAITING.decision }
        : state;
  const took = between(result?.created_at, result?.finished_at);
  return (
    <section
      className="tool"
      role="group"
      tabIndex={-1}
      aria-label={`Tool ${name}`}
      data-tone={shown.tone}
      data-call={id}
    >
      <header>
        <bdi className="tool-name">{visibleName(name)}</bdi>
        {typeof title === "string" && <bdi className="dim">{visible(title)}</bdi>}
        <span className="grow" />
        <TraceButton reply="" call={id} name={name} />
        {took !== null && <span className="dim num">{duration(took)}</span>}
        <State tone={shown.tone}>{shown.word}</State>
      </header>
      {asking !== undefined && answers !== null && asking.kind === "confirm" && canApprove ? (
        <ApprovalForm key={id} asking={asking} answers={answers} />
      ) : (
        call !== null && <Json text={call.input} label="Input" growing={isOpen && call.finished_at == null} />
      )}
      {asking?.kind === "confirm" && answers !== null && !canApprove && (
        <p className="decision dim">
          Your token cannot approve tool calls. Someone with the scope <code>approve</code> has to decide.
        </p>
      )}
      {decision !== undefined && <DecisionNote decision={decision} />}
      {asking !== undefined && answers !== null && asking.kind === "external" && canChat && (
        <ExternalForm key={id} asking={asking} answers={answers} />
      )}
      {agents.length > 0 && (
        <div className="nested" role="group" aria-label="Sub-agents">
          {agents.map((message) => (
            <Message key={message.id} message={message} isNested />
          ))}
        </div>
      )}
      {result !== null && (
        <Output output={result.output} tone={shown.tone} isOpen={isOpen && result.finished_at == null} />
      )}
    </section>
  );
});

/** From how many characters on a text is long. */
const LONG = 1200;

/** Formatted JSON, possibly incomplete. */
export const Json = memo(function Json({
  text,
  label,
  growing = false,
}: {
  text: string;
  label: string;
  growing?: boolean;
}) {
  // All of it is laid out again.
  const shown = useThrottled(text, growing && text.length > LONG ? 400 : 0);
  const pieces = useMemo(() => layout(shown), [shown]);
  if (text === "")
    return growing ? (
      <pre className="json">
        <span className="caret" />
      </pre>
    ) : null;
  return (
    <div className="copied">
      <pre className="json" tabIndex={0} aria-label={label}>
        {pieces.map(({ kind, text: piece }, at) =>
          kind === "value" ? (
            piece
          ) : (
            <span key={at} className={kind}>
              {piece}
            </span>
          ),
        )}
        {growing && <span className="caret" />}
      </pre>
      {!growing && <Copy text={() => pretty(text)} label={`Copy ${label.toLowerCase()}`} />}
    </div>
  );
});

function Output({ output, tone, isOpen }: { output: Payload; tone: string; isOpen: boolean }) {
  const parts = typeof output === "string" ? (output === "" ? [] : [{ type: "text" as const, text: output }]) : output;
  if (parts.length === 0) return isOpen ? <p className="output dim">No output yet</p> : null;
  return (
    <div className="output" data-tone={tone} role="group" aria-label="Result">
      {parts.map((part, at) =>
        part.type === "text" ? (
          <Text key={at} text={part.text} />
        ) : (
          <Data key={at} block={part} growing={isOpen && part.finished_at == null} />
        ),
      )}
    </div>
  );
}

/** Text as a terminal would colour it; a diff as a diff. */
function Terminal({ text }: { text: string }) {
  if (hasAnsi(text))
    return ansi(text).map(({ text, className }, at) => (
      <span key={at} className={className}>
        {text}
      </span>
    ));
  if (/^(?:diff --git |--- .*\n\+\+\+ )/m.test(text))
    return text.split(/(?<=\n)/).map((line, at) => (
      <span key={at} className={/^\+(?!\+\+)/.test(line) ? "hl-added" : /^-(?!--)/.test(line) ? "hl-removed" : ""}>
        {line}
      </span>
    ));
  return text;
}

/** A tool's text. Long text is truncated until expanded. */
function Text({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > LONG * 1.5;
  return (
    <div className="copied">
      <pre tabIndex={0} aria-label="Output">
        <Terminal text={isLong && !isWhole ? `${text.slice(0, LONG)}…` : text} />
      </pre>
      <Copy text={text} label="Copy output" />
      {isLong && (
        <button type="button" className="link" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
          {isWhole ? "Show less" : `Show all ${text.length.toLocaleString("en")} characters`}
        </button>
      )}
    </div>
  );
}
