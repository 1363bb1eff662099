// What a client of a protocol gets: the frames of its stream as they are sent, and the events that they
// come from.
import { useEffect, useReducer, useState } from "react";
import { TurnwireError } from "turnwire";
import { client } from "../client.ts";

export interface Frame {
  /** The name of the SSE event, if the protocol has names. */
  event: string;
  data: string;
}

/** The frames of one event, or of several merged events. */
export interface Step {
  /** The seq before the first event. */
  after: number;
  /** The seq of the last event; 0 until it is known. */
  seq: number;
  frames: Frame[];
}

/** Reads server-sent events and groups the frames of one event: only the last one has an id. */
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

  /** The step of an event, or the one before it if the event has no frames. */
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

/** The type of a frame: each protocol has it elsewhere. */
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

/** The frames of a session on a wire. After a disconnect all of them are requested again. */
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
