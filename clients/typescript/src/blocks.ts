// `turnwire/blocks`: what a client of the content-block protocol makes of its frames.

/** A frame of the content-block protocol. */
export interface BlockFrame {
  type: string;
  [field: string]: any;
}

/** A block of a turn as it is shown. */
export interface ShownBlock {
  index: number;
  /** `text`, `thinking`, `tool_use`, `tool_result`, `approval_request`, …; `terminal_user_stopped` and `terminal_error` end a turn. */
  type: string;
  text?: string;
  thinking?: string;
  /** What came of a tool, on its `tool_use`. */
  toolResult?: unknown;
  toolResultError?: boolean;
  artifact?: unknown;
  actionRequests?: { name: string; args: unknown; tool_use_id?: string }[];
  reviewConfigs?: unknown[];
  timeoutSeconds?: number;
  processingStatus?: string;
  processingMessage?: string;
  extras?: Record<string, unknown>;
  [field: string]: unknown;
}

export interface Turn {
  messageId: string | null;
  blocks: readonly ShownBlock[];
  isStreaming: boolean;
  stopReason: string | null;
  /** The token with which to subscribe again. */
  lastEventId: string | null;
}

const EMPTY: Turn = { messageId: null, blocks: [], isStreaming: false, stopReason: null, lastEventId: null };

/**
 * Takes the frames of one session and has the turn that they make. The turn is a value: a change makes a new
 * one, in which the blocks that did not change are the same.
 *
 * Frames count once the last of an event is there (the one with `event_id`): whoever is cut between two of
 * them gets both again.
 */
export class BlockStream {
  #turn: Turn = EMPTY;
  #blocks = new Map<number, ShownBlock>();
  /** Where the `tool_use` of an id is. */
  #tools = new Map<string, number>();
  /** Which result went into which `tool_use`. */
  #merged = new Set<number>();
  #group: BlockFrame[] = [];
  #dirty = false;

  /** Takes a frame; whether there is something new to show. */
  push(frame: BlockFrame): boolean {
    this.#group.push(frame);
    if (!frame["event_id"]) return false;
    for (const each of this.#group) this.handleEvent(each);
    this.#group = [];
    this.#turn = { ...this.turn, lastEventId: frame["event_id"] };
    return true;
  }

  /** The connection was lost: what came of half an event comes again. */
  lost(): void {
    this.#group = [];
  }

  get turn(): Turn {
    if (this.#dirty) {
      this.#dirty = false;
      const shown = [...this.#blocks.values()].filter(({ index }) => !this.#merged.has(index));
      this.#turn = { ...this.#turn, blocks: shown.sort((a, b) => a.index - b.index) };
    }
    return this.#turn;
  }

  #set(change: Partial<Turn>): void {
    this.#turn = { ...this.turn, ...change };
  }

  /** Applies a frame at once. */
  handleEvent(frame: BlockFrame): void {
    const { index } = frame as BlockFrame & { index: number };
    switch (frame.type) {
      case "message_start":
        this.#blocks.clear();
        this.#tools.clear();
        this.#merged.clear();
        this.#set({ ...EMPTY, messageId: frame["message_id"] ?? null, isStreaming: true, lastEventId: this.#turn.lastEventId });
        break;
      case "content_block_start": {
        const block: ShownBlock = { ...frame["content_block"], index };
        this.#blocks.set(index, block);
        if (block.type === "tool_use") this.#tools.set(String(block["id"] ?? block["tool_use_id"]), index);
        if (block.type === "tool_result") this.#result(block);
        break;
      }
      case "content_block_delta":
        this.#change(index, (block) => grown(block, frame["delta"] ?? {}));
        return;
      case "content_block_stop":
        if (frame["is_final"] === undefined) return;
        this.#change(index, (block) => ({ ...block, is_final: frame["is_final"] }));
        return;
      case "content_block_discard":
        this.#blocks.delete(index);
        break;
      case "message_delta":
        this.#set({ stopReason: frame["delta"]?.stop_reason ?? null });
        return;
      case "message_stop":
        this.#set({ isStreaming: false });
        return;
      case "event":
        if (frame["event"]?.type !== "RESET") return;
        this.#blocks.clear();
        this.#set(EMPTY);
        break;
      default:
        return;
    }
    this.#dirty = true;
  }

  /** A result is shown on the call that it is of. */
  #result(result: ShownBlock): void {
    const tool = this.#tools.get(String(result["tool_use_id"]));
    if (tool === undefined) return;
    this.#merged.add(result.index);
    const { content, status, artifact } = result as ShownBlock & { content?: unknown; status?: string };
    this.#change(tool, (block) => ({ ...block, toolResult: content, toolResultError: status === "error", artifact }));
  }

  #change(index: number, change: (block: ShownBlock) => ShownBlock): void {
    const block = this.#blocks.get(index);
    if (!block) return;
    this.#blocks.set(index, change(block));
    this.#dirty = true;
  }
}

function grown(block: ShownBlock, delta: Record<string, any>): ShownBlock {
  const next = { ...block };
  if (delta["type"] === "text_delta") {
    next.text = (block.text ?? "") + (delta["text"] ?? "");
    const subtype = delta["extras"]?.block_subtype;
    if (subtype === "user_stopped" || subtype === "error") {
      next.type = `terminal_${subtype}`;
      next.extras = delta["extras"];
    }
  } else if (delta["type"] === "thinking_delta") {
    next.thinking = (block.thinking ?? "") + (delta["thinking"] ?? "");
  }
  if (delta["action_requests"]) {
    next.actionRequests = delta["action_requests"];
    next.reviewConfigs = delta["review_configs"];
    next.timeoutSeconds = delta["timeout_seconds"];
  }
  if (delta["status"]) next.processingStatus = delta["status"];
  if (delta["message"]) next.processingMessage = delta["message"];
  return next;
}
