// Follows a session over server-sent events with `fetch`: it can send headers and works everywhere.

import { type Http, pieces, query, TurnwireError } from "./http.js";
import type { Connect } from "./watch.js";

export function sse(http: Http): Connect {
  return async ({ session, after, raw, until, signal, heard, live, event }) => {
    const path = `/v1/sessions/${encodeURIComponent(session)}/events${query({ after, raw, until })}`;
    const response = await http.once("GET", path, { accept: "text/event-stream", signal });
    // Only this event says that the stream is complete; any other end may be a disconnect.
    if (response.status === 204) return;
    live();
    const parser = new Parser();
    for await (const piece of pieces(response, heard)) {
      for (const { data, id } of parser.feed(piece)) await event(JSON.parse(data), id);
    }
    throw new TurnwireError("the stream was closed");
  };
}

interface Frame {
  data: string;
  id: string | undefined;
}

/** Parses server-sent events from text in pieces. A frame without its empty line is dropped. */
export class Parser {
  #rest = "";
  #data: string[] = [];
  #id: string | undefined;

  *feed(piece: string): Generator<Frame> {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop()!;
    for (const line of lines) {
      const [, field, value = ""] = line.match(/^(data|id): ?([^\r]*)/) ?? [];
      if (field === "data") this.#data.push(value);
      if (field === "id") this.#id = value;
      if (!line || line === "\r") {
        if (this.#data.length) yield { data: this.#data.join("\n"), id: this.#id };
        this.#data = [];
        this.#id = undefined;
      }
    }
  }
}
