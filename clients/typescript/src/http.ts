// HTTP requests that are safe to repeat, and are repeated until there is an answer.

import type { Connect } from "./watch.js";

/** Delay before a retry in milliseconds: doubled each time, from `min` to `max`. */
export interface Retry {
  min: number;
  max: number;
}

export interface Options {
  /** The server's URL; default: the origin of the page. A path in it is kept as a prefix. */
  url?: string;
  /** A bearer token, or a function that returns one; called before each request. */
  token?: string | (() => string | Promise<string>);
  /** A replacement for `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** How sessions are followed: `webSocket()` carries many on one connection. Default: server-sent events. */
  transport?: Transport;
  /** Delay before a lost connection is opened again. Default: from 250 ms to 15 s, with jitter. */
  retry?: Partial<Retry>;
  /** After how many milliseconds of silence a connection or request counts as lost. Default: 45 s. The server sends something every 15 s. */
  silence?: number;
  /** What this client calls itself; decisions are logged with it. */
  name?: string;
  /** For how many milliseconds a request without an answer is repeated. Default: 30 s. */
  patience?: number;
}

/** A transport for following sessions; `webSocket()` makes one. */
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

/** An error of the server or of the connection to it. */
export class TurnwireError extends Error {
  /** For programs: `busy`, `not_found`, `already_answered`, …; `lost` if there was no answer. */
  declare readonly type: string;
  /** The HTTP status; 0 if there was no answer. */
  declare readonly status: number;
  /** What to do about it. */
  declare readonly hint: string | undefined;

  constructor(message: string, type = "lost", status = 0, hint?: string) {
    super(message);
    Object.assign(this, { name: "TurnwireError", type, status, hint });
  }

  /** Whether the same request may work later: the outcome is unknown, or the failure is temporary. */
  get passes(): boolean {
    return /^(0|429|50[0234])$/.test(`${this.status}`);
  }
}

export interface Ask {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  accept?: string;
  /** Overrides the allowed silence. */
  silence?: number;
}

/** The longest delay of a timer. */
export const FOREVER = 2 ** 31 - 1;

export class Http {
  readonly base: string;
  readonly retry: Retry;
  readonly silence: number;
  /** Each ends the pause of a lost connection. */
  readonly pauses = new Set<() => void>();

  constructor(readonly options: Options) {
    this.base = (options.url ?? "").replace(/\/+$/, "");
    this.retry = { min: 250, max: 15_000, ...options.retry };
    this.silence = options.silence ?? 45_000;
  }

  async token(): Promise<string | undefined> {
    const { token } = this.options;
    return typeof token === "function" ? token() : token;
  }

  /** One request; a response that is not a success is an error. */
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
      message = `the server responded with status ${status}`,
      hint,
    } = (await response.json().catch(() => {}))?.error ?? {};
    throw new TurnwireError(message, type, status, hint);
  }

  /** A request, repeated while there is no answer, and its JSON. */
  async ask<T>(method: string, path: string, ask: Ask = {}, read: (text: string) => T = readJson): Promise<T> {
    const { silence = this.silence, signal } = ask;
    const end = Date.now() + (this.options.patience ?? 30_000);
    for (let attempt = 0; ; attempt++) {
      try {
        return await withSilenceTimeout(silence, signal, async (signal, heard) => {
          let text = "";
          for await (const piece of pieces(await this.once(method, path, { ...ask, signal }), heard)) text += piece;
          return read(text);
        });
      } catch (error) {
        // The first delete may have worked, and only its response was lost.
        const { status, passes } = error as TurnwireError;
        if (attempt && method === "DELETE" && status === 404) return undefined as T;
        if (!passes || Date.now() >= end) throw error;
        await sleep(retryDelay(this.retry, attempt), signal);
      }
    }
  }
}

const readJson = (text: string) => (text ? JSON.parse(text) : undefined);

/** The text of a response, as it arrives. */
export async function* pieces({ body }: Response, heard: () => void): AsyncGenerator<string> {
  const reader = body?.getReader();
  const decoder = new TextDecoder();
  for (let next: ReadableStreamReadResult<Uint8Array> | undefined; (next = await reader?.read()) && !next.done; ) {
    heard();
    yield decoder.decode(next.value, { stream: true });
  }
}

/** An abort controller that an outer signal also aborts. */
export function linkedController(outer: AbortSignal | undefined): AbortController {
  const stop = new AbortController();
  const end = () => stop.abort(outer!.reason);
  if (outer?.aborted) end();
  outer?.addEventListener("abort", end, { signal: stop.signal });
  return stop;
}

/**
 * Runs work with an idle timeout: `heard` resets it. After `ms` of silence the work counts as lost, whether or not it
 * looks at its signal.
 */
export async function withSilenceTimeout<T>(
  ms: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal, heard: (ms?: number) => void) => Promise<T>,
): Promise<T> {
  const stop = linkedController(outer);
  const { signal } = stop;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = (next = ms) => {
    clearTimeout(timer);
    if (!signal.aborted) timer = setTimeout(() => stop.abort(new TurnwireError(`no data for ${ms} ms`)), next);
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

/** Waits; the signal ends it early with an error. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return withSilenceTimeout(ms, signal, () => new Promise<void>(() => {})).catch(() => signal?.throwIfAborted());
}

/** A random delay between half of it and all of it, so that clients do not return all at once. */
export function retryDelay({ min, max }: Retry, attempt: number): number {
  return (Math.min(max, min * 2 ** attempt) * (1 + Math.random())) / 2;
}

/** `?a=1&b=2` of the defined values. */
export function query(fields: object): string {
  const given = Object.entries(fields).filter(([, value]) => value || value === 0);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}
