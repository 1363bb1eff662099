// A step of a reply that somebody selected: the trace, the timeline and the conversation show the same one.
import { useSyncExternalStore } from "react";
import { currentRoute } from "./route.ts";

export interface Selection {
  /** Its events. */
  from: number;
  to: number;
  reply: string;
  /** The tool call; empty for anything else. */
  call: string;
  /** Where it was selected: that view does not move. */
  by: "trace" | "timeline" | "conversation";
}

let selection: Selection | null = null;
/** The session of the selected step. */
let session: string | null = null;
const listeners = new Set<() => void>();

export function select(to: Selection | null): void {
  selection = to;
  session = currentRoute().session;
  for (const listener of [...listeners]) listener();
}

/** The selection; none once another session is open. */
function current(): Selection | null {
  if (session !== currentRoute().session) selection = null;
  return selection;
}

export function useSelection(): Selection | null {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, current);
}
