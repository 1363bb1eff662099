// The session's events as they were written: rows, what is in one of them, and a scrubber that takes the
// conversation to any of them.
import { type KeyboardEvent, memo, useCallback, useMemo, useReducer, useState } from "react";
import { useKeys } from "../keys.ts";
import { navigate } from "../route.ts";
import { type Selection, useSelection } from "../selection.ts";
import { duration, exactTime } from "../time.ts";
import { ABOUT, KIND_LABELS, KINDS, type Kind, kindOf, summarizeEvents } from "./event-kinds.ts";
import { Json } from "./json.tsx";
import { List, rowAttributes, rowsToMove } from "./list.tsx";
import type { Log } from "./log.ts";
import { type Row, Rows } from "./rows.ts";
import { Scrubber } from "./scrubber.tsx";

/** How many rows Page Up and Page Down move. */
const PAGE = 20;

export function Timeline({ log, at }: { log: Log; at: number | null }) {
  const [filter, setFilter] = useState<Kind | null>(null);
  const [, render] = useReducer((count: number) => count + 1, 0);
  const grouped = useMemo(() => new Rows(log, filter), [log, filter]);
  const rows = grouped.sync();

  const event = at === null ? -1 : log.indexOf(at);
  const nearest = at === null ? rows.length : rows.find(event);
  const selection = useSelection();
  const selected = at === null && selection !== null ? rows.find(log.indexOf(selection.from)) : -1;
  const chosen = at === null ? selected : shows(rows.at(nearest), event) ? nearest : -1;

  const choose = useCallback((to: number) => navigate({ at: log.seqs[to - 1] ?? null }, "replace"), [log]);
  const toggle = useCallback(
    (from: number) => {
      grouped.toggle(from);
      render();
    },
    [grouped],
  );
  const onKey = ({ key }: { key: string }): boolean => {
    const by = rowsToMove(key, PAGE);
    const row = rows.at(chosen);
    if (by !== null) {
      let to = Math.min(Math.max(0, nearest + by), rows.length - 1);
      // The row of an expanded group only holds the others.
      if (rows.at(to)?.open) to += by < 0 && to > 0 ? -1 : 1;
      const found = rows.at(to);
      if (found !== null) choose(found.to);
    } else if (key === "Enter" || key === "ArrowRight") {
      if (row !== null && !row.member && row.to - row.from > 1) toggle(row.from);
    } else if (key === "ArrowLeft") {
      if (row?.member) toggle(row.from);
    } else {
      return false;
    }
    return true;
  };

  useKeys({ j: () => void onKey({ key: "j" }), k: () => void onKey({ key: "k" }) });

  const row = (index: number, chosen: boolean) => {
    const found = rows.at(index);
    return (
      found && (
        <EventRow
          key={index}
          log={log}
          generation={log.generation}
          index={index}
          chosen={chosen}
          {...found}
          isSelected={isWithin(log.seqs[found.from] ?? 0, selection)}
          choose={choose}
          toggle={toggle}
        />
      )
    );
  };
  const shown = log.events[event];
  return (
    <div className="timeline">
      <div className="filters" role="group" aria-label="Show only">
        {[null, ...KINDS].map((kind) => (
          <button
            key={kind}
            type="button"
            aria-pressed={filter === kind}
            title={kind === null ? "Every event" : ABOUT[kind]}
            onClick={() => setFilter(kind)}
          >
            {kind === null ? "All" : KIND_LABELS[kind]}
          </button>
        ))}
      </div>
      {rows.length > 0 ? (
        <List
          label="Events"
          id="event"
          count={rows.length}
          columns={4}
          chosen={chosen}
          follow={at === null && selected < 0}
          row={row}
          onKeyDown={(event: KeyboardEvent) => {
            if (!event.ctrlKey && !event.metaKey && !event.altKey && onKey(event)) event.preventDefault();
          }}
        />
      ) : (
        <EmptyTimeline log={log} filter={filter} all={() => setFilter(null)} />
      )}
      {shown !== undefined && <Json value={shown} label={`Event ${log.seqs[event]}`} />}
      <Scrubber log={log} at={at} />
    </div>
  );
}

function isWithin(seq: number, selection: Selection | null): boolean {
  return selection !== null && selection.from <= seq && seq <= selection.to;
}

function shows(row: Row | null, event: number): boolean {
  return row !== null && row.from <= event && event < row.to;
}

function EmptyTimeline({ log, filter, all }: { log: Log; filter: Kind | null; all: () => void }) {
  if (log.events.length > 0 && filter !== null) {
    return (
      <div className="nothing">
        <p>No events of this kind: {ABOUT[filter]}.</p>
        <button type="button" onClick={all}>
          Show all
        </button>
      </div>
    );
  }
  if (!log.ready) return <p className="nothing">Loading events</p>;
  return (
    <div className="nothing">
      <p>No events yet.</p>
      <p>Messages, pieces of replies, tool calls and decisions appear here as they are written to the log.</p>
    </div>
  );
}

interface EventRowProps extends Row {
  log: Log;
  /** Generation of the log: a new one has other events. */
  generation: number;
  index: number;
  chosen: boolean;
  /** Whether it is an event of the selected step. */
  isSelected: boolean;
  choose: (to: number) => void;
  toggle: (from: number) => void;
}

const EventRow = memo(function EventRow({
  log,
  index,
  chosen,
  isSelected,
  from,
  to,
  member,
  open,
  choose,
  toggle,
}: EventRowProps) {
  const first = log.events[from];
  if (first === undefined) return null;
  const count = to - from;
  const group = !member && count > 1;
  const time = log.times[from] ?? 0;
  const [since, before] = [time - (log.turns[from] ?? time), time - (log.times[from - 1] ?? time)];
  const summary = summarizeEvents(log.events, from, to);
  const path = first.agent_path?.split("/") ?? [];
  const isOfSubAgent = first.parent_tool_call_id !== undefined || path.length > 1;
  return (
    <div
      {...rowAttributes("event", index, chosen)}
      data-kind={kindOf(first.type)}
      data-member={member}
      data-agent={isOfSubAgent}
      data-step={isSelected}
      aria-level={member ? 2 : 1}
      aria-expanded={group ? open : undefined}
      onClick={() => (open ? toggle(from) : choose(to))}
      onDoubleClick={() => group && !open && toggle(from)}
    >
      <span className="seq" role="gridcell">
        {log.seqs[from]}
      </span>
      <span className="type" role="gridcell" title={first.type}>
        {isOfSubAgent && <bdi className="of-agent">{path.at(-1) || "sub-agent"}</bdi>}
        <span>{first.type}</span>
        {group && (
          <button
            type="button"
            tabIndex={-1}
            className="count"
            aria-label={open ? `Close ${count} events` : `Open ${count} events`}
            onClick={(event) => {
              event.stopPropagation();
              toggle(from);
            }}
          >
            ×{count}
          </button>
        )}
      </span>
      <span className="detail" role="gridcell" title={summary}>
        {summary}
      </span>
      <span
        className="since"
        role="gridcell"
        title={`${exactTime(first.created_at ?? "")} · ${duration(before)} after the previous event`}
      >
        {since < 100_000 ? `+${since} ms` : `+${duration(since)}`}
      </span>
    </div>
  );
});
