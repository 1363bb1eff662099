// Watching over a WebSocket: many sessions on one connection.

import { EVENTS, type Event } from "./generated/model.js";
import { TurnwireError, type Http, type WebSocketLike } from "./http.js";
import type { Connect, Line } from "./watch.js";

/** As many sessions as a server lets one socket watch. */
const MOST = 256;
const STATUS: Record<string, number> = { not_found: 404, unauthorized: 401, forbidden: 403, bad_request: 400 };

export function sockets(http: Http): Connect {
  const open = new Set<Socket>();
  return (line) => {
    let socket = [...open].find((socket) => socket.takes(line.session));
    if (!socket) open.add((socket = new Socket(http, (closed) => open.delete(closed))));
    return socket.watch(line);
  };
}

interface Watched {
  line: Line;
  /** The id of the command that subscribed; until it is answered, frames are of somebody before. */
  command: number;
  active: boolean;
  over(error: Error): void;
  waits: Promise<void> | undefined;
}

class Socket {
  #watched = new Map<string, Watched>();
  #socket: InstanceType<WebSocketLike>;
  #ready: Promise<void>;
  #commands = 0;
  #heard = Date.now();
  #beat: ReturnType<typeof setInterval>;
  #over = false;
  #idle: ReturnType<typeof setTimeout> | undefined;

  constructor(
    http: Http,
    readonly closed: (socket: Socket) => void,
  ) {
    const Implementation = http.options.WebSocket ?? (globalThis.WebSocket as WebSocketLike | undefined);
    if (!Implementation) {
      throw new TurnwireError("there is no WebSocket here", "no_websocket", 400, "give `connect` one, such as that of the package ws, or use the transport sse");
    }
    const base = new URL(http.base || "/", globalThis.location?.href);
    const url = `${base.href.replace(/^http/, "ws").replace(/\/+$/, "")}/v1/ws?wire=turnwire`;
    const socket = (this.#socket = new Implementation(url));
    this.#ready = new Promise((resolve) => {
      socket.onopen = async () => {
        try {
          const token = await http.token();
          if (token) this.#send({ type: "auth", token });
          resolve();
        } catch (error) {
          this.#end(error as Error);
        }
      };
    });
    socket.onmessage = ({ data }) => {
      this.#heard = Date.now();
      this.#frame(JSON.parse(String(data)));
    };
    socket.onerror = () => {}; // What follows is the close.
    socket.onclose = ({ code, reason }) => {
      const fatal = code === 4401;
      this.#end(new TurnwireError(reason || `the socket was closed (${code})`, fatal ? "unauthorized" : "lost", fatal ? 401 : 0));
    };
    this.#beat = setInterval(() => {
      if (Date.now() - this.#heard > http.silence) this.#end(new TurnwireError(`nothing came for ${http.silence} ms`));
      else void this.#ready.then(() => this.#send({ type: "ping" }));
    }, http.silence / 3);
  }

  takes(session: string): boolean {
    return !this.#over && this.#watched.size < MOST && !this.#watched.has(session);
  }

  watch(line: Line): Promise<void> {
    return new Promise((_, reject) => {
      const { session, after, raw, signal } = line;
      const command = ++this.#commands;
      const watched: Watched = { line, command, active: false, over: leave, waits: undefined };
      const self = this;
      function leave(error: Error): void {
        signal.removeEventListener("abort", abort);
        if (self.#watched.get(session) === watched) self.#watched.delete(session);
        reject(error);
        clearTimeout(self.#idle);
        // Whoever comes back at once finds it still there.
        if (!self.#watched.size) self.#idle = setTimeout(() => self.#watched.size || self.#end(new TurnwireError("not needed")), 1000);
      }
      function abort(): void {
        if (!self.#over && watched.active) self.#send({ type: "unsubscribe", session_id: session });
        leave(signal.reason);
      }
      if (signal.aborted) return reject(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      this.#watched.set(session, watched);
      const from = after === "now" ? { after } : { last_event_id: after };
      void this.#ready.then(() => {
        if (this.#watched.get(session) !== watched) return;
        this.#send({ type: "subscribe", id: command, session_id: session, ...from, raw });
      });
    });
  }

  #send(command: object): void {
    if (!this.#over) this.#socket.send(JSON.stringify(command));
  }

  #frame(frame: Record<string, any>): void {
    const { session_id, event_id, ...event } = frame as { session_id?: string; event_id?: string; type: string };
    const watched = this.#watched.get(session_id ?? "");
    // A subscription that the server ended has a code; our own end has none.
    if (frame["type"] === "error" || (frame["type"] === "unsubscribed" && frame["code"] && watched?.active)) {
      const { code, message, hint, id } = frame;
      const error = new TurnwireError(message, code, STATUS[code] ?? 0, hint);
      const about = [...this.#watched.values()].find(({ command }) => command === id) ?? watched;
      if (about) about.over(error);
      else if (code === "unauthorized") this.#end(error);
    } else if (frame["type"] === "subscribed") {
      if (watched?.command !== frame["id"]) return;
      watched!.active = true;
      watched!.line.live();
    } else if (watched?.active && (frame["seq"] !== undefined || frame["type"] === "RESET")) {
      // The session stands on every frame; an event has it only where it is its own.
      if (EVENTS[event.type]?.["session_id"]) Object.assign(event, { session_id });
      void watched.line.event(event as Event, event_id);
    }
  }

  #end(error: Error): void {
    if (this.#over) return;
    this.#over = true;
    clearInterval(this.#beat);
    clearTimeout(this.#idle);
    this.closed(this);
    for (const watched of [...this.#watched.values()]) watched.over(error);
    this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket.close();
  }
}
