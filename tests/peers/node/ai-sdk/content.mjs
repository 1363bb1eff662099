// What a message says, told in the same way from ours and from theirs, block by block.

const RESULTS = {
  "output-available": ["success"],
  "output-error": ["error", "interrupted"],
  "output-denied": ["denied"],
};

const parsed = (text) => {
  try {
    return JSON.parse(text === "" ? "{}" : text);
  } catch {
    return text;
  }
};

/** The server's own message. */
export function ours(message) {
  const results = new Map(
    message.content.filter((block) => block.type === "tool_result").map((block) => [block.id, block]),
  );
  return message.content
    .filter((block) => block.type !== "tool_result")
    .map((block) => {
      switch (block.type) {
        case "text":
          return ["text", block.text];
        case "thinking":
          return ["thinking", block.thinking];
        case "data": {
          const { type, data, url, media_type: mediaType } = block.source;
          return [
            "file",
            mediaType,
            type === "base64" ? `data:${mediaType};base64,${data}` : url,
            block.name ?? undefined,
          ];
        }
        case "tool_call": {
          const result = results.get(block.id);
          const output =
            typeof result?.output === "string" ? result.output : result?.output.map((part) => part.text).join("\n");
          // What the model is told of a denial the client is not.
          const told = result?.state === "denied" ? undefined : output;
          return ["tool", block.id, block.name, parsed(block.input), result?.state ?? block.state, told];
        }
        default: {
          const { id, created_at, finished_at, from_wire, ...rest } = block;
          return [block.type, rest];
        }
      }
    });
}

/** The client's message, beside the server's: the state of a result has more words in ours. */
export function theirs(message, known) {
  const states = new Map(
    (known?.content ?? []).filter((block) => block.type === "tool_result").map((block) => [block.id, block]),
  );
  return message.parts
    .filter((part) => part.type !== "step-start" && part.type !== "data-subagent")
    .map((part) => {
      switch (part.type) {
        case "text":
          return ["text", part.text];
        case "reasoning":
          return ["thinking", part.text];
        case "file":
          return ["file", part.mediaType, part.url, part.filename ?? part.providerMetadata?.turnwire?.name];
        case "dynamic-tool": {
          const { toolCallId: id, toolName, input, state } = part;
          const words = RESULTS[state];
          const said = states.get(id)?.state;
          const told = words ? (words.includes(said) ? said : words[0]) : state;
          let output = part.output ?? part.errorText;
          if (output !== undefined && typeof output !== "string") output = JSON.stringify(output);
          return ["tool", id, toolName, input, told, output];
        }
        default: {
          const { id, ...rest } = part;
          return [part.type, rest];
        }
      }
    });
}
