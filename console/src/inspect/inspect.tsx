// The inspector: the events of a conversation, the same events on any wire, and usage.
import { useEffect, useState } from "react";
import type { Event } from "turnwire/message";
import { explain } from "../client.ts";
import { navigate, PANES, type Pane, useRoute } from "../route.ts";
import { select, useSelection } from "../selection.ts";
import { Icon } from "../ui/icon.tsx";
import "./inspect.css";
import { type Log, retry, useLog } from "./log.ts";
import { Timeline } from "./timeline.tsx";
import { Trace } from "./trace.tsx";
import { UsagePane } from "./usage.tsx";
import { WirePane } from "./wire.tsx";

const NAMES: Record<Pane, string> = { timeline: "Timeline", trace: "Trace", wire: "Wire", usage: "Usage" };

export function Inspect({ session, pane, isMain }: { session: string; pane: Pane; isMain: boolean }) {
  const { at } = useRoute();
  // The past is folded from each event as it was written.
  const log = useLog(session, at === null && (pane === "trace" || pane === "usage"));
  const [wide, setWide] = useState(false);
  useResolvedSelection(log);
  const Landmark = isMain ? "main" : "aside";
  return (
    <Landmark className="inspect" aria-label="Inspector" data-wide={wide}>
      {isMain && <h1 className="visually-hidden">{NAMES[pane]}</h1>}
      <header>
        <div role="tablist" aria-label="Inspector views">
          {PANES.map((each) => (
            <button
              key={each}
              type="button"
              role="tab"
              id={`tab-${each}`}
              aria-selected={each === pane}
              aria-controls="pane"
              tabIndex={each === pane ? 0 : -1}
              onClick={() => navigate({ pane: each }, "replace")}
              onKeyDown={({ key, currentTarget }) => {
                const by = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
                const next = PANES[(PANES.indexOf(each) + by + PANES.length) % PANES.length];
                if (by === 0 || next === undefined) return;
                navigate({ pane: next }, "replace");
                currentTarget.parentElement?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
              }}
            >
              {NAMES[each]}
            </button>
          ))}
        </div>
        <button
          type="button"
          className="icon-button widen"
          aria-pressed={wide}
          aria-label="Wide view"
          title="Wide view with two columns"
          onClick={() => setWide(!wide)}
        >
          <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
            <path
              d={
                wide
                  ? "M2 8h4M6 8L4 6M6 8l-2 2M14 8h-4M10 8l2-2M10 8l2 2"
                  : "M7 8H2M2 8l2-2M2 8l2 2M9 8h5M14 8l-2-2M14 8l-2 2"
              }
              fill="none"
              stroke="currentColor"
              strokeWidth="1.5"
              strokeLinecap="round"
              strokeLinejoin="round"
            />
          </svg>
        </button>
        <button
          type="button"
          className="icon-button close"
          aria-label="Close"
          title="Close"
          onClick={() => navigate({ pane: null })}
        >
          <Icon name="close" />
        </button>
      </header>
      <div id="pane" className="pane" role="tabpanel" aria-labelledby={`tab-${pane}`}>
        <PaneContent session={session} pane={pane} log={log} at={at} />
      </div>
    </Landmark>
  );
}

/** What was selected in the conversation has no events yet: they are looked up here. */
function useResolvedSelection(log: Log): void {
  const selection = useSelection();
  useEffect(() => {
    if (selection === null || selection.from > 0) return;
    const { reply, call } = selection;
    const isPart = (event: Event) => {
      const { reply_id, tool_call_id } = event as { reply_id?: string; tool_call_id?: string };
      return call === "" ? reply_id === reply : tool_call_id === call;
    };
    const first = log.events.findIndex(isPart);
    if (first < 0) return;
    const last = log.events.findLastIndex(isPart);
    select({ ...selection, from: log.seqs[first] ?? 0, to: log.seqs[last] ?? 0 });
  }, [selection, log, log.version]);
}

function PaneContent({ session, pane, log, at }: { session: string; pane: Pane; log: Log; at: number | null }) {
  if (log.error !== null && log.events.length === 0) {
    const { message, hint } = explain(log.error);
    return (
      <div className="nothing" role="alert">
        <p>{message}</p>
        {hint !== undefined && <p>{hint}</p>}
        <button type="button" onClick={() => retry(session, log)}>
          Try again
        </button>
      </div>
    );
  }
  switch (pane) {
    case "timeline":
      return <Timeline log={log} at={at} />;
    case "trace":
      return <Trace log={log} at={at} />;
    case "wire":
      return <WirePane session={session} log={log} at={at} />;
    case "usage":
      return <UsagePane log={log} at={at} />;
  }
}
