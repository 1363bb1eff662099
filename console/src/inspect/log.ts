// The events of one session as they were written: all that there are, and then those that come. Whoever
// shows something of them shares one store per session.
import { useEffect, useSyncExternalStore } from "react";
import { type Connection, type Session, type SessionInfo, TurnwireError } from "turnwire";
import type { Event } from "turnwire/message";
import { client } from "../client.ts";

/** For how long a store that nobody looks at is kept: other panes, and back. */
const KEEP = 10_000;
/** How long what is new waits to be shown at the most, in milliseconds: what the socket brings is drawn when it comes. */
const PAUSE = 50;
/** After how long a log that could not be read is asked for again. */
const AGAIN = 1000;

export class Log {
  /** In the order of the log. It grows in place; nobody else changes it. */
  readonly events: Event[] = [];
  /** The place of each; one without a place of its own has that of the one before. */
  readonly seqs: number[] = [];
  /** When each was written, in milliseconds; one without a time has that of the one before. */
  readonly times: number[] = [];
  /** When the turn began that each is in. */
  readonly turns: number[] = [];
  /** Counts how often it began anew: what was made of the events before is void. */
  generation = 0;
  /** Counts what there is to show. */
  version = 0;
  /** Whether all is here that was there when it was asked. */
  ready = false;
  connection: Connection = { state: "connecting" };
  /** Why nothing comes any more. */
  error: Error | null = null;
  /** The session as it was when this began. */
  info: SessionInfo | null = null;

  #listeners = new Set<() => void>();
  #scheduled = false;
  #told = 0;
  #epoch = "";

  /** The place of the first event; 1 where there is none. */
  get first(): number {
    return this.seqs[0] ?? 1;
  }

  /** The place of the last event; 0 where there is none. */
  get last(): number {
    return this.seqs.at(-1) ?? 0;
  }

  /** Where the last event at or before a place stands; -1 where there is none. */
  indexOf(seq: number): number {
    // Places are dense, unless the beginning was taken out of the log.
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
      this.turns.push(event.type === "MESSAGE" ? known : (this.turns.at(-1) ?? known));
      this.events.push(event);
      this.seqs.push(event.seq ?? this.last);
      this.times.push(known);
    }
    this.#settle();
    this.changed();
  }

  /** Follows a session until the signal, or an error that does not pass; after one it may begin again. */
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

  /** Reads the log as it is, and says from where on to watch. A log whose beginning is gone is only watched. */
  async #load(session: Session, signal: AbortSignal): Promise<string | undefined> {
    for (;;) {
      try {
        const info = await session.get({ signal });
        const { epoch } = info;
        // One that was made again has nothing to do with what is here.
        if (this.#epoch !== epoch) this.#clear();
        this.#epoch = epoch;
        this.info = info;
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
        // It was cut: the rest of it comes next time.
        this.connection = { state: "waiting", retryAt: Date.now() + AGAIN, error: error as Error };
        this.changed();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }

  /** Only the session says how much there is to come before all is here. */
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

  /** Tells those who look, with a frame, and no more often than anybody reads. */
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

/** The lines of a response as they come. */
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

/** Holds the store of a session; it begins with the first who does, and ends some time after the last. */
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
  // One that failed may work now: who asks may be somebody else.
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

/** Begins anew where it failed. */
export function retry(session: string): void {
  const mine = held.get(session);
  if (mine !== undefined && mine.log.error !== null) void mine.log.follow(session, mine.stop.signal);
}

/** The events of a session; renders at most once a frame. */
export function useLog(session: string): Log {
  useEffect(() => use(session), [session]);
  const { log } = hold(session);
  useSyncExternalStore(
    (listener) => log.subscribe(listener),
    () => log.version,
  );
  return log;
}
