// Requests that are safe to send again, and are, until there is an answer.

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
  /** How sessions are watched. A WebSocket carries many on one connection; the default is `"sse"`. */
  transport?: "sse" | "websocket";
  /** Another `WebSocket`, such as that of the package `ws`: Node 20 has none. */
  WebSocket?: WebSocketLike;
  /** How fast a lost connection is made again; the default is from 250 ms to 15 s, each with jitter. */
  retry?: Partial<Retry>;
  /** After how many milliseconds without a sound a connection counts as lost: 45 s. A server says something every 15 s. */
  silence?: number;
  /** For how many milliseconds a request is sent again while there is no answer: 30 s. */
  patience?: number;
}

export type WebSocketLike = new (url: string) => {
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
  readonly type: string;
  /** The HTTP status; 0 where there was no answer. */
  readonly status: number;
  /** What to do about it. */
  readonly hint: string | undefined;

  constructor(message: string, type = "lost", status = 0, hint?: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "TurnwireError";
    this.type = type;
    this.status = status;
    this.hint = hint;
  }

  /** Whether the same may work later: nobody knows what happened, or it does not work now. */
  get passes(): boolean {
    return !this.status || this.status === 429 || (this.status >= 500 && this.status <= 504 && this.status !== 501);
  }
}

export interface Ask {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  accept?: string;
}

export const now = (): number => Date.now();

export class Http {
  readonly base: string;
  readonly retry: Retry;
  readonly silence: number;
  readonly #patience: number;

  constructor(readonly options: Options) {
    this.base = (options.url ?? "").replace(/\/+$/, "");
    this.retry = { min: 250, max: 15_000, ...options.retry };
    this.silence = options.silence ?? 45_000;
    this.#patience = options.patience ?? 30_000;
  }

  async token(): Promise<string | undefined> {
    const { token } = this.options;
    return typeof token === "function" ? token() : token;
  }

  /** One request; an answer that is no success is an error. */
  async once(method: string, path: string, ask: Ask = {}): Promise<Response> {
    const token = await this.token();
    const headers: Record<string, string> = { accept: ask.accept ?? "application/json", ...ask.headers };
    if (token) headers["authorization"] = `Bearer ${token}`;
    const { fetch = globalThis.fetch } = this.options;
    const init: RequestInit = { method, headers, signal: ask.signal ?? null };
    if (ask.body !== undefined) init.body = ask.body as BodyInit;
    let response;
    try {
      response = await fetch(this.base + path, init);
    } catch (error) {
      ask.signal?.throwIfAborted();
      throw new TurnwireError(`cannot reach ${this.base || "the server"}`, "lost", 0, undefined, error);
    }
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    const { type = "unknown", message = `it answered with status ${response.status}`, hint } = answer?.error ?? {};
    throw new TurnwireError(message, type, response.status, hint);
  }

  /** A request, sent again while there is no answer, and its JSON. */
  async ask<T>(method: string, path: string, ask: Ask = {}): Promise<T> {
    return (await this.#again(method, path, ask, async (response) => {
      const text = await response.text();
      return text ? JSON.parse(text) : undefined;
    })) as T;
  }

  text(path: string, ask: Ask): Promise<string> {
    return this.#again("GET", path, ask, (response) => response.text());
  }

  async #again<T>(method: string, path: string, ask: Ask, read: (response: Response) => Promise<T>): Promise<T> {
    const end = now() + this.#patience;
    for (let attempt = 0; ; attempt++) {
      try {
        const response = await this.once(method, path, ask);
        return await read(response).catch((error) => {
          ask.signal?.throwIfAborted();
          throw new TurnwireError("the answer broke off", "lost", 0, undefined, error);
        });
      } catch (error) {
        // The first delete may have worked, only its answer was lost.
        if (attempt && method === "DELETE" && error instanceof TurnwireError && error.status === 404) {
          return undefined as T;
        }
        if (!(error instanceof TurnwireError) || !error.passes || now() >= end) throw error;
        await sleep(pause(this.retry, attempt), ask.signal);
      }
    }
  }
}

/** Somewhere between half of it and all of it, so that not everybody comes back at once. */
export function pause({ min, max }: Retry, attempt: number): number {
  return Math.min(max, min * 2 ** attempt) * (0.5 + Math.random() / 2);
}

/** Waits; a signal ends it early, as an error. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = () => (clearTimeout(timer), reject(signal!.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", done), resolve()), ms);
    if (signal?.aborted) done();
    signal?.addEventListener("abort", done, { once: true });
  });
}

/** `?a=1&b=2` of what is there. */
export function query(fields: object): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== false);
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : "";
}
