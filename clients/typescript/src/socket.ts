// Follows many sessions over one WebSocket.

import { type Http, type Transport, TurnwireError, type WebSocketLike } from "./http.js";
import { sse } from "./sse.js";
import type { Line } from "./watch.js";

/** How many sessions a server allows per socket. */
const MAX_SESSIONS = 256;
const STATUS: Record<string, number> = { not_found: 404, unauthorized: 401, forbidden: 403, bad_request: 400 };

/**
 * Follows sessions over a WebSocket: `connect({ transport: webSocket() })`. Node 20 has none: pass one, such as that of
 * the package `ws`: `webSocket(WebSocket)`.
 */
export function webSocket(Implementation?: WebSocketLike): Transport {
  return (http) => {
    const open = new Set<Socket>();
    return async (line) => {
      // Only an SSE stream can end by itself (`until`).
      if (line.until) return sse(http)(line);
      const WebSocket = Implementation ?? (globalThis.WebSocket as WebSocketLike | undefined);
      if (!WebSocket)
        throw new TurnwireError(
          "there is no WebSocket here: give webSocket() that of the package ws",
          "no_websocket",
          501,
        );
      const socket = [...open].find((socket) => socket.takes(line.session)) ?? new Socket(http, WebSocket, open);
      return socket.watch(line);
    };
  };
}

interface Watched {
  line: Line;
  /** The id of the subscribe command; until it is answered, frames belong to an earlier subscription. */
  command: number;
  active: boolean;
  over(error: Error): void;
}

class Socket {
  #watched = new Map<string, Watched>();
  #commands = 0;
  #socket: InstanceType<WebSocketLike>;
  #ready: Promise<unknown>;
  #heartbeat: ReturnType<typeof setInterval>;

  /** `open`: subscriptions that have not ended. */
  constructor(
    http: Http,
    Implementation: WebSocketLike,
    readonly open: Set<Socket>,
  ) {
    open.add(this);
    const { href } = new URL(http.base || "/", globalThis.location?.href);
    const socket = (this.#socket = new Implementation(
      href.replace(/^http/, "ws").replace(/\/*$/, "/v1/ws?wire=turnwire"),
    ));
    this.#ready = new Promise((resolve) => (socket.onopen = resolve))
      .then(() => http.token())
      .then((token) => token && this.#send({ type: "auth", token }))
      .catch((error) => this.#end(error));
    socket.onmessage = ({ data }) => {
      try {
        this.#frame(JSON.parse(data));
      } catch (error) {
        this.#end(error as Error);
      }
    };
    socket.onerror = () => {}; // What follows is the close.
    socket.onclose = ({ code, reason }) => {
      // Expired credentials may be renewed: the next socket asks for a token again, and reports if it is invalid.
      const fatal = code === 4401 && reason !== "credentials expired";
      this.#end(
        new TurnwireError(
          reason || `the socket was closed (${code})`,
          fatal ? "unauthorized" : "lost",
          fatal ? 401 : 0,
        ),
      );
    };
    this.#heartbeat = setInterval(() => void this.#ready.then(() => this.#send({ type: "ping" })), http.silence / 3);
  }

  takes(session: string): boolean {
    return this.#watched.size < MAX_SESSIONS && !this.#watched.has(session);
  }

  watch(line: Line): Promise<void> {
    return new Promise((_, over) => {
      const { session, after, raw, signal } = line;
      const command = ++this.#commands;
      let isSubscribed = false;
      this.#watched.set(session, { line, command, active: false, over });
      signal.addEventListener("abort", () => {
        this.#watched.delete(session);
        // Silence is the same for all subscriptions.
        if (signal.reason instanceof TurnwireError) this.#end(signal.reason);
        // Before the socket is open, nothing can be sent.
        if (isSubscribed) this.#send({ type: "unsubscribe", session_id: session });
        // Kept open for a subscriber that returns at once.
        setTimeout(() => this.#watched.size || this.#end(new TurnwireError("not needed")), 1000);
      });
      const from = after === "now" ? { after } : { last_event_id: after };
      void this.#ready.then(() => {
        if (signal.aborted) return;
        isSubscribed = true;
        this.#send({ type: "subscribe", id: command, session_id: session, ...from, raw });
      });
    });
  }

  #send(command: object): void {
    if (this.open.has(this)) this.#socket.send(JSON.stringify(command));
  }

  #frame(frame: Record<string, any>): void {
    const { session_id, event_id, ...event } = frame as { session_id: string; event_id?: string; type: string };
    const { id, code, message, hint } = frame;
    const { type } = event;
    const watched = this.#watched.get(session_id);
    // The end of a subscription by the server has a code; our own has none.
    if (type === "error" || (type === "unsubscribed" && code && watched?.active)) {
      const error = new TurnwireError(message, code, STATUS[code] ?? 0, hint);
      const about = [...this.#watched.values()].find(({ command }) => command === id) ?? watched;
      if (about) about.over(error);
      else if (code === "unauthorized") this.#end(error);
    } else if (type === "pong") {
      for (const { active, line } of this.#watched.values()) if (active) line.heard();
    } else if (type === "subscribed" && watched?.command === id) {
      watched!.active = true;
      watched!.line.heard();
      watched!.line.live();
    } else if (watched?.active && ("seq" in event || type === "RESET")) {
      // The session id is on every frame; the event has it only if it is its own field.
      if (/^(REPLY_|SUBAGENT)/.test(type)) Object.assign(event, { session_id });
      watched.line.heard();
      void watched.line.event(event as never, event_id);
    }
  }

  #end(error: Error): void {
    if (!this.open.delete(this)) return;
    clearInterval(this.#heartbeat);
    for (const { over } of this.#watched.values()) over(error);
    this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket.close();
  }
}
