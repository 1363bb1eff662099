// `turnwire/message`: messages, and the fold that makes them out of events.

import { bad } from "./error.js";
import { checkEvent, Fold, isPartOfReply, taken, type Cursor, type EventLike, type Outcome } from "./fold.js";
import type {
  ContentBlock,
  Fields,
  FinishedReason,
  MsgJson,
  ReplyError,
  Role,
  Usage,
} from "./generated/model.js";
import { newId } from "./id.js";
import { readMsg } from "./read.js";

export type * from "./generated/model.js";
export { EventType } from "./generated/model.js";
export { FoldError, type Problem } from "./error.js";
export type { Cursor, EventLike, Outcome } from "./fold.js";

/** What a message can be made of: a text, or blocks. */
export type Content = string | readonly (Partial<ContentBlock> & { type: ContentBlock["type"] })[];

/** What is known of a message when it is made. */
export interface MsgInit extends Partial<Omit<MsgJson, "content" | "role">> {
  content: Content;
}

type BlockOf<T extends ContentBlock["type"]> = Extract<ContentBlock, { type: T }>;

const KNOWN = new Set([
  "id", "name", "role", "content", "metadata", "created_at", "usage",
  "finished_at", "finished_reason", "structured_output", "error",
]);

/**
 * One whole turn. The fold (`appendEvent`) changes it in place, so that a long reply costs what its events
 * have in bytes; `snapshot()` gives what can be shown and compared.
 */
export class Msg {
  /** The id of the reply that it came from. */
  id: string;
  name: string;
  role: Role;
  content: ContentBlock[];
  metadata: Fields;
  /** Empty where it is not known: then it is that of the first event. */
  created_at: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: FinishedReason | null;
  structured_output: unknown;
  error: ReplyError | null;
  /** Fields that this version does not know. */
  rest: Fields;

  #fold = new Fold(this);
  #shown: MsgJson | undefined;
  #copies = new WeakMap<ContentBlock, ContentBlock>();

  /** Checks what the message is made of; a role may not hold every block. */
  constructor(init: MsgInit & { role: Role }) {
    const json = readMsg({ ...init, name: init.name ?? "" });
    this.id = json.id ?? newId();
    this.name = json.name;
    this.role = json.role;
    this.content = json.content;
    this.metadata = json.metadata;
    this.created_at = json.created_at ?? "";
    this.usage = json.usage;
    this.finished_at = json.finished_at;
    this.finished_reason = json.finished_reason;
    this.structured_output = json.structured_output;
    this.error = json.error;
    this.rest = Object.fromEntries(Object.entries(json).filter(([key]) => !KNOWN.has(key)));
  }

  /** A message that was stored, with the cursor that was stored beside it, ready to be folded on. */
  static from(json: unknown, cursor?: Cursor): Msg {
    const { id = "", ...rest } = readMsg(json);
    const msg = new Msg(rest as MsgJson);
    msg.id = id;
    if (cursor) {
      const fold = msg.#fold;
      fold.started = cursor.started ?? false;
      fold.whole = cursor.whole ?? false;
      fold.seen.seq = cursor.seq ?? 0;
      fold.seen.ids = new Set(cursor.ids);
    }
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
  appendEventTolerant(event: EventLike, report?: (problem: FoldProblem) => void): Outcome {
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
      fold.problem = bad("WrongReply", `${event.type} is for reply ${reply_id}, this message is ${this.id}`);
      if (!tolerant) throw fold.problem;
      return "skipped";
    }
    return fold.push(event, tolerant);
  }

  /** What the fold needs, besides the message itself, to go on later. */
  cursor(): Cursor {
    const { started, whole, seen } = this.#fold;
    return {
      started,
      ...(whole && { whole }),
      ...(seen.seq && { seq: seen.seq }),
      ...(seen.ids.size && { ids: [...seen.ids] }),
    };
  }

  /** Whether this event was applied before. Throws what is wrong with it. @internal */
  hasSeen(event: EventLike): boolean {
    const { seen } = this.#fold;
    const before = seen.seq;
    const repeated = seen.remember(event as never);
    if (!repeated) seen.forget(event as never, before);
    return repeated;
  }

  /** Remembers the event that brought the whole message. @internal */
  cameWhole(event: EventLike): this {
    this.#fold.whole = true;
    this.#fold.seen.remember(event as never);
    return this;
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

  /**
   * The message as it stands, as a value: it never changes any more. As long as nothing happened it is the
   * same object, and so is each of its blocks that did not change: what is shown compares by identity.
   */
  snapshot(): MsgJson {
    const fold = this.#fold;
    if (this.#shown && !fold.changed) return this.#shown;
    const content = this.content.map((block) => {
      let copy = this.#copies.get(block);
      if (!copy || fold.dirty.has(block)) this.#copies.set(block, (copy = copied(block)));
      return copy;
    });
    fold.dirty.clear();
    fold.changed = false;
    return (this.#shown = this.#json(content));
  }

  /** The message as the server would write it. */
  toJSON(): MsgJson {
    return this.#json(this.content);
  }

  #json(content: ContentBlock[]): MsgJson {
    const { id, name, role, metadata, created_at, usage, finished_at, finished_reason } = this;
    return {
      name,
      content,
      role,
      ...(id && { id }),
      metadata,
      ...(created_at && { created_at }),
      usage,
      finished_at,
      finished_reason,
      structured_output: this.structured_output,
      error: this.error,
      ...this.rest,
    };
  }
}

type FoldProblem = NonNullable<Fold["problem"]>;

function copied(block: ContentBlock): ContentBlock {
  const copy = { ...block };
  if (copy.type === "tool_result" && typeof copy.output !== "string") {
    copy.output = copy.output.map((part) => copied(part) as typeof part);
  }
  if ("source" in copy && typeof copy.source === "object") copy.source = { ...copy.source! } as never;
  return copy;
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

/** Folds a stream into its messages: many replies, interleaved, with whole messages between them. */
export class Folder {
  #messages = new Map<string, Msg>();
  #superseded = new Set<string>();
  #reset = "";

  /** A folder that is made of messages goes on with them. */
  constructor(messages: Iterable<Msg> = []) {
    for (const msg of messages) this.#messages.set(this.#key(msg), msg);
  }

  /** Applies an event; one that does not fit is refused with a `FoldError`, and changes nothing. */
  push(event: EventLike): Outcome {
    return this.#push(event, (msg, event) => msg.appendEvent(event), false);
  }

  /** Applies what can be applied of an event, and hands what could not to `report`. */
  pushTolerant(event: EventLike, report?: (problem: FoldProblem) => void): Outcome {
    try {
      return this.#push(event, (msg, event) => msg.appendEventTolerant(event, report), true);
    } catch (error) {
      report?.(error as FoldProblem);
      return "skipped";
    }
  }

  #push(event: EventLike, append: (msg: Msg, event: EventLike) => Outcome, tolerant: boolean): Outcome {
    switch (event.type) {
      case "MESSAGE":
        return this.#whole(event);
      case "SUPERSEDE":
        for (const id of checkEvent(event)["message_ids"]) this.#superseded.add(id);
        return "applied";
      case "RESET": {
        const { id = "" } = checkEvent(event);
        if (id && id === this.#reset) return "repeated";
        this.#reset = id;
        this.#messages.clear();
        this.#superseded.clear();
        return "applied";
      }
    }
    const { reply_id } = event as { reply_id?: unknown };
    if (!isPartOfReply(event.type) || reply_id === "") return "ignored";
    if (typeof reply_id !== "string") checkEvent(event);
    const known = this.#messages.get(reply_id as string);
    if (known) return append(known, event);
    // A reply begins with the first event that fits; tolerant, with the first.
    if (tolerant) checkEvent(event);
    const msg = Msg.reply(reply_id as string);
    if (tolerant) this.#messages.set(msg.id, msg);
    const outcome = append(msg, event);
    this.#messages.set(msg.id, msg);
    return outcome;
  }

  #whole(event: EventLike): Outcome {
    const { message, id, seq } = checkEvent(event);
    const msg = Msg.from(message);
    // Without an id of its own it is known by its event's, or by its place.
    msg.id ||= id || (seq ? `seq-${seq}` : "");
    const key = this.#key(msg);
    const known = this.#messages.get(key);
    if (known) {
      if (known.hasSeen(event)) return "repeated";
      throw taken(known.id);
    }
    this.#messages.set(key, msg.cameWhole(event));
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
