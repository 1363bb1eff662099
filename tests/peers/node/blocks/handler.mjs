// The handler of the protocol's document ("React.js — Xử Lý Event Stream"), line by line: only React's
// hooks are variables here.

export function streamProcessor() {
  let blocks = [];
  let isStreaming = false;
  const setBlocks = (next) => void (blocks = typeof next === "function" ? next(blocks) : next);
  const setIsStreaming = (next) => void (isStreaming = next);
  const inProgress = { current: new Map() }; // index → block that streams
  const toolUseMap = { current: new Map() }; // id of a tool_use → its place in blocks

  const handleEvent = (msg) => {
    switch (msg.type) {
      case "message_start":
        inProgress.current.clear();
        toolUseMap.current.clear();
        setBlocks([]);
        setIsStreaming(true);
        break;

      case "content_block_start": {
        const cb = msg.content_block;
        inProgress.current.set(msg.index, { index: msg.index, ...cb, _parts: [] });
        break;
      }

      case "content_block_delta": {
        const block = inProgress.current.get(msg.index);
        if (!block) break;
        const d = msg.delta;
        if (d.type === "text_delta") {
          block._parts.push(d.text ?? "");
          block.text = block._parts.join("");
          if (d.extras?.block_subtype === "user_stopped") {
            block.type = "terminal_user_stopped";
          } else if (d.extras?.block_subtype === "error") {
            block.type = "terminal_error";
            block.extras = d.extras;
          }
        } else if (d.type === "thinking_delta") {
          block._parts.push(d.thinking ?? "");
          block.thinking = block._parts.join("");
        }
        if (d.action_requests) {
          block.actionRequests = d.action_requests;
          block.reviewConfigs = d.review_configs;
          block.timeoutSeconds = d.timeout_seconds;
        }
        if (d.status) block.processingStatus = d.status;
        if (d.message) block.processingMessage = d.message;
        break;
      }

      case "content_block_stop": {
        const block = inProgress.current.get(msg.index);
        if (!block) break;
        inProgress.current.delete(msg.index);
        if (block.type === "tool_result") {
          const idx = toolUseMap.current.get(block.tool_use_id);
          if (idx != null) {
            setBlocks((prev) =>
              prev.map((b, i) =>
                i === idx
                  ? {
                      ...b,
                      toolResult: block.content,
                      toolResultError: block.status === "error",
                      artifact: block.artifact,
                    }
                  : b,
              ),
            );
            break;
          }
        }
        setBlocks((prev) => {
          const next = [...prev, block];
          if (block.type === "tool_use") {
            toolUseMap.current.set(block.id, next.length - 1);
          }
          return next;
        });
        break;
      }

      case "message_stop":
        setIsStreaming(false);
        break;
    }
  };

  return {
    handleEvent,
    get blocks() {
      return blocks;
    },
    get isStreaming() {
      return isStreaming;
    },
  };
}
