// The sessions as the server lists them, and what waits for a person. Refreshed at an interval, and at once after something was
// done here. In a hidden tab only the pending calls are, for the number in its title and for notifications.
import { useSyncExternalStore } from "react";
import { type Pending, type SessionInfo, type Status, TurnwireError } from "turnwire";
import { impatientClient } from "../client.ts";

export type PendingReply = Pending & { session_id: string; title: string | null };

export interface SessionList {
  sessions: readonly SessionInfo[];
  waiting: readonly PendingReply[];
  hasMore: boolean;
  /** The search words of this list. */
  query: string;
  isLoaded: boolean;
  error: Error | null;
  /** The server requires a token. */
  isLocked: boolean;
}

const REFRESH_INTERVAL = 4000;
/** The interval in a hidden tab. */
const HIDDEN_INTERVAL = 15_000;
const PAGE = 50;
/** The largest page of the server: so many sessions are refreshed each time, whatever is listed below. */
const MAX_REFRESHED = 200;

let state: SessionList = {
  sessions: [],
  waiting: [],
  hasMore: false,
  query: "",
  isLoaded: false,
  error: null,
  isLocked: false,
};
let query = "";
let status: Status | null = null;
/** How many sessions are refreshed. */
let limit = PAGE;
/** Whether more than that is listed, and the cursor of the next page. */
let isPaged = false;
let cursor: string | null = null;
let running: AbortController | null = null;
let isStale = false;
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function setState(next: SessionList): void {
  // Unchanged data is not drawn again. Unchanged sessions are the same objects.
  const isSame =
    next.sessions.length === state.sessions.length &&
    next.sessions.every((info, at) => info === state.sessions[at]) &&
    JSON.stringify(next.waiting) === JSON.stringify(state.waiting) &&
    next.error?.message === state.error?.message &&
    (["hasMore", "query", "isLoaded", "isLocked"] as const).every((key) => next[key] === state[key]);
  if (isSame) return;
  state = next;
  for (const listener of listeners) listener();
}

async function refresh(): Promise<void> {
  clearTimeout(timer);
  if (running) {
    isStale = true;
    return;
  }
  isStale = false;
  const stop = (running = new AbortController());
  const words = query;
  try {
    if (document.hidden && state.isLoaded) {
      const waiting = await impatientClient.approvals({ limit: 50 });
      if (!stop.signal.aborted) setState({ ...state, waiting, error: null, isLocked: false });
      return;
    }
    const top = await list(words, { limit, signal: stop.signal });
    if (stop.signal.aborted) return;
    isPaged &&= top.next_cursor !== null;
    if (!isPaged) cursor = top.next_cursor;
    const above = reuseUnchanged(top.sessions);
    setState({
      ...state,
      sessions: isPaged ? [...above, ...sessionsBelow(above, state.sessions)] : above,
      hasMore: cursor !== null,
      query: words,
      isLoaded: true,
    });
    // A search does not wait for the pending calls.
    const waiting = await impatientClient.approvals({ limit: 50 });
    if (!stop.signal.aborted) setState({ ...state, waiting, error: null, isLocked: false });
  } catch (error) {
    if (!stop.signal.aborted) {
      const isLocked = error instanceof TurnwireError && error.status === 401;
      setState({ ...state, ...(isLocked && { sessions: [], waiting: [] }), error: error as Error, isLocked });
    }
  } finally {
    if (running === stop) running = null;
    if (isStale) void refresh();
    // Without a valid token, asking again does not help.
    else if (listeners.size > 0 && !state.isLocked)
      timer = setTimeout(() => void refresh(), document.hidden ? HIDDEN_INTERVAL : REFRESH_INTERVAL);
  }
}

/** Refreshes now. */
export function refreshSessions(): void {
  if (listeners.size > 0) void refresh();
}

const list = (q: string, options: { limit: number; cursor?: string; signal?: AbortSignal }) =>
  impatientClient.sessions({ ...options, ...(q.trim() !== "" && { q }), ...(status !== null && { status }) });

/** The part of the old list below the new top. The list is ordered by the last change, so changed sessions moved up. */
export function sessionsBelow(top: readonly SessionInfo[], before: readonly SessionInfo[]): SessionInfo[] {
  const last = top.at(-1);
  const ids = new Set(top.map(({ id }) => id));
  return before.filter(({ id, updated_at }) => !ids.has(id) && (last === undefined || updated_at <= last.updated_at));
}

/** The same objects where nothing changed, so that their rows are not drawn again. */
function reuseUnchanged(infos: readonly SessionInfo[]): SessionInfo[] {
  const before = new Map(state.sessions.map((info) => [info.id, info]));
  return infos.map((info) => {
    const known = before.get(info.id);
    return known !== undefined && JSON.stringify(known) === JSON.stringify(info) ? known : info;
  });
}

/** Lists only sessions with a status; null: all. */
export function filterByStatus(to: Status | null): void {
  status = to;
  search(query);
}

const searching = new Set<() => void>();

/** Calls back when a search begins; returns a function that unsubscribes. */
export function onSearch(listener: () => void): () => void {
  searching.add(listener);
  return () => void searching.delete(listener);
}

/** Searches, and aborts the request for other words. */
export function search(words: string): void {
  query = words;
  for (const listener of searching) listener();
  limit = PAGE;
  isPaged = false;
  cursor = null;
  running?.abort();
  running = null;
  void refresh();
}

/** Lists more. Sessions beyond one page are fetched once and appended. */
export async function showMore(): Promise<void> {
  if (limit < MAX_REFRESHED) {
    limit = Math.min(MAX_REFRESHED, limit * 2);
    return refresh();
  }
  if (cursor === null) return;
  const words = query;
  const { sessions, next_cursor } = await list(words, { limit: PAGE, cursor });
  if (words !== query) return;
  isPaged = true;
  cursor = next_cursor;
  const ids = new Set(state.sessions.map(({ id }) => id));
  setState({
    ...state,
    sessions: [...state.sessions, ...sessions.filter(({ id }) => !ids.has(id))],
    hasMore: cursor !== null,
  });
}

/** Removes a session that was deleted here from the list at once. */
export function removeFromList(id: string): void {
  setState({ ...state, sessions: state.sessions.filter((info) => info.id !== id) });
}

function onVisible(): void {
  if (!document.hidden) void refresh();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (listeners.size === 1) {
    void refresh();
    document.addEventListener("visibilitychange", onVisible);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onVisible);
  };
}

export function useSessions(): SessionList {
  return useSyncExternalStore(subscribe, () => state);
}
