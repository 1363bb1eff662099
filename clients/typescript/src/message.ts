// `turnwire/message`: messages, and the fold that makes them from events.

import { bad, type FoldError } from "./error.js";
import { type Cursor, type EventLike, Fold, type FoldOutcome, isPartOfReply } from "./fold.js";
import type {
  ContentBlock,
  DataBlock,
  Fields,
  FinishedReason,
  MsgJson,
  ReplyError,
  Role,
  Usage,
} from "./generated/model.js";
import { newId } from "./id.js";
import { isData, type Json, list, needText, readMsg } from "./read.js";

export { FoldError, type Problem } from "./error.js";
export type { Cursor, EventLike, FoldOutcome } from "./fold.js";
export type * from "./generated/model.js";
export { EventType } from "./generated/model.js";

/** The content of a message: text or blocks. */
export type Content = string | readonly (Partial<ContentBlock> & { type: ContentBlock["type"] })[];

/** The fields of a new message. */
export interface MsgInit extends Partial<Omit<MsgJson, "content" | "role">> {
  content: Content;
}

type BlockOf<T extends ContentBlock["type"]> = Extract<ContentBlock, { type: T }>;

/** Internal state of a message for the functions here, so that the class stays small. */
const folds = /* @__PURE__ */ new WeakMap<Msg, Fold>();

/**
 * One message. The fold (`appendEvent`) changes it in place, so that a long reply costs only the bytes of its events;
 * `snapshot(msg)` returns an immutable copy to show and compare.
 */
export class Msg {
  /** The id of its reply. */
  id: string;
  declare name: string;
  declare role: Role;
  declare content: ContentBlock[];
  declare metadata: Fields;
  /** Empty if unknown: then the time of the first event. */
  created_at: string;
  declare usage: Usage | null;
  declare finished_at: string | null;
  declare finished_reason: FinishedReason | null;
  declare structured_output: unknown;
  declare error: ReplyError | null;
  /** Fields that this version does not know. */
  rest: Fields;

  #fold = new Fold(this);

  /** Checks the content: not every role may hold every block. */
  constructor(init: MsgInit & { role: Role }) {
    const json = readMsg(init);
    const {
      name,
      role,
      content,
      metadata,
      usage,
      finished_at,
      finished_reason,
      structured_output,
      error,
      id,
      created_at,
      ...rest
    } = json;
    Object.assign(this, {
      name,
      role,
      content,
      metadata,
      usage,
      finished_at,
      finished_reason,
      structured_output,
      error,
    });
    this.id = id ?? newId();
    this.created_at = created_at ?? "";
    this.rest = rest;
    folds.set(this, this.#fold);
  }

  /** A stored message with its stored cursor, ready to continue the fold. */
  static from(json: unknown, cursor: Cursor = {}): Msg {
    const msg = new Msg(json as MsgJson);
    msg.id = (json as MsgJson).id ?? "";
    const { started = false, whole = false, seq = 0, ids } = cursor;
    Object.assign(msg.#fold, { started, whole, seq, ids: new Set(ids) });
    return msg;
  }

  /** An empty message for the events of a reply. */
  static reply(id: string, name = ""): Msg {
    return new Msg({ id, name, role: "assistant", content: [] });
  }

  /**
   * Applies an event. A repeated event changes nothing; one that does not fit throws a `FoldError` and leaves the
   * message unchanged.
   */
  appendEvent(event: EventLike): FoldOutcome {
    return this.#append(event, false);
  }

  /** Applies what can be applied of an event, and passes problems to `report`. */
  appendEventTolerant(event: EventLike, report?: (problem: FoldError) => void): FoldOutcome {
    const outcome = this.#append(event, true);
    if (this.#fold.problem) report?.(this.#fold.problem);
    return outcome;
  }

  #append(event: EventLike, tolerant: boolean): FoldOutcome {
    const fold = this.#fold;
    const { reply_id } = event as { reply_id?: string };
    fold.problem = undefined;
    if (!reply_id || !isPartOfReply(event.type)) return "ignored";
    if (reply_id !== this.id) {
      fold.problem = bad("WrongReply", reply_id);
      if (!tolerant) throw fold.problem;
      return "skipped";
    }
    return fold.push(event, tolerant);
  }

  /** The state that the fold needs to continue later. */
  cursor(): Cursor {
    const { started, whole, seq, ids } = this.#fold;
    return { started, ...(whole && { whole }), ...(seq && { seq }), ...(ids.size && { ids: [...ids] }) };
  }

  /** The text of all text blocks; `null` if there is none. */
  getTextContent(separator = "\n"): string | null {
    return textOf(this, separator);
  }

  /** The blocks of one type, or all. */
  getContentBlocks(): ContentBlock[];
  getContentBlocks<T extends ContentBlock["type"]>(type: T): BlockOf<T>[];
  getContentBlocks(type?: string): ContentBlock[] {
    return type === undefined ? [...this.content] : this.content.filter((block) => block.type === type);
  }

  /** Whether there is a block of this type, or any block. */
  hasContentBlocks(type?: ContentBlock["type"]): boolean {
    return this.content.some((block) => type === undefined || block.type === type);
  }

  /** The message as the server writes it. */
  toJSON(): MsgJson {
    const { rest, id, created_at, ...known } = this as Json;
    return { ...known, ...(id && { id }), ...(created_at && { created_at }), ...rest } as MsgJson;
  }
}

/** An assistant's message. It may hold any block. */
export class AssistantMsg extends Msg {
  constructor(init: MsgInit) {
    super({ ...init, role: "assistant" });
  }
}

/** A user's message. It holds text and data. */
export class UserMsg extends Msg {
  constructor(init: MsgInit) {
    super({ ...init, role: "user" });
  }
}

/** A system prompt. It holds text. */
export class SystemMsg extends Msg {
  constructor(init: MsgInit) {
    super({ ...init, role: "system" });
  }
}

/** The text of all text blocks of a message; `null` if there is none. */
export function textOf(msg: { content: readonly ContentBlock[] }, separator = "\n"): string | null {
  const texts = msg.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  return texts.length ? texts.join(separator) : null;
}

/**
 * An immutable copy of the message. Without changes it is the same object, and so is each unchanged block: compare by
 * identity.
 */
export function snapshot(msg: Msg): MsgJson {
  const fold = folds.get(msg)!;
  const { copies, dirty } = fold;
  if (fold.shown) return fold.shown;
  for (const block of msg.content) if (!copies.has(block) || dirty.has(block)) copies.set(block, copyBlock(block));
  dirty.clear();
  return (fold.shown = { ...msg.toJSON(), content: msg.content.map((block) => copies.get(block)!) });
}

function copyBlock(block: ContentBlock): ContentBlock {
  const copy = { ...block };
  if (copy.type === "tool_result" && typeof copy.output !== "string") {
    copy.output = copy.output.map((part) => copyBlock(part) as typeof part);
  }
  if (isData(copy)) (copy as DataBlock).source = { ...(copy as DataBlock).source };
  return copy;
}

/** Whether this event carried the whole message. */
function wasAddedBy(msg: Msg, event: EventLike, came: boolean): boolean {
  const fold = folds.get(msg)!;
  const { seq } = fold;
  const known = fold.knows(event);
  if (came) fold.whole = true;
  else if (!known) fold.forget(event, seq);
  return known;
}

/** Folds a stream into its messages: many replies, interleaved, and whole messages between them. */
export class Folder {
  #messages = new Map<string, Msg>();
  #superseded = new Set<string>();
  #reset: unknown;

  /** A folder made from messages continues them. */
  constructor(messages: Iterable<Msg> = []) {
    for (const msg of messages) this.#messages.set(this.#key(msg), msg);
  }

  /** Applies an event. One that does not fit throws a `FoldError` and changes nothing. */
  push(event: EventLike): FoldOutcome {
    return this.#push(event, (msg, event) => msg.appendEvent(event), false);
  }

  /** Applies what can be applied of an event, and passes problems to `report`. */
  pushTolerant(event: EventLike, report?: (problem: FoldError) => void): FoldOutcome {
    try {
      return this.#push(event, (msg, event) => msg.appendEventTolerant(event, report), true);
    } catch (error) {
      report?.(error as FoldError);
      return "skipped";
    }
  }

  #push(event: Json & EventLike, append: (msg: Msg, event: EventLike) => FoldOutcome, tolerant: boolean): FoldOutcome {
    const { type, id, reply_id } = event;
    if (type === "MESSAGE") return this.#insertMessage(event);
    if (type === "SUPERSEDE") {
      list(event["message_ids"], "message_ids", (id) => this.#superseded.add(id));
      return "applied";
    }
    if (type === "RESET") {
      if (id && id === this.#reset) return "repeated";
      this.#reset = id;
      this.#messages.clear();
      this.#superseded.clear();
      return "applied";
    }
    if (!isPartOfReply(type) || reply_id === "") return "ignored";
    needText(reply_id, "reply_id");
    const known = this.#messages.get(reply_id);
    if (known) return append(known, event);
    // A reply starts with the first event that fits; in tolerant mode with any event.
    const msg = Msg.reply(reply_id);
    if (tolerant) this.#messages.set(reply_id, msg);
    const outcome = append(msg, event);
    this.#messages.set(reply_id, msg);
    return outcome;
  }

  #insertMessage(event: Json & EventLike): FoldOutcome {
    const { message, id, seq } = event;
    const msg = Msg.from(readMsg(message, "NotAnEvent"));
    // A message without an id gets that of its event, or its seq.
    msg.id ||= id || (seq ? `seq-${seq}` : "");
    const key = this.#key(msg);
    const known = this.#messages.get(key);
    if (known && wasAddedBy(known, event, false)) return "repeated";
    if (known) throw bad("DuplicateMessage", key);
    wasAddedBy(msg, event, true);
    this.#messages.set(key, msg);
    return "applied";
  }

  /** The key of a message: its id, or a unique symbol. */
  #key(msg: Msg): string {
    return msg.id || `\0${this.#messages.size}`;
  }

  /** All messages, in the order of their first events. */
  get messages(): Msg[] {
    return [...this.#messages.values()];
  }

  /** The messages of the history: all except superseded ones. */
  get history(): Msg[] {
    return this.messages.filter((msg) => !this.#superseded.has(msg.id));
  }

  /** The ids of superseded messages. */
  get superseded(): ReadonlySet<string> {
    return this.#superseded;
  }

  /** A message by its id. */
  get(id: string): Msg | undefined {
    return this.#messages.get(id);
  }
}
