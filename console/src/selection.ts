// A step of a reply that somebody selected: the trace, the timeline and the conversation show the same one.
import { useSyncExternalStore } from "react";

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
const listeners = new Set<() => void>();

export function select(to: Selection | null): void {
  selection = to;
  for (const listener of [...listeners]) listener();
}

export function useSelection(): Selection | null {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => selection,
  );
}
