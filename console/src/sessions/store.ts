// The sessions as the server lists them, and what waits for a person. It is looked at again now and then,
// and at once after something was done here; not while nobody sees it.
import { useSyncExternalStore } from 'react';
import { TurnwireError, type Pending, type SessionInfo } from 'turnwire';
import { hasty } from '../client.ts';

export type Waiting = Pending & { session_id: string; title: string | null };

export interface Listed {
  sessions: readonly SessionInfo[];
  waiting: readonly Waiting[];
  hasMore: boolean;
  /** What was searched for when this was listed. */
  query: string;
  isLoaded: boolean;
  error: Error | null;
  /** The server wants to know who asks. */
  isLocked: boolean;
}

const EVERY = 4000;
const PAGE = 50;
/** As many as a page of the server can have. */
const MOST = 200;

let state: Listed = { sessions: [], waiting: [], hasMore: false, query: '', isLoaded: false, error: null, isLocked: false };
let text = '';
let query = '';
let limit = PAGE;
let running: AbortController | null = null;
let isStale = false;
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function put(next: Listed): void {
  // The same again is no reason to draw anything.
  const written = JSON.stringify([next, next.error?.message]);
  if (written === text) return;
  text = written;
  state = next;
  for (const listener of listeners) listener();
}

async function look(): Promise<void> {
  clearTimeout(timer);
  if (running) {
    isStale = true;
    return;
  }
  isStale = false;
  const stop = (running = new AbortController());
  const asked = query;
  try {
    const [{ sessions, next_cursor }, waiting] = await Promise.all([
      hasty.sessions({ limit, signal: stop.signal, ...(asked.trim() !== '' && { q: asked }) }),
      hasty.approvals({ limit: 50 }),
    ]);
    if (!stop.signal.aborted) put({ sessions, waiting, hasMore: next_cursor !== null && limit < MOST, query: asked, isLoaded: true, error: null, isLocked: false });
  } catch (error) {
    if (!stop.signal.aborted) {
      const isLocked = error instanceof TurnwireError && error.status === 401;
      put({ ...state, ...(isLocked && { sessions: [], waiting: [] }), error: error as Error, isLocked });
    }
  } finally {
    if (running === stop) running = null;
    if (isStale) void look();
    // Who is not let in is not let in by asking again.
    else if (listeners.size > 0 && !document.hidden && !state.isLocked) timer = setTimeout(() => void look(), EVERY);
  }
}

/** Looks at once. */
export function refreshSessions(): void {
  if (listeners.size > 0) void look();
}

/** Searches; what is under way for other words is let go. */
export function search(words: string): void {
  query = words;
  limit = PAGE;
  running?.abort();
  running = null;
  void look();
}

export function showMore(): void {
  limit = Math.min(MOST, limit * 2);
  void look();
}

function seen(): void {
  if (!document.hidden) void look();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (listeners.size === 1) {
    void look();
    document.addEventListener('visibilitychange', seen);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', seen);
  };
}

export function useSessions(): Listed {
  return useSyncExternalStore(subscribe, () => state);
}
