// Requests that are safe to send again, and are, until there is an answer.

import type { Connect } from "./watch.js";

/** How long to wait before something is tried again, in milliseconds: doubled each time, from `min` to `max`. */
export interface Retry {
  min: number;
  max: number;
}

export interface Options {
  /** Where the server is; nothing is the origin of the page. A path in it stays in front. */
  url?: string;
  /** A bearer token, or what gives one; it is asked before each request. */
  token?: string | (() => string | Promise<string>);
  /** Another `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How sessions are watched: `webSocket()` carries many on one connection. The default is server-sent events. */
  transport?: Transport;
  /** How fast a lost connection is made again; the default is from 250 ms to 15 s, each with jitter. */
  retry?: Partial<Retry>;
  /** After how many milliseconds without a sound a connection, or a request, counts as lost: 45 s. A server says something every 15 s. */
  silence?: number;
  /** For how many milliseconds a request is sent again while there is no answer: 30 s. */
  patience?: number;
}

/** A way to watch; `webSocket()` makes one. */
export type Transport = (http: Http) => Connect;

export type WebSocketLike = new (
  url: string,
) => {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
};

/** What the server, or the way to it, said. */
export class TurnwireError extends Error {
  /** For a program: `busy`, `not_found`, `already_answered`, …; `lost` where there was no answer. */
  declare readonly type: string;
  /** The HTTP status; 0 where there was no answer. */
  declare readonly status: number;
  /** What to do about it. */
  declare readonly hint: string | undefined;

  constructor(message: string, type = "lost", status = 0, hint?: string) {
    super(message);
    Object.assign(this, { name: "TurnwireError", type, status, hint });
  }

  /** Whether the same may work later: nobody knows what happened, or it does not work now. */
  get passes(): boolean {
    return /^(0|429|50[0234])$/.test(`${this.status}`);
  }
}

export interface Ask {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  accept?: string;
  /** For how long there may be no sound; otherwise as for everything. */
  silence?: number;
}

/** As long as a timer can wait. */
export const FOREVER = 2 ** 31 - 1;

export class Http {
  readonly base: string;
  readonly retry: Retry;
  readonly silence: number;

  constructor(readonly options: Options) {
    this.base = (options.url ?? "").replace(/\/+$/, "");
    this.retry = { min: 250, max: 15_000, ...options.retry };
    this.silence = options.silence ?? 45_000;
  }

  async token(): Promise<string | undefined> {
    const { token } = this.options;
    return typeof token === "function" ? token() : token;
  }

  /** One request; an answer that is no success is an error. */
  async once(method: string, path: string, { body, headers, accept, signal }: Ask): Promise<Response> {
    const { fetch = globalThis.fetch } = this.options;
    const token = await this.token();
    const init = {
      method,
      headers: { ...(accept && { accept }), ...headers, ...(token && { authorization: `Bearer ${token}` }) },
      body,
      signal,
    };
    const response = await fetch(this.base + path, init as RequestInit).catch((error) => {
      throw new TurnwireError(`cannot reach ${this.base || "the server"}: ${error}`);
    });
    if (response.ok) return response;
    const { status } = response;
    const {
      type = "unknown",
      message = `it answered with status ${status}`,
      hint,
    } = (await response.json().catch(() => {}))?.error ?? {};
    throw new TurnwireError(message, type, status, hint);
  }

  /** A request, sent again while there is no answer, and what it says. */
  async ask<T>(method: string, path: string, ask: Ask = {}, read: (text: string) => T = readJson): Promise<T> {
    const { silence = this.silence, signal } = ask;
    const end = Date.now() + (this.options.patience ?? 30_000);
    for (let attempt = 0; ; attempt++) {
      try {
        return await listening(silence, signal, async (signal, heard) => {
          let text = "";
          for await (const piece of pieces(await this.once(method, path, { ...ask, signal }), heard)) text += piece;
          return read(text);
        });
      } catch (error) {
        // The first delete may have worked, only its answer was lost.
        const { status, passes } = error as TurnwireError;
        if (attempt && method === "DELETE" && status === 404) return undefined as T;
        if (!passes || Date.now() >= end) throw error;
        await sleep(pause(this.retry, attempt), signal);
      }
    }
  }
}

const readJson = (text: string) => (text ? JSON.parse(text) : undefined);

/** The text of an answer, as it comes. */
export async function* pieces({ body }: Response, heard: () => void): AsyncGenerator<string> {
  const reader = body?.getReader();
  const decoder = new TextDecoder();
  for (let next: ReadableStreamReadResult<Uint8Array> | undefined; (next = await reader?.read()) && !next.done; ) {
    heard();
    yield decoder.decode(next.value, { stream: true });
  }
}

/** What can be ended here, and also ends with an outer signal. */
export function within(outer: AbortSignal | undefined): AbortController {
  const stop = new AbortController();
  const end = () => stop.abort(outer!.reason);
  if (outer?.aborted) end();
  outer?.addEventListener("abort", end, { signal: stop.signal });
  return stop;
}

/**
 * Does something that makes a sound now and then: `heard` says that it did. Without one for so long it is lost,
 * whatever it waits for, and whether it looks at its signal or not.
 */
export async function listening<T>(
  ms: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal, heard: (ms?: number) => void) => Promise<T>,
): Promise<T> {
  const stop = within(outer);
  const { signal } = stop;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = (next = ms) => {
    clearTimeout(timer);
    if (!signal.aborted) timer = setTimeout(() => stop.abort(new TurnwireError(`nothing came for ${ms} ms`)), next);
  };
  try {
    signal.throwIfAborted();
    return await new Promise<T>((resolve, reject) => {
      signal.onabort = () => reject(signal.reason);
      heard();
      work(signal, heard).then(resolve, (error) =>
        reject(error instanceof TurnwireError ? error : new TurnwireError(`the connection was lost: ${error}`)),
      );
    });
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

/** Waits; a signal ends it early, as an error. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return listening(ms, signal, () => new Promise<void>(() => {})).catch(() => signal?.throwIfAborted());
}

/** Somewhere between half of it and all of it, so that not everybody comes back at once. */
export function pause({ min, max }: Retry, attempt: number): number {
  return (Math.min(max, min * 2 ** attempt) * (1 + Math.random())) / 2;
}

/** `?a=1&b=2` of what is there. */
export function query(fields: object): string {
  const given = Object.entries(fields).filter(([, value]) => value || value === 0);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
