// Pinned conversations: this browser's choice.
import { useSyncExternalStore } from "react";
import { read, write } from "../storage.ts";

const KEY = "turnwire.pins";
const listeners = new Set<() => void>();
let pins: ReadonlySet<string> | null = null;

function loadPins(): ReadonlySet<string> {
  if (pins === null) {
    try {
      pins = new Set(JSON.parse(read(KEY) ?? "[]") as string[]);
    } catch {
      pins = new Set();
    }
  }
  return pins;
}

export function togglePin(id: string): void {
  const next = new Set(loadPins());
  if (!next.delete(id)) next.add(id);
  pins = next;
  write(KEY, next.size === 0 ? null : JSON.stringify([...next].slice(-500)));
  for (const listener of [...listeners]) listener();
}

export function usePins(): ReadonlySet<string> {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, loadPins);
}
