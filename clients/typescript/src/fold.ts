// The fold: events in, one message out. The same as `turnwire-core`'s, event by event.

import { append, checkEnd, close, type Open, open, text } from "./base64.js";
import { bad, FoldError, type Problem } from "./error.js";
import {
  type ContentBlock,
  type DataBlock,
  EventType,
  type MsgJson,
  type Part,
  type ToolCall,
  type ToolResult,
  USAGE,
} from "./generated/model.js";
import {
  block,
  checkRole,
  error,
  familyOf,
  isData,
  type Json,
  list,
  need,
  needText,
  ownFields,
  toolCall,
  toolResult,
} from "./read.js";

/** The outcome of an event. */
export type FoldOutcome = "applied" | "repeated" | "ignored" | "skipped";

/** Anything with a type: an event of this version or of a later one. */
export interface EventLike {
  type: string;
}

/** The state of a message's fold. Stored beside the message, it lets the fold continue later. */
export interface Cursor {
  started?: boolean;
  whole?: boolean;
  seq?: number;
  ids?: string[];
}

/** Whether events of this type are part of a reply; the others change no message's content. */
export const isPartOfReply = (type: string): boolean => type === "TEXT_BLOCK_DELTA" || OF_REPLIES.has(type);
const OF_REPLIES = /* @__PURE__ */ new Set(
  /* @__PURE__ */ Object.keys(EventType).filter((type) => !/^(CUSTOM|MESSAGE|SUPERSEDE|RESET)$/.test(type)),
);

/** The id of a block, if it is a plain string. */
const idOf = ({ id }: { id?: unknown }): string => (typeof id === "string" ? id : "");
const partsOf = ({ output }: Json): Part[] => (Array.isArray(output) ? output : []);

/** The data in a block. */
const dataOf = (block: ContentBlock): DataBlock[] =>
  isData(block)
    ? [block as DataBlock]
    : block.type === "tool_result"
      ? (partsOf(block).filter(isData) as DataBlock[])
      : [];

export class Fold {
  /** Which events were applied: all up to a seq, and those without a seq by their ids. */
  seq = 0;
  ids = new Set<string>();
  started = false;
  /** The message came whole: it is not a reply and takes no events. */
  whole = false;
  /** What was wrong with the last event, when tolerant. */
  problem: FoldError | undefined;
  /** The last snapshot with its blocks, and the blocks that changed since. */
  shown: MsgJson | undefined;
  readonly copies = new WeakMap<ContentBlock, ContentBlock>();
  readonly dirty = new Set<ContentBlock>();

  #tolerant = false;
  /** The blocks by family and id; the data of results by theirs. */
  #index: Map<string, any> | undefined;
  #open = new WeakMap<object, Open>();
  #last: ContentBlock | undefined;

  /** `msg` is changed in place. */
  constructor(readonly msg: any) {}

  /** `tolerant`: apply what can be applied, and say in `problem` what could not. */
  push(event: any, tolerant: boolean): FoldOutcome {
    const { msg, seq } = this;
    this.problem = undefined;
    this.#tolerant = tolerant;
    try {
      if (this.knows(event)) return "repeated";
      if (this.whole) throw bad("DuplicateMessage", msg.id);
      if (msg.finished_at !== null) throw bad("AlreadyEnded", msg.id);
      this.#apply(event);
      msg.created_at ||= event.created_at ?? "";
      this.shown = undefined;
      return "applied";
    } catch (error) {
      this.forget(event, seq);
      this.problem = error instanceof FoldError ? error : bad("NotAnEvent", error);
      if (!tolerant) throw this.problem;
      return "skipped";
    }
  }

  /** Whether the event was applied before; otherwise it is remembered. */
  knows({ seq, seq_from, id }: any): boolean {
    const { ids } = this;
    if (seq == null) {
      const before = ids.size;
      return !!id && ids.add(id).size === before;
    }
    need(seq > 0 && Number.isInteger(seq), "seq");
    if (seq <= this.seq) return true;
    if (seq_from <= this.seq && seq_from != null) throw bad("Overlap", `${seq_from} to ${seq}`);
    // When a stream changes from ids to seqs, events with an id may come again.
    if (ids.has(id)) return true;
    this.seq = seq;
    return false;
  }

  /** The event was refused: forget it. */
  forget({ seq, id }: Json, before: number): void {
    this.seq = before;
    if (seq == null) this.ids.delete(id);
  }

  /** Problems of which the rest of the event can be applied. */
  #tolerate(check: () => void): void {
    try {
      check();
    } catch (error) {
      if (!this.#tolerant) throw error;
      this.problem ??= error as FoldError;
    }
  }

  #apply(event: any): void {
    const { msg } = this;
    const { type, delta } = event;
    const created_at: string = event.created_at ?? "";
    const id: string = event.tool_call_id ?? event.block_id;
    switch (type) {
      case "TEXT_BLOCK_DELTA":
        this.#findOpen("text", id, delta).text += delta;
        break;
      case "THINKING_BLOCK_DELTA":
        this.#findOpen("thinking", id, delta).thinking += delta;
        break;
      case "TOOL_CALL_DELTA":
        this.#findOpen("tool_call", id, delta).input += delta;
        break;
      case "TOOL_RESULT_TEXT_DELTA": {
        const result = this.#findOpen("tool_result", id, delta);
        const last = this.#parts(result).at(-1);
        if (last?.type === "text") last.text += delta;
        else this.#appendPart(result, { type: "text", text: delta, created_at });
        break;
      }
      case "TOOL_RESULT_DATA_DELTA": {
        const result: Json = this.#findOpen("tool_result", id, "");
        const late = result["finished_at"] != null;
        const part = event.block_id && this.#blockIndex().get(`${id} ${event.block_id}`);
        if (part) return this.#appendChunk(part, event, late);
        const source = { type: "base64", data: "", media_type: event.media_type };
        this.#appendPart(result, { type: "data", id: event.block_id, created_at, source }, (part) =>
          this.#appendChunk(part, event, late),
        );
        break;
      }
      case "DATA_BLOCK_DELTA": {
        const block = this.#findOpen("data", id, "");
        return this.#appendChunk(block, event, block["finished_at"] != null);
      }
      case "TEXT_BLOCK_START":
        return this.#start({ type: "text", text: "", id, created_at });
      case "THINKING_BLOCK_START":
        return this.#start({ type: "thinking", thinking: "", id, created_at });
      case "DATA_BLOCK_START":
        return this.#start({
          type: "data",
          id,
          source: { type: "base64", data: "", media_type: event.media_type },
          name: event.name,
          created_at,
        });
      case "TOOL_CALL_START":
        return this.#start({ type: "tool_call", id, name: event.tool_call_name, created_at });
      case "TOOL_RESULT_START":
        return this.#start({ type: "tool_result", id, name: event.tool_call_name, created_at });
      case "HINT_BLOCK":
        return this.#start({
          type: "hint",
          id,
          hint: event.hint,
          source: event.source,
          created_at,
          finished_at: created_at,
        });
      case "BLOCK":
        return this.#start(event.block, true);
      case "TEXT_BLOCK_END": {
        const block = this.#findUnended("text", id);
        block["text"] = event.text ?? block["text"];
        return finish(block, event);
      }
      case "THINKING_BLOCK_END":
        return finish(this.#findUnended("thinking", id), event);
      case "TOOL_CALL_END":
        return finish(this.#findUnended("tool_call", id), event);
      case "DATA_BLOCK_END": {
        const block = this.#findUnended("data", id);
        this.#close([block as ContentBlock]);
        return finish(block, event);
      }
      case "TOOL_RESULT_END": {
        needText(event.state, "state");
        const result = this.#findUnended("tool_result", id);
        this.#close([result as ContentBlock]);
        result["state"] = event.state;
        result["metadata"] = event.metadata ?? {};
        result["finished_at"] = created_at;
        return this.#finishCall(id);
      }
      case "REPLY_START":
        // The first start names the agent; later ones only say that the reply continues.
        if (this.started) return;
        checkRole(event.role ?? "assistant", msg.content);
        msg.name = event.name || msg.name;
        msg.role = event.role ?? "assistant";
        this.started = true;
        break;
      case "REPLY_END": {
        const failed = error(event.error ?? null);
        this.#close(msg.content.filter((block: ContentBlock) => block.finished_at == null));
        msg.finished_at = created_at;
        msg.finished_reason = event.finished_reason ?? "completed";
        msg.error = failed;
        msg.structured_output = event.structured_output ?? msg.structured_output;
        msg.metadata = { ...msg.metadata, ...event.message_metadata };
        break;
      }
      case "MODEL_CALL_END": {
        const usage = (msg.usage = { ...USAGE, ...msg.usage });
        for (const count in USAGE) usage[count] += event[count] ?? 0;
        const gone = new Set(event.discard ?? []);
        if (!gone.size) return;
        msg.content = msg.content.filter((block: ContentBlock) => !gone.has(idOf(block)));
        this.#index = this.#last = undefined;
        break;
      }
      case "REQUIRE_USER_CONFIRM":
        // A finished call stays finished: the request came late.
        return this.#changeCalls(list(event.tool_calls, "tool_calls", toolCall), (call, asked) => {
          call.state = "asking";
          call.suggested_rules = asked.suggested_rules;
        });
      case "REQUIRE_EXTERNAL_EXECUTION":
        return this.#changeCalls(list(event.tool_calls, "tool_calls", toolCall), (call) => (call.state = "submitted"));
      case "USER_CONFIRM_RESULT":
        // An answer counts only while the call is pending, and an edited input only in an approval.
        return this.#changeCalls(
          list(event.confirm_results, "confirm_results", ({ confirmed, tool_call }) => ({
            ...toolCall(tool_call),
            confirmed,
          })),
          (call, { confirmed, input }) => {
            if (call.state !== "asking") return;
            call.state = confirmed ? "allowed" : "finished";
            if (confirmed) call.input = input || call.input;
          },
        );
      case "EXTERNAL_EXECUTION_RESULT": {
        const results: ToolResult[] = list(event.execution_results, "execution_results", toolResult);
        checkRole(msg.role, [{ type: "tool_result" }]);
        for (const result of results) {
          const known = this.#get("tool_result", result.id);
          // Late: the call was closed without it.
          if (known && known["state"] !== "running") continue;
          // The output of a running tool comes in the agent's deltas.
          if (!known)
            this.#start({
              ...result,
              created_at: result.created_at || created_at,
              finished_at: result.finished_at ?? created_at,
            });
          this.#finishCall(result.id);
        }
      }
    }
  }

  /** Ends the call of a result. */
  #finishCall(id: string): void {
    const call = this.#get("tool_call", id);
    if (call) call["state"] = "finished";
  }

  /** Changes the listed calls of this message. An event with none of them belongs to another message. */
  #changeCalls<T extends ToolCall>(listed: T[], change: (call: ToolCall, item: T) => void): void {
    const known = listed.filter((item) => this.#get("tool_call", item.id));
    if (listed.length && !known.length) throw this.#problem("UnknownBlock", "tool_call", listed[0]!.id);
    for (const item of known) {
      const call = this.#get("tool_call", item.id) as ToolCall;
      if (call.state !== "finished") change(call, item);
    }
  }

  #problem(kind: Problem, family: string, id: string): FoldError {
    return bad(kind, `${family} ${id} of ${this.msg.id}`);
  }

  /** Appends a new block; with `whole`, also one without an id. */
  #start(value: Json, whole = false): void {
    const made = block(value);
    const id = idOf(made);
    if (!whole) needText(value["id"], "id");
    checkRole(this.msg.role, [made]);
    if ((id || !whole) && this.#blockIndex().has(`${familyOf(made)} ${id}`))
      throw this.#problem("DuplicateBlock", made.type, id);
    this.msg.content.push(made);
    this.#addToIndex(made);
    this.#last = undefined;
  }

  #blockIndex(): Map<string, any> {
    if (!this.#index) {
      this.#index = new Map();
      for (const block of this.msg.content) this.#addToIndex(block);
    }
    return this.#index;
  }

  #addToIndex(block: ContentBlock): void {
    const id = idOf(block);
    this.#blockIndex().set(`${familyOf(block)} ${id}`, block);
    if (block.type === "tool_result") for (const part of dataOf(block)) this.#index!.set(`${id} ${idOf(part)}`, part);
  }

  #get(family: string, id: string): Json | undefined {
    const last = this.#last;
    const block = last && last.id === id && last.type === family ? last : this.#blockIndex().get(`${family} ${id}`);
    if (block) this.dirty.add((this.#last = block));
    return block;
  }

  /** An existing block. */
  #find(family: string, id: string): Json {
    const block = this.#get(family, id);
    if (!block) {
      needText(id, "id");
      throw this.#problem("UnknownBlock", family, id);
    }
    return block;
  }

  /** Ends a block, once. */
  #findUnended(family: string, id: string): Json {
    const block = this.#find(family, id);
    if (block["finished_at"] != null) throw this.#problem("AlreadyEnded", family, id);
    return block;
  }

  /** Extends a block with text; a late delta is tolerated. */
  #findOpen(family: string, id: string, delta: unknown): any {
    const block = this.#find(family, id);
    needText(delta, "delta");
    if (block["finished_at"] != null) this.#tolerate(() => this.#findUnended(family, id));
    return block;
  }

  /** The output as a list; a bare string becomes its first block. */
  #parts(result: Json): Part[] {
    const { output } = result;
    if (typeof output === "string") {
      result["output"] = [];
      this.#appendPart(result, { type: "text", text: output, created_at: result["created_at"] });
    }
    return result["output"];
  }

  #appendPart(result: Json, value: Json, begin?: (part: Json) => void): void {
    const { id, output } = result;
    // The id of an unnamed part: the same on every machine.
    const part = block({
      ...value,
      id: value["id"] || `${id}-${typeof output === "string" ? 1 : output.length}`,
    }) as Part;
    begin?.(part);
    this.#parts(result).push(part);
    if (isData(part)) this.#blockIndex().set(`${id} ${part.id}`, part);
  }

  /** Appends bytes to a block. A URL replaces the content. */
  #appendChunk(block: Json, { data, url, media_type }: Json, late: boolean): void {
    need((typeof data === "string") !== (typeof url === "string") && (data ?? url) != null, "data` or `url");
    const { source } = block;
    if (data === "" && source.type !== "base64") return;
    if (data == null) {
      const known = media_type ?? (/^(base64|url)$/.test(source.type) ? source.media_type : undefined);
      block["source"] = { type: "url", url, ...(known != null && { media_type: known }) };
      return;
    }
    if (source.type !== "base64") throw bad("MixedSource", source.type);
    const state = append(this.#base64State(source), data, late);
    this.#open.set(source, state);
    source.data = text(state);
    if (!late && media_type != null) source.media_type ??= media_type;
  }

  #base64State(source: Json): Open {
    return this.#open.get(source) ?? open(source["data"]);
  }

  /** Closes the data of blocks that ended. */
  #close(blocks: ContentBlock[]): void {
    const sources = blocks.flatMap(dataOf).map(({ source }) => source as Json);
    const open = sources.filter(({ type }) => type === "base64");
    this.#tolerate(() => open.forEach((source) => checkEnd(this.#base64State(source))));
    for (const source of open) {
      source["data"] = text(close(this.#base64State(source)));
      this.#open.delete(source);
    }
    for (const block of blocks) this.dirty.add(block);
  }
}

/** Fields that a provider adds to a block; never fields of the block itself. */
function finish(block: Json, { extra, created_at = "" }: Json): void {
  const own = ownFields(block as ContentBlock);
  for (const [key, value] of Object.entries(extra ?? {})) {
    if (own.includes(key)) continue;
    // Not by assignment: a key may be `__proto__`.
    Object.defineProperty(block, key, { value, enumerable: true, writable: true, configurable: true });
  }
  block["finished_at"] = created_at;
}
