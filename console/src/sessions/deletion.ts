// Deleting with a way back: conversations leave the list at once and are deleted a few seconds later, unless somebody undoes it.
import { useSyncExternalStore } from "react";
import { BASE, client, token } from "../client.ts";
import { refreshSessions, removeFromList } from "./store.ts";

/** How long it can be undone, in milliseconds. */
export const UNDO_TIME = 8000;

export interface Deletion {
  /** Not in the list any more: what can still be undone, and what is being deleted. */
  hidden: ReadonlySet<string>;
  /** What can still be undone. */
  undoable: ReadonlySet<string>;
  error: unknown;
}

const NONE: ReadonlySet<string> = new Set();
let state: Deletion = { hidden: NONE, undoable: NONE, error: null };
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function setState(change: Partial<Deletion>): void {
  state = { ...state, ...change };
  for (const listener of [...listeners]) listener();
}

const without = (some: ReadonlySet<string>, others: ReadonlySet<string>) =>
  new Set([...some].filter((id) => !others.has(id)));

/** Hides conversations, and deletes them when nobody undoes it. */
export function deleteLater(ids: readonly string[]): void {
  clearTimeout(timer);
  setState({ hidden: new Set([...state.hidden, ...ids]), undoable: new Set([...state.undoable, ...ids]), error: null });
  timer = setTimeout(() => void deleteNow(), UNDO_TIME);
}

/** Keeps what is not being deleted yet. */
export function undoDeletion(): void {
  clearTimeout(timer);
  setState({ hidden: without(state.hidden, state.undoable), undoable: NONE });
}

export function dismissError(): void {
  setState({ error: null });
}

async function deleteNow(): Promise<void> {
  clearTimeout(timer);
  const ids = state.undoable;
  if (ids.size === 0) return;
  setState({ undoable: NONE });
  let error: unknown = null;
  await Promise.all(
    [...ids].map((id) =>
      client
        .session(id)
        .delete()
        .then(
          () => removeFromList(id),
          (why: unknown) => {
            if ((why as { status?: number }).status !== 404) error = why;
          },
        ),
    ),
  );
  setState({ hidden: without(state.hidden, ids), ...(error !== null && { error }) });
  refreshSessions();
}

/** A page that closes can only send requests that outlive it, all at once. */
function deleteOnClose(): void {
  clearTimeout(timer);
  const headers = new Headers(token() === "" ? {} : { authorization: `Bearer ${token()}` });
  for (const id of state.undoable)
    void fetch(`${BASE}/v1/sessions/${encodeURIComponent(id)}`, {
      method: "DELETE",
      headers,
      keepalive: true,
    }).catch(() => {});
  setState({ undoable: NONE });
}

// A page that closes does not change its mind.
window.addEventListener("pagehide", deleteOnClose);

export function useDeletion(): Deletion {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => state,
  );
}
