// The events of a session: each once and in order, across lost connections and restarts.

import type { Event } from "./generated/model.js";
import {
  FOREVER,
  type Http,
  linkedController,
  retryDelay,
  sleep,
  type TurnwireError,
  withSilenceTimeout,
} from "./http.js";

/** The state of a connection. */
export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** Lost; retried at `retryAt` (as `Date.now()`). */
  | { state: "waiting"; retryAt: number; error: Error }
  /** Ended: closed by the caller, or by a permanent error. */
  | { state: "closed"; error: Error | null };

/** The callbacks of one connection. */
export interface Line {
  session: string;
  after: string | undefined;
  raw: boolean;
  until: "idle" | undefined;
  signal: AbortSignal;
  /** Data arrived, or none is expected within the next so many milliseconds. */
  heard(ms?: number): void;
  /** The server has answered. */
  live(): void;
  /** An event arrived, with its resume token. A slow consumer may pause the connection. */
  event(event: Event, id: string | undefined): void | Promise<void>;
}

/**
 * One connection. It returns when the stream is complete, and throws when the connection is lost; a permanent
 * `TurnwireError` ends the stream.
 */
export type Connect = (line: Line) => Promise<void>;

export interface Sink {
  event(event: Event): void | Promise<void>;
  connection(connection: Connection): void;
}

export interface Watching {
  session: string;
  /** The resume token to start after; default: the start; `"now"`: only new events. */
  after?: string | undefined;
  raw?: boolean | undefined;
  until?: "idle" | undefined;
  signal?: AbortSignal | undefined;
}

/** Keeps a connection open until the signal aborts or the stream ends. */
export async function keepConnected(
  http: Http,
  connect: Connect,
  what: Watching & { signal: AbortSignal },
  sink: Sink,
): Promise<void> {
  const { session, raw = false, until, signal } = what;
  let { after } = what;
  let last = seqOf(after);
  let attempt = 0;
  let error: Error | null = null;
  const line = (signal: AbortSignal, heard: Line["heard"]): Line => ({
    session,
    after,
    raw,
    until,
    signal,
    heard,
    live: () => sink.connection({ state: "live" }),
    event: (event, id) => {
      const { type, seq, epoch } = event as Event & { epoch?: string };
      const isReset = type === "RESET";
      if (signal.aborted || (!isReset && seq! <= last)) return;
      attempt = 0;
      // After a reset all events come again.
      last = isReset ? 0 : (seq ?? last);
      after = id ?? (isReset && epoch ? `${epoch}.0` : after);
      const slow = sink.event(event);
      if (!slow) return;
      // Nobody listens meanwhile.
      heard(FOREVER);
      return slow.then(() => heard());
    },
  });
  try {
    for (;;) {
      sink.connection({ state: "connecting" });
      const lost = await withSilenceTimeout(http.silence, signal, (...given) => connect(line(...given))).catch(
        (error: TurnwireError) => error,
      );
      if (!lost) break;
      if (signal.aborted || !lost.passes) throw lost;
      const wait = retryDelay(http.retry, attempt++);
      const paused = pause(http, wait, signal);
      sink.connection({ state: "waiting", retryAt: Date.now() + wait, error: lost });
      await paused;
    }
  } catch (caught) {
    error = caught as Error;
  }
  sink.connection({ state: "closed", error: signal.aborted ? null : error });
}

/** Waits before the next attempt; `reconnect()` of the client ends it early. */
async function pause({ pauses }: Http, ms: number, signal: AbortSignal): Promise<void> {
  const early = linkedController(signal);
  const end = () => early.abort();
  pauses.add(end);
  await sleep(ms, early.signal).catch(() => {});
  pauses.delete(end);
  signal.throwIfAborted();
}

/** The seq of a resume token; 0 if there is none. */
function seqOf(token: string | undefined): number {
  return Number(token?.split(".").at(-1)) || 0;
}

/** A stream of events that reconnects by itself. Leaving its loop, `close()` or its signal ends it. */
export class Watch implements AsyncIterableIterator<Event> {
  /** The current state of the connection. */
  connection: Connection = { state: "connecting" };
  /** Called when the state changes. */
  onconnection: ((connection: Connection) => void) | undefined;

  #queue: Event[] = [];
  #stop: AbortController;
  #wake: (() => void) | undefined;
  #drained: (() => void) | undefined;
  #done = false;

  constructor(http: Http, connect: Connect, what: Watching) {
    const { signal } = (this.#stop = linkedController(what.signal));
    const sink: Sink = {
      connection: (connection) => {
        this.connection = connection;
        this.onconnection?.(connection);
      },
      event: (event) => {
        this.#queue.push(event);
        this.#wake?.();
        // A consumer that does not read is not sent more; the server keeps the events.
        if (this.#queue.length > 512) return new Promise((resolve) => (this.#drained = resolve));
        return;
      },
    };
    const end = () => {
      this.#done = true;
      this.#wake?.();
    };
    // Errors of `onconnection`; the connection state has the reason.
    keepConnected(http, connect, { ...what, signal }, sink).then(end, end);
  }

  async next(): Promise<IteratorResult<Event>> {
    for (;;) {
      const event = this.#queue.shift();
      if (event) {
        if (!this.#queue.length) this.#drained?.();
        return { done: false, value: event };
      }
      if (this.#done) {
        const { connection } = this;
        if (connection.state === "closed" && connection.error) throw connection.error;
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async return(): Promise<IteratorResult<Event>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Closes the stream. */
  close(): void {
    this.#queue = [];
    this.#stop.abort();
    this.#drained?.();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
