// The trace: each reply with its model calls, tools and sub-agents as a tree, on one time axis per reply.
import { type KeyboardEvent, memo, useEffect, useMemo, useRef } from "react";
import { useAbout } from "../me.ts";
import { count, money } from "../money.ts";
import { go } from "../route.ts";
import { type Selection, select, useSelection } from "../selection.ts";
import { duration, exact, useNow } from "../time.ts";
import { Shape, type Tone } from "../ui/state.tsx";
import { List, rowAttributes, step } from "./list.tsx";
import type { Log } from "./log.ts";
import { type Line, lines, type Reply, ReplyTimes } from "./reply-times.ts";
import { showPlace } from "./show-place.ts";

const WORDS: Record<Line["doing"], string> = {
  reply: "reply",
  model: "model",
  tool: "tool",
  wait: "waiting",
  agent: "sub-agent",
};

/** The state of a step, in words, and its shape. */
function stateOf({ state, to }: Line): { tone: Tone; word: string } {
  if (to === null) return { tone: "run", word: "running" };
  if (state === "error" || state === "failed") return { tone: "bad", word: "failed" };
  if (["denied", "expired", "interrupted", "stopped"].includes(state))
    return { tone: "bad", word: state === "interrupted" ? "stopped" : state };
  return { tone: "ok", word: state === "allowed" ? "allowed" : "done" };
}

export function Trace({ log, at }: { log: Log; at: number | null }) {
  const made = useMemo(() => new ReplyTimes(log), [log]);
  const { replies } = made.sync();
  const { currency } = useAbout();
  const isRunning = replies.some(({ to }) => to === null);
  const now = Math.max(useNow(isRunning ? 1000 : null), log.times.at(-1) ?? 0);
  const kept = useMemo(() => new Map<string, { version: string; lines: Line[] }>(), [made]);
  const all = useMemo(() => rowsOf(replies, kept), [replies, kept, log.version]);
  const selection = useSelection();
  const chosen = at === null ? indexOf(all, selection) : all.findLastIndex(({ seq }) => seq <= at);
  const line = all[chosen];
  const last = useRef<Selection | null>(null);
  useEffect(() => {
    if (selection === null || selection === last.current) return;
    last.current = selection;
    if (selection.by !== "conversation") showPlace(selection.reply, selection.call);
  }, [selection]);

  const choose = (index: number) => {
    const to = all[Math.min(Math.max(0, index), all.length - 1)];
    if (to === undefined) return;
    if (at !== null) go({ at: null }, "replace");
    select({ from: to.seq, to: to.last, reply: to.reply, call: to.call, by: "trace" });
  };
  if (all.length === 0)
    return (
      <div className="nothing">
        <p>{log.ready ? "No reply yet." : "Reading the log…"}</p>
        {log.ready && <p>After the first message this shows model calls, tools and sub-agents as they run.</p>}
      </div>
    );
  return (
    <div className="trace">
      <p className="legend" aria-hidden="true">
        <span className="doing-model">model</span>
        <span className="doing-tool">tool</span>
        <span className="doing-wait">waiting</span>
        <span className="doing-agent">sub-agent</span>
      </p>
      <List
        label="Trace"
        id="trace"
        count={all.length}
        columns={6}
        chosen={chosen}
        follow={at === null && selection === null}
        row={(index, isChosen) => {
          const line = all[index];
          return (
            line && (
              <TraceRow
                key={index}
                index={index}
                line={line}
                now={line.root.to === null ? now : 0}
                currency={currency}
                isChosen={isChosen}
                choose={choose}
              />
            )
          );
        }}
        onKeyDown={(event: KeyboardEvent) => {
          const by = step(event.key, 20);
          if (by === null || event.ctrlKey || event.metaKey || event.altKey) return;
          choose(Math.max(0, chosen) + by);
          event.preventDefault();
        }}
      />
      {line !== undefined && <Details line={line} now={now} currency={currency} />}
    </div>
  );
}

/** The rows of all replies; those of a reply that has ended are made once. */
function rowsOf(replies: readonly Reply[], kept: Map<string, { version: string; lines: Line[] }>): Line[] {
  return replies.flatMap((reply) => {
    const version = reply.to === null ? `${reply.last} ${Math.random()}` : String(reply.last);
    const known = kept.get(reply.id);
    if (known?.version === version) return known.lines;
    const made = lines(reply);
    kept.set(reply.id, { version, lines: made });
    return made;
  });
}

/** The row of a selection: the step of a call, or the reply. */
function indexOf(all: readonly Line[], selection: Selection | null): number {
  if (selection === null) return -1;
  const exactly = all.findIndex(({ seq, reply }) => seq === selection.from && reply === selection.reply);
  if (exactly >= 0) return exactly;
  const call = selection.call === "" ? -1 : all.findLastIndex(({ call }) => call === selection.call);
  return call >= 0 ? call : all.findIndex(({ reply }) => reply === selection.reply);
}

interface TraceRowProps {
  index: number;
  line: Line;
  now: number;
  currency: string;
  isChosen: boolean;
  choose: (index: number) => void;
}

const TraceRow = memo(function TraceRow({ index, line, now, currency, isChosen, choose }: TraceRowProps) {
  const { doing, label, from, to, depth, root, firstToken, input, output, cost } = line;
  const end = Math.max(root.to ?? now, root.from + 1);
  const share = (at: number) => ((Math.min(Math.max(at, root.from), end) - root.from) / (end - root.from)) * 100;
  const { tone, word } = stateOf(line);
  const stop = to ?? now;
  return (
    <div
      {...rowAttributes("trace", index, isChosen)}
      data-doing={doing}
      aria-level={depth + 1}
      onClick={() => choose(index)}
    >
      <span className="trace-name" role="gridcell" style={{ paddingLeft: `${depth * 12}px` }}>
        <Shape tone={tone} />
        <span className="visually-hidden">{`${WORDS[doing]}, ${word}: `}</span>
        <bdi title={label}>{doing === "wait" ? `waiting: ${label}` : label}</bdi>
      </span>
      <span className="trace-bar" role="gridcell">
        <svg width="100%" height="12" aria-hidden="true" focusable="false">
          <rect
            className={`doing-${doing}`}
            x={`${share(from).toFixed(2)}%`}
            width={`${Math.max(0.5, share(stop) - share(from)).toFixed(2)}%`}
            y="2"
            height="8"
            rx="2"
          />
          {firstToken !== null && (
            <rect className="first-token" x={`${share(firstToken).toFixed(2)}%`} width="2" y="0" height="12" />
          )}
        </svg>
      </span>
      <span className="num trace-start" role="gridcell" title={exact(new Date(from).toISOString())}>
        +{duration(from - root.from)}
      </span>
      <span className="num trace-took" role="gridcell">
        {duration(stop - from)}
      </span>
      <span className="num trace-tokens" role="gridcell">
        {input + output > 0 ? count(input + output) : ""}
      </span>
      <span className="num trace-cost" role="gridcell">
        {cost === null ? "" : money(cost, currency)}
      </span>
    </div>
  );
});

function Details({ line, now, currency }: { line: Line; now: number; currency: string }) {
  const { doing, label, from, to, seq, last, firstToken, input, output, cost } = line;
  const { word } = stateOf(line);
  const facts: [string, string][] = [
    ["state", word],
    ["start", exact(new Date(from).toISOString())],
    ["duration", to === null ? `${duration(now - from)} so far` : duration(to - from)],
    ...(firstToken === null ? [] : ([["first token after", duration(firstToken - from)]] as [string, string][])),
    ...(input + output === 0 ? [] : ([["tokens", `${count(input)} in, ${count(output)} out`]] as [string, string][])),
    ...(cost === null ? [] : ([["cost", money(cost, currency)]] as [string, string][])),
    ["events", seq === last ? String(seq) : `${seq} to ${last}`],
  ];
  return (
    <section className="trace-details" aria-label="Selected step">
      <h2>
        {WORDS[doing]} <bdi>{label}</bdi>
      </h2>
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <div className="actions">
        <button type="button" className="button small" onClick={() => go({ pane: "timeline" }, "replace")}>
          Show its events
        </button>
        <button type="button" className="button small" onClick={() => go({ at: last }, "replace")}>
          Show the conversation at its end
        </button>
      </div>
    </section>
  );
}
