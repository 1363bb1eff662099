import { type ChatAddToolApproveResponseFunction, getToolName, isToolUIPart, type UIMessage } from "ai";

interface Props {
  message: UIMessage;
  answer: ChatAddToolApproveResponseFunction;
}

export const Message = ({ message, answer }: Props) => (
  <article className={message.role}>
    {message.parts.map((part, at) => (
      <Part key={at} part={part} answer={answer} />
    ))}
  </article>
);

function Part({ part, answer }: { part: UIMessage["parts"][number]; answer: Props["answer"] }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <p className="thinking">{part.text}</p>;
  if (!isToolUIPart(part)) return null;
  return (
    <>
      <code>
        {getToolName(part)} {JSON.stringify(part.input)}
      </code>
      {part.state === "approval-requested" && (
        <div className="approval">
          <span>May {getToolName(part)} run?</span>
          <button type="button" onClick={() => answer({ id: part.approval.id, approved: true })}>
            Allow
          </button>
          <button type="button" onClick={() => answer({ id: part.approval.id, approved: false })}>
            Deny
          </button>
        </div>
      )}
      {part.state === "output-available" && <pre>{String(part.output)}</pre>}
      {part.state === "output-error" && <pre>{part.errorText}</pre>}
    </>
  );
}
