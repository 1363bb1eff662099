// `turnwire/blocks`: folds the frames of the content-block protocol for a client.

/** A frame of the content-block protocol. */
export interface BlockFrame {
  type: string;
  [field: string]: any;
}

/** A block of a turn, for display. */
export interface ShownBlock {
  index: number;
  /** `text`, `thinking`, `tool_use`, `tool_result`, `approval_request`, …; `terminal_user_stopped` and `terminal_error` end a turn. */
  type: string;
  text?: string;
  thinking?: string;
  /** The result of the tool, on its `tool_use`. */
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
  /** The token to subscribe with again. */
  lastEventId: string | null;
}

const EMPTY: Turn = { messageId: null, blocks: [], isStreaming: false, stopReason: null, lastEventId: null };

/**
 * Folds the frames of one session into the current turn. The turn is immutable: a change makes a new one that shares
 * the unchanged blocks.
 *
 * Frames count once the last frame of their event has arrived (the one with `event_id`): after a disconnect between two
 * of them both come again.
 */
export class BlockStream {
  #turn: Turn = EMPTY;
  #blocks = new Map<number, ShownBlock>();
  /** The index of each `tool_use`, by id. */
  #tools = new Map<string, number>();
  /** Which result belongs to which `tool_use`. */
  #merged = new Set<number>();
  #group: BlockFrame[] = [];
  #dirty = false;

  /** Adds a frame; true if there is something new to show. */
  push(frame: BlockFrame): boolean {
    const { event_id: lastEventId } = frame;
    this.#group.push(frame);
    if (!lastEventId) return false;
    for (const each of this.#group) this.handleEvent(each);
    this.#group = [];
    this.#set({ lastEventId });
    return true;
  }

  /** The connection was lost: frames of an incomplete event are dropped, they come again. */
  lost(): void {
    this.#group = [];
  }

  get turn(): Turn {
    if (this.#dirty) {
      const shown = [...this.#blocks.values()].filter(({ index }) => !this.#merged.has(index));
      this.#set({ blocks: shown.sort((a, b) => a.index - b.index) });
      this.#dirty = false;
    }
    return this.#turn;
  }

  #set(change: Partial<Turn>): void {
    this.#turn = { ...this.#turn, ...change };
  }

  /** Applies a frame. */
  handleEvent(frame: BlockFrame): void {
    const { type, index, delta, is_final, content_block, message_id, event } = frame;
    switch (type) {
      case "message_start":
        this.#clear({
          ...EMPTY,
          messageId: message_id ?? null,
          isStreaming: true,
          lastEventId: this.#turn.lastEventId,
        });
        break;
      case "content_block_start": {
        const block: ShownBlock = { ...content_block, index };
        this.#blocks.set(index, block);
        if (block.type === "tool_use") this.#tools.set(`${block["id"] ?? block["tool_use_id"]}`, index);
        if (block.type === "tool_result") this.#result(block);
        break;
      }
      case "content_block_delta":
        this.#change(index, (block) => applyDelta(block, delta ?? {}));
        break;
      case "content_block_stop":
        if (is_final !== undefined) this.#change(index, () => ({ is_final }));
        break;
      case "content_block_discard":
        this.#blocks.delete(index);
        break;
      case "message_delta":
        this.#set({ stopReason: delta?.stop_reason ?? null });
        break;
      case "message_stop":
        this.#set({ isStreaming: false });
        break;
      case "event":
        if (event?.type === "RESET") this.#clear(EMPTY);
        break;
      default:
        return;
    }
    this.#dirty = true;
  }

  #clear(turn: Turn): void {
    this.#blocks.clear();
    this.#tools.clear();
    this.#merged.clear();
    this.#set(turn);
  }

  /** A result is shown on its call. */
  #result({ index, tool_use_id, content, status, artifact }: ShownBlock): void {
    const tool = this.#tools.get(`${tool_use_id}`);
    if (tool === undefined) return;
    this.#merged.add(index);
    this.#change(tool, () => ({ toolResult: content, toolResultError: status === "error", artifact }));
  }

  #change(index: number, change: (block: ShownBlock) => Partial<ShownBlock>): void {
    const block = this.#blocks.get(index);
    if (block) this.#blocks.set(index, { ...block, ...change(block) } as ShownBlock);
  }
}

/** The field of a delta, and the field of the block it extends. */
const DELTA_FIELDS: Record<string, string> = {
  action_requests: "actionRequests",
  review_configs: "reviewConfigs",
  timeout_seconds: "timeoutSeconds",
  status: "processingStatus",
  message: "processingMessage",
};

function applyDelta(block: ShownBlock, delta: Record<string, any>): Partial<ShownBlock> {
  const { type, text = "", thinking = "", extras } = delta;
  const next: Partial<ShownBlock> = {};
  for (const key in DELTA_FIELDS) if (delta[key] != null) next[DELTA_FIELDS[key]!] = delta[key];
  if (type === "thinking_delta") next.thinking = (block.thinking ?? "") + thinking;
  if (type === "text_delta") {
    next.text = (block.text ?? "") + text;
    if (/^(user_stopped|error)$/.test(extras?.block_subtype))
      Object.assign(next, { type: `terminal_${extras.block_subtype}`, extras });
  }
  return next;
}
