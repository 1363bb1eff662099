// The trace: each reply with its model calls, tools and sub-agents as a tree, on one time axis per reply.
import { type KeyboardEvent, memo, useEffect, useMemo, useRef } from "react";
import { useAbout } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { navigate } from "../route.ts";
import { type Selection, select, useSelection } from "../selection.ts";
import { sentence } from "../sentence.ts";
import { duration, exactTime, useNow } from "../time.ts";
import { Shape, type Tone } from "../ui/state.tsx";
import { List, rowAttributes, rowsToMove } from "./list.tsx";
import type { Log } from "./log.ts";
import { type Line, lines, type Reply, ReplyTimes } from "./reply-times.ts";
import { showPlace } from "./show-place.ts";

const WORDS: Record<Line["doing"], string> = {
  reply: "Reply",
  model: "Model call",
  tool: "Tool",
  wait: "Waiting",
  agent: "Sub-agent",
};

/** The state of a step, in words, and its shape. */
function stateOf({ state, to }: Line): { tone: Tone; word: string } {
  if (to === null) return { tone: "run", word: "Running" };
  if (state === "error" || state === "failed") return { tone: "bad", word: "Failed" };
  if (["denied", "expired", "interrupted", "stopped"].includes(state))
    return { tone: "bad", word: state === "interrupted" ? "Stopped" : sentence(state) };
  return { tone: "ok", word: state === "allowed" ? "Allowed" : "Done" };
}

export function Trace({ log, at }: { log: Log; at: number | null }) {
  const times = useMemo(() => new ReplyTimes(log), [log]);
  const { replies } = times.sync();
  const { currency } = useAbout();
  const isRunning = replies.some(({ to }) => to === null);
  const now = Math.max(useNow(isRunning ? 1000 : null), log.times.at(-1) ?? 0);
  const cache = useMemo(() => new Map<string, { version: string; lines: Line[] }>(), [times]);
  const all = useMemo(() => rowsOf(replies, cache), [replies, cache, log.version]);
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
    if (at !== null) navigate({ at: null }, "replace");
    select({ from: to.seq, to: to.last, reply: to.reply, call: to.call, by: "trace" });
  };
  if (all.length === 0)
    return (
      <div className="nothing">
        <p>{log.ready ? "No reply yet." : "Loading events"}</p>
        {log.ready && <p>After the first message this shows model calls, tools and sub-agents as they run.</p>}
      </div>
    );
  return (
    <div className="trace">
      <p className="legend" aria-hidden="true">
        <span className="doing-model">Model</span>
        <span className="doing-tool">Tool</span>
        <span className="doing-wait">Waiting</span>
        <span className="doing-agent">Sub-agent</span>
        <span className="first-token">First token</span>
      </p>
      <p className="trace-head" aria-hidden="true">
        <span>Step</span>
        <span className="trace-start">Start</span>
        <span className="trace-took">Duration</span>
        <span className="trace-tokens">Tokens</span>
        <span className="trace-cost">Cost</span>
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
          const by = rowsToMove(event.key, 20);
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
function rowsOf(replies: readonly Reply[], cache: Map<string, { version: string; lines: Line[] }>): Line[] {
  return replies.flatMap((reply) => {
    const version = reply.to === null ? `${reply.last} ${Math.random()}` : String(reply.last);
    const known = cache.get(reply.id);
    if (known?.version === version) return known.lines;
    const rows = lines(reply);
    cache.set(reply.id, { version, lines: rows });
    return rows;
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
        <bdi title={label}>{doing === "wait" ? `Waiting: ${label}` : label}</bdi>
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
      <span className="num trace-start" role="gridcell" title={exactTime(new Date(from).toISOString())}>
        +{duration(from - root.from)}
      </span>
      <span className="num trace-took" role="gridcell">
        {duration(stop - from)}
      </span>
      <span className="num trace-tokens" role="gridcell">
        {input + output > 0 ? count(input + output) : ""}
      </span>
      <span className="num trace-cost" role="gridcell">
        {cost === null ? "" : formatMoney(cost, currency)}
      </span>
    </div>
  );
});

function Details({ line, now, currency }: { line: Line; now: number; currency: string }) {
  const { doing, label, from, to, seq, last, firstToken, input, output, cost } = line;
  const { word } = stateOf(line);
  const facts: [string, string][] = [
    ["State", word],
    ["Start", exactTime(new Date(from).toISOString())],
    ["Duration", to === null ? `${duration(now - from)} so far` : duration(to - from)],
    ...(firstToken === null ? [] : ([["First token after", duration(firstToken - from)]] as [string, string][])),
    ...(input + output === 0 ? [] : ([["Tokens", `${count(input)} in, ${count(output)} out`]] as [string, string][])),
    ...(cost === null ? [] : ([["Cost", formatMoney(cost, currency)]] as [string, string][])),
    ["Events", seq === last ? String(seq) : `${seq} to ${last}`],
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
        <button type="button" className="button small" onClick={() => navigate({ pane: "timeline" }, "replace")}>
          Show its events
        </button>
        <button type="button" className="button small" onClick={() => navigate({ at: last }, "replace")}>
          Show the conversation after it
        </button>
      </div>
    </section>
  );
}
