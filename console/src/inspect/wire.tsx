// The wire pane: the same events as a client of another protocol receives them.
import { type KeyboardEvent, useState } from "react";
import { BASE, explain, useToken } from "../client.ts";
import { navigate } from "../route.ts";
import { Copy } from "../ui/copy.tsx";
import { curl, type Snippet, type Where, WIRES, type Wire } from "./client-snippets.ts";
import { type Frame, nameOf, useFrames } from "./frames.ts";
import { Json } from "./json.tsx";
import { List, rowAttributes, rowsToMove } from "./list.tsx";
import type { Log } from "./log.ts";

const KEY = "turnwire.wire";
/** If more events than this became one frame, only the first are shown. */
const MANY = 20;

export function WirePane({ session, log, at }: { session: string; log: Log; at: number | null }) {
  const [name, setName] = useState(() => storedWire() ?? "ag-ui");
  const [raw, setRaw] = useState(false);
  const wire = WIRES.find((wire) => wire.name === name) ?? WIRES[0];
  if (wire === undefined) return null;
  const choose = (to: string) => {
    setName(to);
    try {
      localStorage.setItem(KEY, to);
    } catch {
      // Then the choice is lost with the page.
    }
  };
  return (
    <div className="wire">
      <div className="wire-head">
        <label>
          Protocol
          <select value={wire.name} onChange={({ target }) => choose(target.value)}>
            {WIRES.map(({ name, about }) => (
              <option key={name} value={name}>
                {name} – {about}
              </option>
            ))}
          </select>
        </label>
        <label title="A client that connects late receives neighbouring deltas merged. With raw=true it receives each delta.">
          <input type="checkbox" checked={raw} onChange={({ target }) => setRaw(target.checked)} /> Each delta
        </label>
      </div>
      <Snippets session={session} agent={log.info?.agent ?? "demo"} wire={wire} />
      <Frames key={`${wire.name} ${raw}`} session={session} log={log} at={at} wire={wire.name} raw={raw} />
    </div>
  );
}

/** The last choice; null if the browser stores nothing. */
function storedWire(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function Snippets({ session, agent, wire }: { session: string; agent: string; wire: Wire }) {
  const [which, setWhich] = useState(0);
  const where: Where = { base: BASE, session, agent, token: useToken() !== "" };
  const snippets: Snippet[] = [curl(where, wire.name), wire.client(where)];
  const shown = snippets[which] ?? snippets[0];
  if (shown === undefined) return null;
  return (
    <figure className="snippet" aria-label="How to receive this stream">
      <figcaption>
        <span role="group" aria-label="Language">
          {snippets.map(({ label }, index) => (
            <button key={label} type="button" aria-pressed={index === which} onClick={() => setWhich(index)}>
              {label}
            </button>
          ))}
        </span>
        <Copy text={shown.text} label={`Copy ${shown.label}`} />
      </figcaption>
      <pre tabIndex={0}>{shown.text}</pre>
    </figure>
  );
}

function Frames({
  session,
  log,
  at,
  wire,
  raw,
}: {
  session: string;
  log: Log;
  at: number | null;
  wire: string;
  raw: boolean;
}) {
  const { steps, live, error } = useFrames(session, wire, raw);
  const { list } = steps;
  if (error !== null) {
    const { message, hint } = explain(error);
    return (
      <div className="nothing" role="alert">
        <p>{message}</p>
        {hint !== undefined && <p>{hint}</p>}
      </div>
    );
  }
  if (list.length === 0) {
    return (
      <p className="nothing">
        {live && log.ready ? `No events yet. Send a message to see its reply as ${wire}.` : "Connecting"}
      </p>
    );
  }
  const nearest = at === null ? list.length : steps.find(at);
  const chosen = at === null ? -1 : nearest;
  const found = list[chosen];
  const choose = (index: number) => navigate({ at: list[index]?.seq || log.last }, "replace");
  const row = (index: number, chosen: boolean) => {
    const step = list[index];
    if (step === undefined) return null;
    const [from, to] = [step.after + 1, step.seq || log.last];
    return (
      <div key={index} {...rowAttributes("frame", index, chosen)} onClick={() => choose(index)}>
        <span className="seq" role="gridcell">
          {from === to ? to : `${from}–${to}`}
        </span>
        <span className="type canonical" role="gridcell">
          {canonical(log, from, to)}
        </span>
        <span
          className="detail"
          role="gridcell"
          title={step.frames
            .map(({ data }) => data)
            .join("\n")
            .slice(0, 400)}
        >
          <b>{summary(step.frames)}</b> {step.frames.at(-1)?.data.slice(0, 160)}
        </span>
      </div>
    );
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = rowsToMove(event.key, 20);
    if (by === null || event.ctrlKey || event.metaKey || event.altKey) return;
    choose(Math.min(Math.max(0, nearest + by), list.length - 1));
    event.preventDefault();
  };
  return (
    <>
      <List
        label={`Frames on ${wire}`}
        id="frame"
        count={list.length}
        columns={3}
        chosen={chosen}
        follow={at === null}
        row={row}
        onKeyDown={onKeyDown}
      />
      {found !== undefined && (
        <Pair log={log} from={found.after + 1} to={found.seq || log.last} frames={found.frames} wire={wire} />
      )}
    </>
  );
}

/** The events, and the frames they became. */
function Pair({ log, from, to, frames, wire }: { log: Log; from: number; to: number; frames: Frame[]; wire: string }) {
  const events = log.events.slice(log.indexOf(from - 1) + 1, log.indexOf(to) + 1);
  const span = from === to ? `Event ${to}` : `Events ${from} to ${to}`;
  return (
    <div className="pair">
      <Json
        value={events.length === 1 ? events[0] : events.slice(0, MANY)}
        label={events.length > MANY ? `${span}, the first ${MANY}` : span}
      />
      <Json
        value={frames
          .map(({ event, data }) => (event === "" ? "" : `event: ${event}\n`) + formatJson(data))
          .join("\n\n")}
        label={`On ${wire}`}
      />
    </div>
  );
}

function formatJson(data: string): string {
  try {
    return JSON.stringify(JSON.parse(data), null, 2);
  } catch {
    return data;
  }
}

/** The names of the frames, each once. */
function summary(frames: Frame[]): string {
  return [...new Set(frames.map(nameOf))].join(", ");
}

/** The types of the events of a step: several of one type, or the last one and how many are before it. */
function canonical(log: Log, from: number, to: number): string {
  const [first, last] = [from, to].map((seq) => log.events[log.indexOf(seq)]?.type ?? "");
  if (from === to) return last ?? "";
  return first === last ? `${last} ×${to - from + 1}` : `${last} +${to - from}`;
}
