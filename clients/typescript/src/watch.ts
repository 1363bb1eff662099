// The events of a session: each once and in order, over lost connections and restarts.

import type { Event } from "./generated/model.js";
import { now, pause, sleep, TurnwireError, type Http } from "./http.js";

/** How a connection is. */
export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** It was lost, and is made again at `retryAt` (as `Date.now()` counts). */
  | { state: "waiting"; retryAt: number; error: Error }
  /** It is over: somebody closed it, or it cannot work. */
  | { state: "closed"; error: Error | null };

/** What one connection, as long as it lasts, has to do. */
export interface Line {
  session: string;
  after: string | undefined;
  raw: boolean;
  until: "idle" | undefined;
  signal: AbortSignal;
  /** The server has answered. */
  live(): void;
  /** An event came, with the token behind it. Who is slow may have the line wait. */
  event(event: Event, id: string | undefined): void | Promise<void>;
}

/**
 * One connection: over when there is nothing more to come. What is thrown is why it was lost; a
 * `TurnwireError` that does not pass is the end.
 */
export type Connect = (line: Line) => Promise<void>;

export interface Sink {
  event(event: Event): void | Promise<void>;
  connection(connection: Connection): void;
}

export interface Watching {
  session: string;
  /** Behind which event; nothing is from the start, `"now"` only what comes. */
  after?: string | undefined;
  raw?: boolean | undefined;
  until?: "idle" | undefined;
  signal?: AbortSignal | undefined;
}

/** Keeps a connection until the signal, or an end. It never throws. */
export async function keep(http: Http, connect: Connect, what: Watching, sink: Sink): Promise<string | undefined> {
  const { session, raw = false, until, signal } = what;
  let { after } = what;
  let last = seqOf(after);
  let attempt = 0;
  const stop = signal ?? new AbortController().signal;
  try {
    for (;;) {
      sink.connection({ state: "connecting" });
      const line = new AbortController();
      const abort = () => line.abort(stop.reason);
      if (stop.aborted) abort();
      stop.addEventListener("abort", abort, { once: true });
      let lost: Error;
      try {
        await connect({
          session,
          after,
          raw,
          until,
          signal: line.signal,
          live: () => sink.connection({ state: "live" }),
          event: (event, id) => {
            if (line.signal.aborted) return;
            attempt = 0;
            if (event.type === "RESET") {
              // Everything comes again, from the start.
              last = 0;
              after = id ?? (event.epoch ? `${event.epoch}.0` : undefined);
              return sink.event(event);
            }
            if (event.seq !== undefined) {
              if (event.seq <= last) return;
              last = event.seq;
            }
            after = id ?? after;
            return sink.event(event);
          },
        });
        break;
      } catch (error) {
        if (stop.aborted) break;
        lost = error as Error;
        if (lost instanceof TurnwireError && !lost.passes) throw lost;
      } finally {
        stop.removeEventListener("abort", abort);
        line.abort();
      }
      const wait = pause(http.retry, attempt++);
      sink.connection({ state: "waiting", retryAt: now() + wait, error: lost });
      await sleep(wait, stop);
    }
    sink.connection({ state: "closed", error: null });
  } catch (error) {
    sink.connection({ state: "closed", error: stop.aborted ? null : (error as Error) });
  }
  return after;
}

/** The place in a token; 0 where there is none. */
function seqOf(token: string | undefined): number {
  return Number(token?.match(/(?:^|\.)(\d+)$/)?.[1] ?? 0);
}

/** A stream of events that comes back by itself. Leaving its loop, `close()` or its signal ends it. */
export class Watch implements AsyncIterableIterator<Event> {
  /** How the connection is now. */
  connection: Connection = { state: "connecting" };
  /** Called when that changes. */
  onconnection: ((connection: Connection) => void) | undefined;

  #queue: Event[] = [];
  #stop = new AbortController();
  #wake: (() => void) | undefined;
  #drained: (() => void) | undefined;
  #done = false;

  constructor(http: Http, connect: Connect, what: Watching) {
    const { signal } = what;
    const abort = () => this.#stop.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    const sink: Sink = {
      connection: (connection) => {
        this.connection = connection;
        this.onconnection?.(connection);
      },
      event: (event) => {
        this.#queue.push(event);
        this.#wake?.();
        // Who does not take what came is not sent more; the server has it.
        if (this.#queue.length > 512) return new Promise((resolve) => (this.#drained = resolve));
        return;
      },
    };
    void keep(http, connect, { ...what, signal: this.#stop.signal }, sink).then(() => {
      signal?.removeEventListener("abort", abort);
      this.#done = true;
      this.#wake?.();
    });
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

  /** Ends it. */
  close(): void {
    this.#queue = [];
    this.#stop.abort();
    this.#drained?.();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
