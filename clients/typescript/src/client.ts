// The client of a server and its sessions.

import type { Fields, Usage } from "./generated/model.js";
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
  /** With `usage`: the tokens and costs of all its replies. */
  usage?: Usage;
  cost?: number;
}

/** Who the credentials belong to, and what they allow. */
export interface Me {
  tenant: string;
  subject: string | null;
  scopes: ("read" | "chat" | "publish" | "approve" | "admin")[];
  /** Whether they are limited to some sessions. */
  limited: boolean;
}

export interface Blob {
  id: string;
  /** The URL for a data block. */
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

/** The client of a server. Creating it sends nothing. */
export class Client {
  readonly #http: Http;
  readonly #connect: Connect;

  constructor(options: Options = {}) {
    const http = (this.#http = new Http(options));
    this.#connect = (options.transport ?? sse)(http);
  }

  /** An existing session. Sends nothing. */
  session(id: string): Session {
    return new Session(this.#http, this.#connect, id);
  }

  /** Creates a session, or returns the existing one with this id. */
  create(options: { id?: string; agent?: string; title?: string; metadata?: Fields } = {}): Promise<SessionInfo> {
    // With a client-side id, a lost request can be repeated.
    return this.#http.ask("POST", "/v1/sessions", { body: JSON.stringify({ id: newId(), ...options }) });
  }

  /** Sessions, latest change first. A short page may still have a next one. */
  sessions({ signal, ...options }: ListOptions = {}): Promise<{ sessions: SessionInfo[]; next_cursor: string | null }> {
    return this.#http.ask("GET", `/v1/sessions${query(options)}`, { signal });
  }

  /** Pending approvals of all sessions. */
  async approvals({
    limit,
  }: {
    limit?: number;
  } = {}): Promise<(Pending & { session_id: string; title: string | null })[]> {
    const { approvals } = await this.#http.ask<{ approvals: never }>("GET", `/v1/approvals${query({ limit })}`);
    return approvals;
  }

  /** The agents of the server. */
  agents({ usage }: { usage?: boolean } = {}): Promise<{ agents: Agent[]; default_agent: string; currency?: string }> {
    return this.#http.ask("GET", `/v1/agents${query({ usage })}`);
  }

  /** Who the credentials belong to, and what they allow. */
  me(): Promise<Me> {
    return this.#http.ask("GET", "/v1/me");
  }

  /** Retries each lost connection now instead of after its pause. */
  reconnect(): void {
    for (const end of [...this.#http.pauses]) end();
  }

  /** Uploads bytes; equal bytes are stored once. The idle timeout does not apply during the upload. */
  upload(bytes: BodyInit, mediaType = (bytes as { type?: string }).type || "application/octet-stream"): Promise<Blob> {
    return this.#http.ask("POST", "/v1/blobs", {
      body: bytes,
      headers: { "content-type": mediaType },
      silence: FOREVER,
    });
  }

  /** A ticket for one connection within a minute, for requests that cannot set headers: `?ticket=`. */
  ticket(): Promise<{ ticket: string; expires_in: number }> {
    return this.#http.ask("POST", "/v1/tickets");
  }
}

/** Creates a client: `connect({ url: "http://127.0.0.1:4747" })`. */
export function connect(options: Options = {}): Client {
  return new Client(options);
}
