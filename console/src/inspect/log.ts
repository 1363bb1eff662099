// The events of one session: all that there are, and then those that come. The panes of a session share a store.
// The timeline needs each event as it was written; the trace and usage only need to know when something happened, so
// for them the deltas of a block are merged, by the server and here: much less to load, and to keep.
import { useEffect, useSyncExternalStore } from "react";
import { type Connection, type Session, type SessionInfo, TurnwireError } from "turnwire";
import type { Event } from "turnwire/message";
import { client } from "../client.ts";
import { isSameBlock } from "./rows.ts";

/** How long an unused store is kept, for a return to the pane. */
const KEEP_UNUSED = 10_000;
/** The shortest time between two renders, in milliseconds. */
const RENDER_PAUSE = 200;
/** The same while merged events are loaded: they are few, and somebody waits for them. */
const LOADING_PAUSE = 30;
/** After how many milliseconds a frame counts as missing. */
const NO_FRAME = 200;
/** The retry interval for a log that could not be read. */
const RETRY_PAUSE = 1000;

export class Log {
  /** In the order of the log. Grows in place; only this class changes it. A merged delta may lack its later text. */
  readonly events: Event[] = [];
  /** The seq of each event, of merged ones the last; one without a seq has that of the event before. */
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
  #notifiedAt = 0;
  #epoch = "";
  /** The last event that a fork copied; 0 if it is no fork. */
  #forkedAt = 0;

  constructor(readonly isMerged = false) {}

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
    } else if (this.isMerged && this.#joinsLast(event)) {
      this.seqs[this.seqs.length - 1] = event.seq ?? this.last;
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
    this.#updateReady();
    this.changed();
  }

  #joinsLast(event: Event): boolean {
    const before = this.events.at(-1);
    return before !== undefined && isSameBlock(before, event);
  }

  /** Follows a session until the signal aborts or a permanent error; may be called again after one. */
  async follow(id: string, signal: AbortSignal): Promise<void> {
    const session = client.session(id);
    this.error = null;
    try {
      const after = this.isMerged ? this.#begin(session, signal) : await this.#load(session, signal);
      const watch = session.watch({ raw: !this.isMerged, after, signal });
      watch.onconnection = (connection) => {
        this.connection = connection;
        this.changed();
      };
      for await (const event of watch) {
        this.push(event);
        if (event.type === "RESET") this.#loadInfo(session, signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      this.error = error instanceof Error ? error : new Error(String(error));
      this.changed();
    }
  }

  /** Merged events come with the stream, from the first on. */
  #begin(session: Session, signal: AbortSignal): undefined {
    this.#clear();
    this.#loadInfo(session, signal);
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
        for await (const some of lines(response)) {
          for (const event of JSON.parse(`[${some.join(",")}]`) as Event[]) this.push(event);
        }
        this.ready = true;
        this.changed();
        return `${epoch}.${this.last}`;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof TurnwireError && error.status === 410) {
          this.#clear();
          this.#loadInfo(session, signal);
          return undefined;
        }
        if (error instanceof TurnwireError && !error.passes) throw error;
        // The response was cut off: the rest comes with the next one.
        this.connection = { state: "waiting", retryAt: Date.now() + RETRY_PAUSE, error: error as Error };
        this.changed();
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE));
      }
    }
  }

  /** Only the session says how many events the backlog has. */
  #loadInfo(session: Session, signal: AbortSignal): void {
    const answered = (info: SessionInfo | null) => {
      this.info = info;
      this.#updateReady();
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

  #updateReady(): void {
    if (!this.ready && this.info !== null && this.last >= this.info.last_seq) this.ready = true;
  }

  /** Notifies subscribers, at most once per frame. */
  changed(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const notify = () => {
      this.#scheduled = false;
      this.#notifiedAt = performance.now();
      this.version += 1;
      for (const listener of [...this.#listeners]) listener();
    };
    const show = () => nextFrame(notify);
    const pause = this.isMerged && !this.ready ? LOADING_PAUSE : RENDER_PAUSE;
    const wait = this.#notifiedAt + pause - performance.now();
    if (wait > 0) setTimeout(show, wait);
    else show();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** Before the next frame. A page that is hidden before it gets none: then soon. */
function nextFrame(then: () => void): void {
  const run = () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    then();
  };
  const timer = setTimeout(run, document.hidden ? 0 : NO_FRAME);
  const frame = requestAnimationFrame(run);
}

/** The lines of a response, as many as arrive together. */
async function* lines(response: Response): AsyncGenerator<string[]> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: "" };
    if (done) break;
    const found = (rest + value).split("\n");
    rest = found.pop() ?? "";
    yield found;
  }
  if (rest !== "") yield [rest];
}

interface Store {
  log: Log;
  users: number;
  started: boolean;
  stop: AbortController;
  timer?: ReturnType<typeof setTimeout>;
}

/** By session and whether deltas are merged. */
const stores = new Map<string, Store>();
const keyOf = (session: string, isMerged: boolean) => `${isMerged ? "merged" : "raw"} ${session}`;

/** Holds a store of a session: created by the first holder, dropped some time after the last. */
function storeOf(session: string, isMerged: boolean): Store {
  const key = keyOf(session, isMerged);
  let found = stores.get(key);
  if (found === undefined) {
    found = { log: new Log(isMerged), users: 0, started: false, stop: new AbortController() };
    stores.set(key, found);
  }
  return found;
}

function acquire(session: string, isMerged: boolean): () => void {
  const store = storeOf(session, isMerged);
  clearTimeout(store.timer);
  store.users += 1;
  // A failed store may work now: the token may have changed.
  if (!store.started || store.log.error !== null) {
    store.started = true;
    void store.log.follow(session, store.stop.signal);
  }
  return () => {
    store.users -= 1;
    if (store.users > 0) return;
    store.timer = setTimeout(() => {
      store.stop.abort();
      stores.delete(keyOf(session, isMerged));
    }, KEEP_UNUSED);
  };
}

/** Starts again after a failure. */
export function retry(session: string, log: Log): void {
  const store = stores.get(keyOf(session, log.isMerged));
  if (store !== undefined && store.log.error !== null) void store.log.follow(session, store.stop.signal);
}

/** The events of a session, each as it was written unless `isMerged`; renders a few times a second at most. */
export function useLog(session: string, isMerged = false): Log {
  useEffect(() => acquire(session, isMerged), [session, isMerged]);
  const { log } = storeOf(session, isMerged);
  useSyncExternalStore(
    (listener) => log.subscribe(listener),
    () => log.version,
  );
  return log;
}
