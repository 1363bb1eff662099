// The events of one session as they were written: all that there are, and then those that come. Whoever
// shows something of them shares one store per session.
import { useEffect, useSyncExternalStore } from "react";
import { type Connection, type Session, type SessionInfo, TurnwireError } from "turnwire";
import type { Event } from "turnwire/message";
import { client } from "../client.ts";

/** How long an unused store is kept, for a return to the pane. */
const KEEP = 10_000;
/** The longest delay before new events are drawn, in milliseconds. Socket messages are drawn when they come. */
const PAUSE = 50;
/** The retry interval for a log that could not be read. */
const AGAIN = 1000;

export class Log {
  /** In the order of the log. Grows in place; only this class changes it. */
  readonly events: Event[] = [];
  /** The seq of each event; one without a seq has that of the event before. */
  readonly seqs: number[] = [];
  /** The time of each event in milliseconds; one without a time has that of the event before. */
  readonly times: number[] = [];
  /** The start of the turn of each event. */
  readonly turns: number[] = [];
  /** Counts resets: what was derived from earlier events is void. */
  generation = 0;
  /** Counts changes to show. */
  version = 0;
  /** Whether the backlog is loaded. */
  ready = false;
  connection: Connection = { state: "connecting" };
  /** Why the stream ended. */
  error: Error | null = null;
  /** The session as it was at the start. */
  info: SessionInfo | null = null;

  #listeners = new Set<() => void>();
  #scheduled = false;
  #told = 0;
  #epoch = "";
  /** The last event that a fork copied; 0 if it is no fork. */
  #forkedAt = 0;

  /** The seq of the first event; 1 if there is none. */
  get first(): number {
    return this.seqs[0] ?? 1;
  }

  /** The seq of the last event; 0 if there is none. */
  get last(): number {
    return this.seqs.at(-1) ?? 0;
  }

  /** The index of the last event at or before a seq; -1 if there is none. */
  indexOf(seq: number): number {
    // Seqs are dense, unless retention removed the beginning of the log.
    const guess = seq - this.first;
    if (this.seqs[guess] === seq && this.seqs[guess + 1] !== seq) return guess;
    let [from, to] = [0, this.seqs.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.seqs[middle] ?? 0) <= seq) from = middle + 1;
      else to = middle;
    }
    return from - 1;
  }

  push(event: Event): void {
    if (event.type === "RESET") {
      this.#clear();
      this.#epoch = event.epoch;
    } else {
      const time = Date.parse(event.created_at ?? "");
      const known = Number.isNaN(time) ? (this.times.at(-1) ?? 0) : time;
      // Times are relative to the message before; in a fork, its own events begin with the fork.
      const begins = event.type === "MESSAGE" || (this.#forkedAt > 0 && event.seq === this.#forkedAt + 1);
      this.turns.push(begins ? known : (this.turns.at(-1) ?? known));
      this.events.push(event);
      this.seqs.push(event.seq ?? this.last);
      this.times.push(known);
    }
    this.#settle();
    this.changed();
  }

  /** Follows a session until the signal aborts or a permanent error; may be called again after one. */
  async follow(id: string, signal: AbortSignal): Promise<void> {
    const session = client.session(id);
    this.error = null;
    try {
      const watch = session.watch({ raw: true, after: await this.#load(session, signal), signal });
      watch.onconnection = (connection) => {
        this.connection = connection;
        this.changed();
      };
      for await (const event of watch) {
        this.push(event);
        if (event.type === "RESET") this.#ask(session, signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      this.error = error instanceof Error ? error : new Error(String(error));
      this.changed();
    }
  }

  /** Reads the log and returns the cursor to follow from. A log without its beginning is only followed. */
  async #load(session: Session, signal: AbortSignal): Promise<string | undefined> {
    for (;;) {
      try {
        const info = await session.get({ signal });
        const { epoch } = info;
        // A session that was created again has other events.
        if (this.#epoch !== epoch) this.#clear();
        this.#epoch = epoch;
        this.info = info;
        const from = info.metadata["forked_from"] as { seq?: unknown } | undefined;
        this.#forkedAt = typeof from?.seq === "number" ? from.seq : 0;
        const path = `/v1/sessions/${encodeURIComponent(session.id)}/events?after=${epoch}.${this.last}`;
        const response = await session.http.once("GET", path, { accept: "application/x-ndjson", signal });
        for await (const line of lines(response)) this.push(JSON.parse(line) as Event);
        this.ready = true;
        this.changed();
        return `${epoch}.${this.last}`;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof TurnwireError && error.status === 410) {
          this.#clear();
          this.#ask(session, signal);
          return undefined;
        }
        if (error instanceof TurnwireError && !error.passes) throw error;
        // The response was cut off: the rest comes with the next one.
        this.connection = { state: "waiting", retryAt: Date.now() + AGAIN, error: error as Error };
        this.changed();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }

  /** Only the session says how many events the backlog has. */
  #ask(session: Session, signal: AbortSignal): void {
    const answered = (info: SessionInfo | null) => {
      this.info = info;
      this.#settle();
      this.changed();
    };
    session.get({ signal }).then(answered, () => answered(null));
  }

  #clear(): void {
    for (const list of [this.events, this.seqs, this.times, this.turns]) list.length = 0;
    this.generation += 1;
    this.ready = false;
    this.info = null;
  }

  #settle(): void {
    if (!this.ready && this.info !== null && this.last >= this.info.last_seq) this.ready = true;
  }

  /** Notifies subscribers, at most once per frame. */
  changed(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const tell = () => {
      this.#scheduled = false;
      this.#told = performance.now();
      this.version += 1;
      for (const listener of [...this.#listeners]) listener();
    };
    const show = () => void (document.hidden ? setTimeout(tell) : requestAnimationFrame(tell));
    const wait = this.#told + PAUSE - performance.now();
    if (wait > 0) setTimeout(show, wait);
    else show();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** The lines of a response, as they arrive. */
async function* lines(response: Response): AsyncGenerator<string> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: "" };
    if (done) break;
    const found = (rest + value).split("\n");
    rest = found.pop() ?? "";
    yield* found;
  }
  if (rest !== "") yield rest;
}

interface Held {
  log: Log;
  users: number;
  started: boolean;
  stop: AbortController;
  timer?: ReturnType<typeof setTimeout>;
}

const held = new Map<string, Held>();

/** Holds the store of a session: created by the first holder, dropped some time after the last. */
function hold(session: string): Held {
  let found = held.get(session);
  if (found === undefined) {
    found = { log: new Log(), users: 0, started: false, stop: new AbortController() };
    held.set(session, found);
  }
  return found;
}

function use(session: string): () => void {
  const mine = hold(session);
  clearTimeout(mine.timer);
  mine.users += 1;
  // A failed store may work now: the token may have changed.
  if (!mine.started || mine.log.error !== null) {
    mine.started = true;
    void mine.log.follow(session, mine.stop.signal);
  }
  return () => {
    mine.users -= 1;
    if (mine.users > 0) return;
    mine.timer = setTimeout(() => {
      mine.stop.abort();
      held.delete(session);
    }, KEEP);
  };
}

/** Starts again after a failure. */
export function retry(session: string): void {
  const mine = held.get(session);
  if (mine !== undefined && mine.log.error !== null) void mine.log.follow(session, mine.stop.signal);
}

/** The events of a session; renders at most once per frame. */
export function useLog(session: string): Log {
  useEffect(() => use(session), [session]);
  const { log } = hold(session);
  useSyncExternalStore(
    (listener) => log.subscribe(listener),
    () => log.version,
  );
  return log;
}
