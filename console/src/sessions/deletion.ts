// Deleting with a way back: conversations leave the list at once and are deleted a few seconds later, unless somebody undoes it.
import { useSyncExternalStore } from "react";
import { client } from "../client.ts";
import { forget, refreshSessions } from "./store.ts";

/** How long it can be undone, in milliseconds. */
export const UNDO = 8000;

export interface Deletion {
  ids: ReadonlySet<string>;
  error: unknown;
}

const NOTHING: Deletion = { ids: new Set(), error: null };
let state = NOTHING;
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function set(to: Deletion): void {
  state = to;
  for (const listener of [...listeners]) listener();
}

/** Hides conversations, and deletes them when nobody undoes it. */
export function deleteLater(ids: readonly string[]): void {
  clearTimeout(timer);
  set({ ids: new Set([...state.ids, ...ids]), error: null });
  timer = setTimeout(() => void deleteNow(), UNDO);
}

export function undoDeletion(): void {
  clearTimeout(timer);
  set(NOTHING);
}

export async function deleteNow(): Promise<void> {
  clearTimeout(timer);
  const { ids } = state;
  if (ids.size === 0) return;
  let error: unknown = null;
  for (const id of ids) {
    try {
      await client.session(id).delete();
      forget(id);
    } catch (why) {
      if ((why as { status?: number }).status !== 404) error = why;
    }
  }
  set({ ids: new Set(), error });
  refreshSessions();
}

// A page that closes does not change its mind.
window.addEventListener("pagehide", () => void deleteNow());

export function useDeletion(): Deletion {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => state,
  );
}
