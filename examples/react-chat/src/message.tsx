import { memo } from "react";
import { type Approval, type ContentBlock, type MsgJson, textOf } from "turnwire/react";

/** A message. One that did not change is the same object, so `memo` skips it. */
export const Message = memo(({ message }: { message: MsgJson }) => (
  <article className={message.role}>
    {message.content.map((block, at) => (
      <Block key={at} block={block} />
    ))}
    {message.error && <p role="alert">{message.error.message}</p>}
  </article>
));

function Block({ block }: { block: ContentBlock }) {
  switch (block.type) {
    case "text":
      return <p>{block.text}</p>;
    case "thinking":
      return <p className="thinking">{block.thinking}</p>;
    case "tool_call":
      return (
        <code>
          {block.name} {block.input}
        </code>
      );
    case "tool_result":
      return <pre>{typeof block.output === "string" ? block.output : textOf({ content: block.output })}</pre>;
    default:
      return null;
  }
}

interface QuestionProps {
  call: Approval;
  onAllow: () => void;
  onDeny: () => void;
}

/** A call that waits for an approval. */
export function Question({ call, onAllow, onDeny }: QuestionProps) {
  // The page executes no tools.
  if (call.kind !== "confirm") return null;
  return (
    <article className="approval">
      <span>May {call.tool_call.name} run?</span>
      <button type="button" onClick={onAllow}>
        Allow
      </button>
      <button type="button" onClick={onDeny}>
        Deny
      </button>
    </article>
  );
}
