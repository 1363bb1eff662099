// Watching over server-sent events, read with `fetch`: it can send headers, and works everywhere.

import type { Event } from "./generated/model.js";
import { query, TurnwireError, type Http } from "./http.js";
import type { Connect } from "./watch.js";

export function sse(http: Http): Connect {
  return async ({ session, after, raw, until, signal, live, event }) => {
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const lost = new TurnwireError(`nothing came for ${http.silence} ms`);
    const heard = () => (clearTimeout(timer), (timer = setTimeout(() => silence.abort(lost), http.silence)));
    const abort = () => silence.abort(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    heard();
    try {
      const path = `/v1/sessions/${encodeURIComponent(session)}/events${query({ after, raw, until })}`;
      const ask = { accept: "text/event-stream", signal: silence.signal };
      const response = await http.once("GET", path, ask);
      // Only this says that there is nothing more to come: anything else may be a cut.
      if (response.status === 204) return;
      live();
      heard();
      const reader = response.body!.getReader();
      const parser = new Parser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new TurnwireError("the stream was closed");
        heard();
        for (const { data, id } of parser.feed(value)) {
          const wait = event(JSON.parse(data) as Event, id);
          if (wait) {
            clearTimeout(timer!);
            await wait;
            heard();
          }
        }
      }
    } catch (error) {
      if (silence.signal.aborted) throw silence.signal.reason;
      if (error instanceof TurnwireError) throw error;
      throw new TurnwireError("the connection was lost", "lost", 0, undefined, error);
    } finally {
      clearTimeout(timer!);
      signal.removeEventListener("abort", abort);
      silence.abort();
    }
  };
}

interface Frame {
  data: string;
  id: string | undefined;
}

/** Server-sent events out of bytes that were cut anywhere. A frame without its empty line never came. */
export class Parser {
  #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  #id: string | undefined;

  *feed(bytes: Uint8Array): Generator<Frame> {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    let from = 0;
    for (let end; (end = text.indexOf("\n", from)) >= 0; from = end + 1) {
      const line = text.slice(from, text[end - 1] === "\r" && end > from ? end - 1 : end);
      if (line === "") {
        if (this.#data.length) yield { data: this.#data.join("\n"), id: this.#id };
        this.#data = [];
        this.#id = undefined;
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      } else if (line.startsWith("id:")) {
        this.#id = line.slice(line[3] === " " ? 4 : 3);
      }
    }
    this.#rest = text.slice(from);
  }
}
