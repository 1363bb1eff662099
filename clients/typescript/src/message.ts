// `turnwire/message`: messages, and the fold that makes them out of events.

import { bad, type FoldError } from "./error.js";
import { type Cursor, type EventLike, Fold, isPartOfReply, type Outcome } from "./fold.js";
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
export type { Cursor, EventLike, Outcome } from "./fold.js";
export type * from "./generated/model.js";
export { EventType } from "./generated/model.js";

/** What a message can be made of: a text, or blocks. */
export type Content = string | readonly (Partial<ContentBlock> & { type: ContentBlock["type"] })[];

/** What is known of a message when it is made. */
export interface MsgInit extends Partial<Omit<MsgJson, "content" | "role">> {
  content: Content;
}

type BlockOf<T extends ContentBlock["type"]> = Extract<ContentBlock, { type: T }>;

/** What the functions here know of a message. A method would be loaded by everybody who loads the class. */
const folds = /* @__PURE__ */ new WeakMap<Msg, Fold>();

/**
 * One whole turn. The fold (`appendEvent`) changes it in place, so that a long reply costs what its events
 * have in bytes; `snapshot(msg)` gives what can be shown and compared.
 */
export class Msg {
  /** The id of the reply that it came from. */
  id: string;
  declare name: string;
  declare role: Role;
  declare content: ContentBlock[];
  declare metadata: Fields;
  /** Empty where it is not known: then it is that of the first event. */
  created_at: string;
  declare usage: Usage | null;
  declare finished_at: string | null;
  declare finished_reason: FinishedReason | null;
  declare structured_output: unknown;
  declare error: ReplyError | null;
  /** Fields that this version does not know. */
  rest: Fields;

  #fold = new Fold(this);

  /** Checks what the message is made of; a role may not hold every block. */
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

  /** A message that was stored, with the cursor that was stored beside it, ready to be folded on. */
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
   * Applies an event. One that came before changes nothing; one that does not fit is refused with a
   * `FoldError`, and leaves the message untouched.
   */
  appendEvent(event: EventLike): Outcome {
    return this.#append(event, false);
  }

  /** Applies what can be applied of an event, and hands what could not to `report`. */
  appendEventTolerant(event: EventLike, report?: (problem: FoldError) => void): Outcome {
    const outcome = this.#append(event, true);
    if (this.#fold.problem) report?.(this.#fold.problem);
    return outcome;
  }

  #append(event: EventLike, tolerant: boolean): Outcome {
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

  /** What the fold needs, besides the message itself, to go on later. */
  cursor(): Cursor {
    const { started, whole, seq, ids } = this.#fold;
    return { started, ...(whole && { whole }), ...(seq && { seq }), ...(ids.size && { ids: [...ids] }) };
  }

  /** The text of all text blocks; `null` where there is none. */
  getTextContent(separator = "\n"): string | null {
    return textOf(this, separator);
  }

  /** The blocks of one type, or all. */
  getContentBlocks(): ContentBlock[];
  getContentBlocks<T extends ContentBlock["type"]>(type: T): BlockOf<T>[];
  getContentBlocks(type?: string): ContentBlock[] {
    return type === undefined ? [...this.content] : this.content.filter((block) => block.type === type);
  }

  /** Whether there is a block of one type, or any. */
  hasContentBlocks(type?: ContentBlock["type"]): boolean {
    return this.content.some((block) => type === undefined || block.type === type);
  }

  /** The message as the server would write it. */
  toJSON(): MsgJson {
    const { rest, id, created_at, ...known } = this as Json;
    return { ...known, ...(id && { id }), ...(created_at && { created_at }), ...rest } as MsgJson;
  }
}

/** An assistant's message. It may hold anything. */
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

/** The text of all text blocks of a message; `null` where there is none. */
export function textOf(msg: { content: readonly ContentBlock[] }, separator = "\n"): string | null {
  const texts = msg.content.flatMap((block) => (block.type === "text" ? [block.text] : []));
  return texts.length ? texts.join(separator) : null;
}

/**
 * The message as it stands, as a value: it never changes any more. As long as nothing happened it is the
 * same object, and so is each of its blocks that did not change: what is shown compares by identity.
 */
export function snapshot(msg: Msg): MsgJson {
  const fold = folds.get(msg)!;
  const { copies, dirty } = fold;
  if (fold.shown) return fold.shown;
  for (const block of msg.content) if (!copies.has(block) || dirty.has(block)) copies.set(block, copied(block));
  dirty.clear();
  return (fold.shown = { ...msg.toJSON(), content: msg.content.map((block) => copies.get(block)!) });
}

function copied(block: ContentBlock): ContentBlock {
  const copy = { ...block };
  if (copy.type === "tool_result" && typeof copy.output !== "string") {
    copy.output = copy.output.map((part) => copied(part) as typeof part);
  }
  if (isData(copy)) (copy as DataBlock).source = { ...(copy as DataBlock).source };
  return copy;
}

/** Whether this event brought the message; `came`: it did. */
function broughtBy(msg: Msg, event: EventLike, came: boolean): boolean {
  const fold = folds.get(msg)!;
  const { seq } = fold;
  const known = fold.knows(event);
  if (came) fold.whole = true;
  else if (!known) fold.forget(event, seq);
  return known;
}

/** Folds a stream into its messages: many replies, interleaved, with whole messages between them. */
export class Folder {
  #messages = new Map<string, Msg>();
  #superseded = new Set<string>();
  #reset: unknown;

  /** A folder that is made of messages goes on with them. */
  constructor(messages: Iterable<Msg> = []) {
    for (const msg of messages) this.#messages.set(this.#key(msg), msg);
  }

  /** Applies an event; one that does not fit is refused with a `FoldError`, and changes nothing. */
  push(event: EventLike): Outcome {
    return this.#push(event, (msg, event) => msg.appendEvent(event), false);
  }

  /** Applies what can be applied of an event, and hands what could not to `report`. */
  pushTolerant(event: EventLike, report?: (problem: FoldError) => void): Outcome {
    try {
      return this.#push(event, (msg, event) => msg.appendEventTolerant(event, report), true);
    } catch (error) {
      report?.(error as FoldError);
      return "skipped";
    }
  }

  #push(event: Json & EventLike, append: (msg: Msg, event: EventLike) => Outcome, tolerant: boolean): Outcome {
    const { type, id, reply_id } = event;
    if (type === "MESSAGE") return this.#whole(event);
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
    // A reply begins with the first event that fits; tolerant, with the first.
    const msg = Msg.reply(reply_id);
    if (tolerant) this.#messages.set(reply_id, msg);
    const outcome = append(msg, event);
    this.#messages.set(reply_id, msg);
    return outcome;
  }

  #whole(event: Json & EventLike): Outcome {
    const { message, id, seq } = event;
    const msg = Msg.from(readMsg(message, "NotAnEvent"));
    // Without an id of its own it is known by its event's, or by its place.
    msg.id ||= id || (seq ? `seq-${seq}` : "");
    const key = this.#key(msg);
    const known = this.#messages.get(key);
    if (known && broughtBy(known, event, false)) return "repeated";
    if (known) throw bad("DuplicateMessage", key);
    broughtBy(msg, event, true);
    this.#messages.set(key, msg);
    return "applied";
  }

  /** What a message is known by: its id, or something that nobody can name. */
  #key(msg: Msg): string {
    return msg.id || `\0${this.#messages.size}`;
  }

  /** All messages, in the order of their first events. */
  get messages(): Msg[] {
    return [...this.#messages.values()];
  }

  /** The messages that count as history: all but those that were superseded. */
  get history(): Msg[] {
    return this.messages.filter((msg) => !this.#superseded.has(msg.id));
  }

  /** The ids of the messages that no longer count as history. */
  get superseded(): ReadonlySet<string> {
    return this.#superseded;
  }

  /** A message by its id. */
  get(id: string): Msg | undefined {
    return this.#messages.get(id);
  }
}
