// The slider that shows the conversation at any event, and the coloured strip of event kinds above it.
import { navigate } from "../route.ts";
import { KIND_LABELS, kindOf } from "./event-kinds.ts";
import type { Log } from "./log.ts";
import { Play } from "./play.tsx";

/** The largest number of segments of the strip. */
const PIECES = 160;

export function Scrubber({ log, at }: { log: Log; at: number | null }) {
  const { first, last } = log;
  const shown = Math.min(Math.max(at ?? last, first), last);
  const index = log.indexOf(shown);
  const type = log.events[index]?.type ?? "";
  return (
    <div className="scrubber">
      <Strip log={log} />
      <input
        type="range"
        aria-label="Show the conversation at an event"
        aria-valuetext={at === null ? `Live, event ${last}` : `Event ${shown} of ${last}, ${type}`}
        min={first}
        max={Math.max(last, first)}
        value={shown}
        disabled={last <= first}
        onChange={({ target }) => {
          const seq = Number(target.value);
          navigate({ at: seq >= last ? null : seq }, "replace");
        }}
      />
      <p className="strip-legend" aria-hidden="true">
        {(["text", "tool", "human", "model"] as const).map((kind) => (
          <span key={kind} className={`legend-${kind}`}>
            {KIND_LABELS[kind]}
          </span>
        ))}
      </p>
      <div className="place">
        <Play log={log} at={at} />
        <span>
          {at === null ? `${log.events.length} events` : `Event ${shown} of ${last}`}
          {!log.ready && ", loading"}
        </span>
        <button type="button" className="live" aria-pressed={at === null} onClick={() => navigate({ at: null })}>
          Live
        </button>
      </div>
    </div>
  );
}

function Strip({ log }: { log: Log }) {
  const { events } = log;
  const pieces = Math.min(PIECES, events.length);
  const runs: { kind: string; from: number; to: number }[] = [];
  for (let piece = 0; piece < pieces; piece++) {
    const kind = kindOf(events[Math.floor((piece * events.length) / pieces)]?.type ?? "");
    const before = runs.at(-1);
    if (before?.kind === kind) before.to = piece + 1;
    else runs.push({ kind, from: piece, to: piece + 1 });
  }
  const share = (piece: number) => `${((piece * 100) / Math.max(1, pieces)).toFixed(2)}%`;
  return (
    <svg className="strip" aria-hidden="true" focusable="false">
      {runs.map(({ kind, from, to }) => (
        <rect key={from} className={`kind-${kind}`} x={share(from)} width={share(to - from)} y="0" height="100%" />
      ))}
    </svg>
  );
}
