// What a client of a protocol gets: the frames of its stream as they are sent, and the events that they
// come from.
import { useEffect, useReducer, useState } from "react";
import { TurnwireError } from "turnwire";
import { client } from "../client.ts";

export interface Frame {
  /** The name of the event, where the protocol has names. */
  event: string;
  data: string;
}

/** The frames that one event, or several merged ones, became. */
export interface Step {
  /** The place of the event before the first. */
  after: number;
  /** The place of the last event; 0 while frames come whose event is not told yet. */
  seq: number;
  frames: Frame[];
}

/** Reads server-sent events, and puts together what belongs together: only the last frame of an event has an id. */
export class Steps {
  list: Step[] = [];
  #rest = "";
  #open: Step | null = null;

  feed(text: string): void {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) this.#block(block);
  }

  #block(block: string): void {
    let [event, id] = ["", ""];
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const [, field, value] = /^(\w+): ?(.*)$/s.exec(line) ?? [];
      if (field === "data") data.push(value ?? "");
      else if (field === "event") event = value ?? "";
      else if (field === "id") id = value ?? "";
    }
    if (data.length === 0) return;
    if (this.#open === null) {
      this.#open = { after: this.list.at(-1)?.seq ?? 0, seq: 0, frames: [] };
      this.list.push(this.#open);
    }
    this.#open.frames.push({ event, data: data.join("\n") });
    const seq = Number(/(\d+)$/.exec(id)?.[1] ?? 0);
    if (seq === 0) return;
    this.#open.seq = seq;
    this.#open = null;
  }

  /** The step that an event is in, or the one before it where it became nothing. */
  find(seq: number): number {
    let [from, to] = [0, this.list.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      const step = this.list[middle];
      if (step !== undefined && step.after < seq) from = middle + 1;
      else to = middle;
    }
    return from - 1;
  }
}

/** What a frame is, in a word: protocols put it in different places. */
export function nameOf({ event, data }: Frame): string {
  if (event !== "") return event;
  try {
    const json = JSON.parse(data) as { type?: unknown; object?: unknown; error?: unknown };
    if (typeof json.type === "string") return json.type;
    if (typeof json.object === "string") return json.object;
    return json.error === undefined ? "data" : "error";
  } catch {
    return data;
  }
}

export interface Wired {
  steps: Steps;
  live: boolean;
  error: Error | null;
}

/** The frames of a session on a wire. After a cut all of it is asked for again. */
export function useFrames(session: string, wire: string, raw: boolean): Wired {
  const [state, setState] = useState<Wired>({ steps: new Steps(), live: false, error: null });
  const [, render] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const stop = new AbortController();
    const { signal } = stop;
    let scheduled = 0;
    const read = async () => {
      const query = new URLSearchParams({ wire, ...(raw && { raw: "true" }) });
      const path = `/v1/sessions/${encodeURIComponent(session)}/events?${query}`;
      const response = await client.session(session).http.once("GET", path, { accept: "text/event-stream", signal });
      const steps = new Steps();
      setState({ steps, live: true, error: null });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = (await reader?.read()) ?? { done: true, value: "" };
        if (done) return;
        steps.feed(value);
        if (scheduled === 0)
          scheduled = requestAnimationFrame(() => {
            scheduled = 0;
            render();
          });
      }
    };
    const keep = async () => {
      setState({ steps: new Steps(), live: false, error: null });
      for (;;) {
        try {
          await read();
        } catch (error) {
          if (signal.aborted) return;
          const fatal = error instanceof TurnwireError && !error.passes;
          setState((before) => ({ ...before, live: false, error: fatal ? error : null }));
          if (fatal) return;
        }
        await new Promise((resolve) => setTimeout(resolve, 1000));
        if (signal.aborted) return;
      }
    };
    void keep();
    return () => {
      stop.abort();
      cancelAnimationFrame(scheduled);
    };
  }, [session, wire, raw]);
  return state;
}
