// The fold: events in, one message out. The same as `turnwire-core`'s, event by event.

import { append, checkEnd, close, open, text, type Open } from "./base64.js";
import { bad, type FoldError } from "./error.js";
import {
  EVENTS,
  type ContentBlock,
  type DataBlock,
  type Part,
  type Payload,
  type Role,
  type Source,
  type TextBlock,
  type ThinkingBlock,
  type ToolCall,
  type ToolResult,
  type Usage,
} from "./generated/model.js";
import { checkRole, isObject, read, type Json } from "./read.js";

/** What became of an event. */
export type Outcome = "applied" | "repeated" | "ignored" | "skipped";

/** Anything that has a type: an event of ours, or one that a later version knows. */
export interface EventLike {
  type: string;
}

/** Where the fold of a message stands. Stored beside the message, it lets the fold go on later. */
export interface Cursor {
  started?: boolean;
  whole?: boolean;
  seq?: number;
  ids?: string[];
}

/** What the fold changes. */
export interface Target {
  id: string;
  name: string;
  role: Role;
  content: ContentBlock[];
  metadata: Json;
  created_at: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: string | null;
  structured_output: unknown;
  error: unknown;
}

/** An event as it is looked at here: it has been checked. */
type Checked = Record<string, any> & EventLike;

/** Blocks that share a name space of ids. */
type Family = "text" | "thinking" | "data" | "hint" | "tool_call" | "tool_result" | "other";

const FAMILIES: Record<string, Family> = {
  text: "text",
  thinking: "thinking",
  data: "data",
  image: "data",
  audio: "data",
  video: "data",
  hint: "hint",
  tool_call: "tool_call",
  tool_result: "tool_result",
};
const familyOf = (block: { type: string }): Family =>
  (Object.hasOwn(FAMILIES, block.type) && FAMILIES[block.type]) || "other";

const COMMON = ["type", "id", "created_at", "finished_at"];
const COUNTS = ["input_tokens", "output_tokens", "cache_input_tokens", "cache_creation_input_tokens"] as const;
/** Beside replies: these change no message's content, and never fail a stream. */
const BESIDE = /^(?:CUSTOM|MESSAGE|SUPERSEDE|RESET)$/;

export const isPartOfReply = (type: string): boolean => Object.hasOwn(EVENTS, type) && !BESIDE.test(type);

/** The id of a block, where it is a plain text. */
const idOf = (block: { id?: unknown }): string => (typeof block.id === "string" ? block.id : "");

/** An event whose fields are what they have to be, with its defaults. */
export function checkEvent(event: EventLike): Checked {
  const { type } = event;
  if (!isObject(event) || typeof type !== "string") throw bad("NotAnEvent", "an event has a `type`");
  const shape = Object.hasOwn(EVENTS, type) && EVENTS[type];
  if (!shape) return event as Checked;
  const checked = read({ ...shape, id: "-s", created_at: "-s", reply_id: "-s", metadata: "-o" }, event, type) as Checked;
  checkPlaces(checked);
  if ("data" in shape) {
    if ((checked.data ?? null) !== null && (checked.url ?? null) !== null) {
      throw bad("NotAnEvent", "both `data` and `url`; there can be only one of them");
    }
    if (typeof (checked.data ?? checked.url) !== "string") throw bad("NotAnEvent", `${type} has no \`data\` or \`url\``);
  }
  const free = !isPartOfReply(type) || /^(?:REQUEST_STOP|ALL_TOOLS_DENIED|SUBAGENT_EXPOSED)$/.test(type);
  const mayBeEmpty = free || type === "REPLY_END" || type === "USER_INTERRUPT";
  if (checked.reply_id === undefined ? !free : !checked.reply_id && !mayBeEmpty) {
    throw bad("NotAnEvent", `${type} has no \`reply_id\``);
  }
  return checked;
}

function checkPlaces(event: Checked): void {
  for (const place of [event.seq, event.seq_from]) {
    if (place != null && !(Number.isInteger(place) && place > 0)) throw bad("NotAnEvent", "a seq counts from 1");
  }
}

/** Which events were applied: all up to a seq, and those without a seq by their ids. */
export class Seen {
  seq = 0;
  ids = new Set<string>();

  /** Whether it came before; otherwise it is remembered. */
  remember({ seq, seq_from, id }: Checked): boolean {
    if (seq == null) {
      if (!id) return false;
      if (this.ids.has(id)) return true;
      this.ids.add(id);
      return false;
    }
    if (seq <= this.seq) return true;
    if (seq_from != null && seq_from <= this.seq) {
      throw bad("Overlap", `the merged event ${seq_from} to ${seq} was applied in part, up to ${this.seq}`);
    }
    // Where a stream changes from ids to seqs, what came with an id may come again.
    if (this.ids.size && this.ids.has(id)) return true;
    this.seq = seq;
    return false;
  }

  /** The event was refused after all. */
  forget(event: Checked, before: number): void {
    this.seq = before;
    if (event.seq == null) this.ids.delete(event.id);
  }
}

export class Fold {
  readonly seen = new Seen();
  started = false;
  /** The message came whole: it is no reply, and takes no events. */
  whole = false;
  /** What was wrong with the last event, when tolerant. */
  problem: FoldError | undefined;
  /** Blocks that have changed since they were last shown. */
  readonly dirty = new Set<ContentBlock>();
  changed = true;

  #tolerant = false;
  #index: Record<Family, Map<string, number>> | undefined;
  /** The data parts of results, by the result. */
  #parts = new WeakMap<ToolResult, Map<string, DataBlock>>();
  #open = new WeakMap<Source, Open>();
  #last: ContentBlock | undefined;

  constructor(readonly msg: Target) {}

  /** What came to this message. `tolerant`: apply what can be applied, and say in `problem` what could not. */
  push(event: EventLike, tolerant: boolean): Outcome {
    this.problem = undefined;
    this.#tolerant = tolerant;
    const { seen } = this;
    const before = seen.seq;
    let checked = event as Checked;
    try {
      const { type } = checked;
      if (type === "TEXT_BLOCK_DELTA" || type === "THINKING_BLOCK_DELTA") {
        if (typeof checked.delta !== "string" || typeof checked.block_id !== "string") checkEvent(event);
        if (checked.seq !== undefined) checkPlaces(checked);
      } else {
        checked = checkEvent(event);
      }
      if (seen.remember(checked)) return "repeated";
    } catch (error) {
      return this.#refuse(error);
    }
    try {
      if (this.whole) throw taken(this.msg.id);
      if (this.msg.finished_at !== null) {
        throw bad("AlreadyEnded", `${event.type} comes after the end of reply ${this.msg.id}`);
      }
      this.#apply(checked);
      if (!this.msg.created_at && checked.created_at) this.msg.created_at = checked.created_at;
      this.changed = true;
      return "applied";
    } catch (error) {
      seen.forget(checked, before);
      return this.#refuse(error);
    }
  }

  #refuse(error: unknown): Outcome {
    this.problem = error as FoldError;
    if (!this.#tolerant) throw error;
    return "skipped";
  }

  /** What can be applied although it is late. */
  #check(problem: FoldError | undefined): void {
    if (!problem) return;
    if (!this.#tolerant) throw problem;
    this.problem ??= problem;
  }

  #apply(event: Checked): void {
    const { msg } = this;
    const at: string = event.created_at ?? "";
    const id: string = event.tool_call_id ?? event.block_id;
    switch (event.type) {
      case "TEXT_BLOCK_DELTA": {
        const block = this.#late<TextBlock>("text", id);
        block.text += event.delta;
        break;
      }
      case "THINKING_BLOCK_DELTA": {
        const block = this.#late<ThinkingBlock>("thinking", id);
        block.thinking += event.delta;
        break;
      }
      case "TOOL_CALL_DELTA": {
        const call = this.#late<ToolCall>("tool_call", id);
        call.input += event.delta;
        break;
      }
      case "TOOL_RESULT_TEXT_DELTA": {
        const result = this.#late<ToolResult>("tool_result", id);
        const parts = partsOf(result);
        const last = parts.at(-1);
        if (last?.type === "text") last.text += event.delta;
        else parts.push({ type: "text", text: event.delta, id: `${id}-${parts.length}`, ...began(at), finished_at: null });
        break;
      }
      case "REPLY_START":
        // The first start names who replies; later ones only say that the reply goes on.
        if (this.started) break;
        for (const block of msg.content) checkRole(event.role, block.type, idOf(block));
        if (event.name) msg.name = event.name;
        msg.role = event.role;
        this.started = true;
        break;
      case "REPLY_END":
        this.#replyEnd(event, at);
        break;
      case "MODEL_CALL_END": {
        msg.usage ??= { input_tokens: 0, output_tokens: 0, cache_input_tokens: 0, cache_creation_input_tokens: 0 };
        msg.usage = { ...msg.usage };
        for (const count of COUNTS) msg.usage[count] += event[count];
        this.#discard(event.discard ?? []);
        break;
      }
      case "TEXT_BLOCK_START":
        this.#start({ type: "text", text: "", id, ...began(at), finished_at: null });
        break;
      case "THINKING_BLOCK_START":
        this.#start({ type: "thinking", thinking: "", id, ...began(at), finished_at: null });
        break;
      case "DATA_BLOCK_START": {
        const source: Source = { type: "base64", data: "", ...kind(event.media_type) };
        this.#start({ type: "data", id, source, name: event.name, ...began(at), finished_at: null });
        break;
      }
      case "TOOL_CALL_START": {
        const name = event.tool_call_name;
        const more = { input: "", state: "pending", suggested_rules: [], ...began(at), finished_at: null };
        this.#start({ type: "tool_call", id, name, ...more });
        break;
      }
      case "TOOL_RESULT_START": {
        const name = event.tool_call_name;
        const more = { output: [], state: "running", metadata: {}, ...began(at), finished_at: null };
        this.#start({ type: "tool_result", id, name, ...more });
        break;
      }
      case "HINT_BLOCK": {
        const { hint, source } = event;
        this.#start({ type: "hint", hint, id, source, ...began(at), finished_at: at });
        break;
      }
      case "BLOCK": {
        const block = event.block as ContentBlock;
        checkRole(msg.role, block.type, idOf(block));
        if (idOf(block)) this.#start(block);
        else this.#push(block);
        break;
      }
      case "DATA_BLOCK_DELTA": {
        const block = this.#find<DataBlock>("data", id);
        const late = ended(block, "data", id);
        this.#check(late);
        block.source = this.#chunk(block.source, event, !!late);
        break;
      }
      case "TOOL_RESULT_DATA_DELTA":
        this.#resultData(event, id, at);
        break;
      case "TEXT_BLOCK_END": {
        const block = this.#ending<TextBlock>("text", id);
        if (event.text !== null) block.text = event.text;
        finish(block, event, at, "text");
        break;
      }
      case "THINKING_BLOCK_END":
        finish(this.#ending("thinking", id), event, at, "thinking");
        break;
      case "DATA_BLOCK_END": {
        const block = this.#ending<DataBlock>("data", id);
        this.#check(this.#unfinished([block]));
        this.#close(block);
        finish(block, event, at, "source", "name");
        break;
      }
      case "TOOL_CALL_END":
        finish(this.#ending("tool_call", id), event, at, "name", "input", "state", "suggested_rules");
        break;
      case "TOOL_RESULT_END": {
        const result = this.#ending<ToolResult>("tool_result", id);
        this.#check(this.#unfinished(openData(result)));
        openData(result).forEach((part) => this.#close(part));
        result.state = event.state;
        result.metadata = event.metadata ?? {};
        result.finished_at = at;
        this.#finished(id);
        break;
      }
      case "REQUIRE_USER_CONFIRM":
        this.#known(event.tool_calls, (it: ToolCall) => it.id, (call, asked) => {
          // A call that is over stays so: the question came late.
          if (call.state === "finished") return;
          call.state = "asking";
          call.suggested_rules = asked.suggested_rules;
        });
        break;
      case "REQUIRE_EXTERNAL_EXECUTION":
        this.#known(event.tool_calls, (it: ToolCall) => it.id, (call) => {
          if (call.state !== "finished") call.state = "submitted";
        });
        break;
      case "USER_CONFIRM_RESULT":
        // An answer counts only while the call is asking, and an edited input only in an approval.
        this.#known(event.confirm_results, (it: Checked) => it.tool_call.id, (call, answer) => {
          if (call.state !== "asking") return;
          call.state = answer.confirmed ? "allowed" : "finished";
          if (answer.confirmed && answer.tool_call.input) call.input = answer.tool_call.input;
        });
        break;
      case "EXTERNAL_EXECUTION_RESULT":
        checkRole(msg.role, "tool_result");
        for (const given of event.execution_results as ToolResult[]) {
          const known = this.#get("tool_result", given.id) as ToolResult | undefined;
          // It came late: the call was closed without it.
          if (known && known.state !== "running") continue;
          // The output of one that runs is left to the deltas that the agent sends.
          if (!known) {
            const result = given;
            result.finished_at ??= at;
            if (!result.created_at && at) result.created_at = at;
            this.#start(result);
          }
          this.#finished(given.id);
        }
        break;
    }
  }

  #replyEnd(event: Checked, at: string): void {
    const { msg } = this;
    const data = msg.content.flatMap((block) => (block.finished_at == null ? openData(block) : []));
    this.#check(this.#unfinished(data));
    for (const block of data) this.#close(block);
    for (const block of msg.content) if (block.finished_at == null) this.dirty.add(block);
    msg.finished_at = at;
    msg.finished_reason = event.finished_reason;
    msg.error = event.error;
    if (event.structured_output !== undefined) msg.structured_output = event.structured_output;
    msg.metadata = { ...msg.metadata, ...event.message_metadata };
    this.#index = undefined;
  }

  /** Takes blocks out: what stands behind the first of them is looked at, and no more. */
  #discard(ids: string[]): void {
    const { content } = this.msg;
    const gone = new Set(ids);
    let first = content.length;
    for (const id of ids) {
      for (const positions of Object.values(this.#positions())) first = Math.min(first, positions.get(id) ?? first);
    }
    const behind = content.splice(first);
    this.#last = undefined;
    for (const block of behind) this.#positions()[familyOf(block)].delete(idOf(block));
    for (const block of behind) if (!gone.has(idOf(block))) this.#push(block);
  }

  #resultData(event: Checked, id: string, at: string): void {
    const result = this.#find<ToolResult>("tool_result", id);
    const late = ended(result, "tool_result", id);
    this.#check(late);
    const part = event.block_id && this.#dataParts(result).get(event.block_id);
    if (part) {
      part.source = this.#chunk(part.source, event, !!late);
      return;
    }
    const source = this.#chunk({ type: "base64", data: "", ...kind(event.media_type) }, event, !!late);
    const parts = partsOf(result);
    const block_id = event.block_id || `${id}-${parts.length}`;
    const block: DataBlock = { type: "data", id: block_id, source, name: null, ...began(at), finished_at: null };
    parts.push(block);
    this.#dataParts(result).set(block_id, block);
  }

  #dataParts(result: ToolResult): Map<string, DataBlock> {
    let parts = this.#parts.get(result);
    if (!parts) {
      parts = new Map();
      for (const part of dataOf(result.output)) parts.set(idOf(part), part);
      this.#parts.set(result, parts);
    }
    return parts;
  }

  /** A source with a piece behind it; a URL is the whole content, and replaces it. */
  #chunk(source: Source, event: Checked, late: boolean): Source {
    const { data, url } = event;
    if (typeof url === "string") {
      const known = source.type === "base64" || source.type === "url" ? source.media_type : undefined;
      return { type: "url", url, ...kind(event.media_type ?? known) };
    }
    if (source.type !== "base64") {
      if (!data) return source;
      throw bad("MixedSource", "bytes for a data block whose content is a URL; a block is one or the other");
    }
    const state = append(this.#opened(source), data, late);
    this.#open.set(source, state);
    source.data = text(state);
    if (!late && source.media_type === undefined) Object.assign(source, kind(event.media_type));
    return source;
  }

  #opened(source: Source & { type: "base64" }): Open {
    return this.#open.get(source) ?? open(source.data);
  }

  #unfinished(blocks: DataBlock[]): FoldError | undefined {
    try {
      for (const { source } of blocks) if (source.type === "base64") checkEnd(this.#opened(source));
    } catch (error) {
      return error as FoldError;
    }
    return undefined;
  }

  #close({ source }: DataBlock): void {
    if (source.type !== "base64") return;
    const state = close(this.#opened(source));
    this.#open.delete(source);
    source.data = text(state);
  }

  #finished(id: string): void {
    const call = this.#get("tool_call", id) as ToolCall | undefined;
    if (call) call.state = "finished";
  }

  /** Changes every listed call that the message has; an event of which it has none is about something else. */
  #known<T>(listed: T[], idOf: (item: T) => string, change: (call: ToolCall, item: T) => void): void {
    let known = !listed.length;
    for (const item of listed) {
      const call = this.#get("tool_call", idOf(item)) as ToolCall | undefined;
      if (!call) continue;
      known = true;
      change(call, item);
    }
    if (!known) throw unknown("tool_call", idOf(listed[0]!), this.msg.id);
  }

  /** Appends a block that is not there yet. */
  #start(block: ContentBlock): void {
    const id = idOf(block);
    checkRole(this.msg.role, block.type, id);
    if (this.#positions()[familyOf(block)].has(id)) {
      throw bad("DuplicateBlock", `the ${block.type} block ${id} was started before`);
    }
    if (!id) delete (block as { id?: string }).id;
    this.#push(block);
  }

  #push(block: ContentBlock): void {
    this.#positions()[familyOf(block)].set(idOf(block), this.msg.content.push(block) - 1);
    this.#last = block;
  }

  #positions(): Record<Family, Map<string, number>> {
    if (!this.#index) {
      const map = () => new Map<string, number>();
      this.#index = {
        text: map(), thinking: map(), data: map(), hint: map(), tool_call: map(), tool_result: map(), other: map(),
      };
      this.msg.content.forEach((block, at) => this.#index![familyOf(block)].set(idOf(block), at));
    }
    return this.#index;
  }

  #get(family: Family, id: string): ContentBlock | undefined {
    let block = this.#last;
    if (!block || block.id !== id || block.type !== family) {
      block = this.msg.content[this.#positions()[family].get(id) ?? -1];
      if (!block) return undefined;
      this.#last = block;
    }
    this.dirty.add(block);
    return block;
  }

  #find<B extends ContentBlock>(family: Family, id: string): B {
    const block = this.#get(family, id);
    if (!block) throw unknown(family, id, this.msg.id);
    return block as B;
  }

  /** A block that goes on; late is tolerable. */
  #late<B extends ContentBlock>(family: Family, id: string): B {
    const block = this.#find<B>(family, id);
    if (block.finished_at != null) this.#check(ended(block, family, id));
    return block;
  }

  /** A block that ends, once. */
  #ending<B extends ContentBlock>(family: Family, id: string): B {
    const block = this.#find<B>(family, id);
    const late = ended(block, family, id);
    if (late) throw late;
    return block;
  }
}

export function taken(id: string): FoldError {
  return bad("DuplicateMessage", `${id} is the id of a message that is there already`);
}

function unknown(family: Family, id: string, reply: string): FoldError {
  return bad("UnknownBlock", `reply ${reply} has no ${family} block ${id}; was its start lost?`);
}

function ended(block: ContentBlock, family: Family, id: string): FoldError | undefined {
  return block.finished_at == null ? undefined : bad("AlreadyEnded", `the ${family} block ${id} has ended`);
}

/** The fields that a provider adds to a block; never one that the block has by itself. */
function finish(block: ContentBlock, { extra }: Checked, at: string, ...own: string[]): void {
  for (const key of Object.keys(extra ?? {})) {
    if (COMMON.includes(key) || own.includes(key)) continue;
    // Not by assignment: a key may be `__proto__`.
    Object.defineProperty(block, key, { value: extra[key], enumerable: true, writable: true, configurable: true });
  }
  block.finished_at = at;
}

const began = (at: string) => (at ? { created_at: at } : {});
const kind = (media_type: string | undefined) => (media_type == null ? {} : { media_type });

/** The output as a list; a bare string becomes its first block. */
function partsOf(result: ToolResult): Part[] {
  if (typeof result.output === "string") {
    const { id, output, created_at } = result;
    result.output = [{ type: "text", text: output, id: `${id}-0`, ...began(created_at ?? ""), finished_at: null }];
  }
  return result.output as Part[];
}

function dataOf(payload: Payload): DataBlock[] {
  return typeof payload === "string" ? [] : payload.filter((part): part is DataBlock => familyOf(part) === "data");
}

/** The data of a block that has not ended. */
function openData(block: ContentBlock): DataBlock[] {
  if (block.type === "tool_result") return dataOf(block.output);
  return familyOf(block) === "data" ? [block as DataBlock] : [];
}
