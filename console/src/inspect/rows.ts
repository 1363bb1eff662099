// The rows of the timeline: neighbouring deltas of one block are one row, which opens. All of it goes on
// where it stopped when more events come.
import type { Event } from "turnwire/message";
import { isDelta, type Kind, kindOf } from "./event-kinds.ts";

/** What rows are made from: a log, or a list in a test. */
export interface Source {
  readonly events: readonly Event[];
  readonly generation: number;
}

export interface Row {
  /** The first event. */
  from: number;
  /** After the last event. */
  to: number;
  /** One event of an expanded group. */
  member: boolean;
  /** Whether the events of this row are listed below it. */
  open: boolean;
}

/** Whether two neighbours are deltas of the same block. */
export function isSameBlock(a: Event, b: Event): boolean {
  if (a.type !== b.type || !isDelta(a.type)) return false;
  const [x, y] = [a, b] as { reply_id?: string; block_id?: string; tool_call_id?: string }[];
  return x?.reply_id === y?.reply_id && x?.block_id === y?.block_id && x?.tool_call_id === y?.tool_call_id;
}

export class Rows {
  readonly #open = new Set<number>();
  #generation = -1;
  /** The first event of each group. */
  #starts: number[] = [];
  #events = 0;
  /** Twice the event, plus one if it is part of an expanded group: sorted. */
  #keys: number[] = [];
  /** How many groups have final rows; the last group may still grow. */
  #done = 0;
  #tail = 0;

  constructor(
    readonly source: Source,
    readonly filter: Kind | null = null,
  ) {}

  /** Adds new events. */
  sync(): this {
    const { events, generation } = this.source;
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#starts = [];
      this.#events = 0;
      this.#open.clear();
      this.#again();
    }
    for (; this.#events < events.length; this.#events++) {
      const [before, event] = [events[this.#events - 1], events[this.#events]];
      if (event !== undefined && (before === undefined || !isSameBlock(before, event))) this.#starts.push(this.#events);
    }
    this.#keys.length = this.#tail;
    for (let group = this.#done; group < this.#starts.length; group++) {
      this.#tail = this.#keys.length;
      this.#add(group);
    }
    this.#done = Math.max(0, this.#starts.length - 1);
    return this;
  }

  get length(): number {
    return this.#keys.length;
  }

  at(index: number): Row | null {
    const key = this.#keys[index];
    if (key === undefined) return null;
    const from = key >> 1;
    if (key & 1) return { from, to: from + 1, member: true, open: false };
    return { from, to: this.#end(this.#group(from)), member: false, open: this.#open.has(from) };
  }

  /** The row of an event, or the row before it; -1 before all. */
  find(event: number): number {
    const key = event * 2 + 1;
    let [from, to] = [0, this.#keys.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#keys[middle] ?? 0) <= key) from = middle + 1;
      else to = middle;
    }
    return from - 1;
  }

  /** Expands or collapses the row of an event. */
  toggle(event: number): void {
    const start = this.#starts[this.#group(event)];
    if (start === undefined) return;
    if (!this.#open.delete(start)) this.#open.add(start);
    this.#again();
    this.sync();
  }

  #again(): void {
    this.#keys = [];
    this.#done = 0;
    this.#tail = 0;
  }

  #add(group: number): void {
    const start = this.#starts[group];
    const event = start === undefined ? undefined : this.source.events[start];
    if (start === undefined || event === undefined) return;
    if (this.filter !== null && kindOf(event.type) !== this.filter) return;
    this.#keys.push(start * 2);
    if (!this.#open.has(start)) return;
    for (let at = start; at < this.#end(group); at++) this.#keys.push(at * 2 + 1);
  }

  #end(group: number): number {
    return this.#starts[group + 1] ?? this.#events;
  }

  /** The group of an event. */
  #group(event: number): number {
    let [from, to] = [0, this.#starts.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#starts[middle] ?? 0) <= event) from = middle + 1;
      else to = middle;
    }
    return from - 1;
  }
}
