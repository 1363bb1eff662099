// `turnwire`: a server, its sessions, and what happens in them.

import type { Fields } from "./generated/model.js";
import { FOREVER, Http, type Options, query } from "./http.js";
import { newId } from "./id.js";
import { type Pending, Session, type SessionInfo, type Status } from "./session.js";
import { sse } from "./sse.js";
import type { Connect } from "./watch.js";

export { type Options, type Retry, type Transport, TurnwireError, type WebSocketLike } from "./http.js";
export { newId } from "./id.js";
export type * from "./session.js";
export { Session } from "./session.js";
export { webSocket } from "./socket.js";
export { sse } from "./sse.js";
export type { AgentMessage, Approval, SessionState, ViewOptions } from "./view.js";
export { type Connection, Watch, type Watching } from "./watch.js";

export interface Agent {
  name: string;
  about: string;
  model: string;
  default: boolean;
  price_per_million?: unknown;
}

export interface Blob {
  id: string;
  /** May stand in a data block. */
  url: string;
  size: number;
  media_type: string;
}

export interface ListOptions {
  /** Searches titles and messages. */
  q?: string;
  status?: Status;
  cursor?: string;
  limit?: number;
  signal?: AbortSignal;
}

/** A server. Nothing is sent before something is asked. */
export class Client {
  readonly #http: Http;
  readonly #connect: Connect;

  constructor(options: Options = {}) {
    const http = (this.#http = new Http(options));
    this.#connect = (options.transport ?? sse)(http);
  }

  /** A session that is there. Nothing is asked yet. */
  session(id: string): Session {
    return new Session(this.#http, this.#connect, id);
  }

  /** Makes a session, or finds the one with this id. */
  create(options: { id?: string; agent?: string; title?: string; metadata?: Fields } = {}): Promise<SessionInfo> {
    // With an id of our own, a request that was lost can be sent again.
    return this.#http.ask("POST", "/v1/sessions", { body: JSON.stringify({ id: newId(), ...options }) });
  }

  /** The sessions, the latest change first. A page may be short and still have a next one. */
  sessions({ signal, ...options }: ListOptions = {}): Promise<{ sessions: SessionInfo[]; next_cursor: string | null }> {
    return this.#http.ask("GET", `/v1/sessions${query(options)}`, { signal });
  }

  /** What waits for a person, over all sessions. */
  async approvals({
    limit,
  }: {
    limit?: number;
  } = {}): Promise<(Pending & { session_id: string; title: string | null })[]> {
    const { approvals } = await this.#http.ask<{ approvals: never }>("GET", `/v1/approvals${query({ limit })}`);
    return approvals;
  }

  /** What can be talked to. */
  agents(): Promise<{ agents: Agent[]; default_agent: string }> {
    return this.#http.ask("GET", "/v1/agents");
  }

  /** Stores bytes; the same ones only once. Nothing is heard until they are all there, however long that takes. */
  upload(bytes: BodyInit, mediaType = (bytes as { type?: string }).type || "application/octet-stream"): Promise<Blob> {
    return this.#http.ask("POST", "/v1/blobs", {
      body: bytes,
      headers: { "content-type": mediaType },
      silence: FOREVER,
    });
  }

  /** Lets in once, within a minute, where no header can be set: `?ticket=`. */
  ticket(): Promise<{ ticket: string; expires_in: number }> {
    return this.#http.ask("POST", "/v1/tickets");
  }
}

/** Talks to a server: `connect({ url: "http://127.0.0.1:4747" })`. */
export function connect(options: Options = {}): Client {
  return new Client(options);
}
