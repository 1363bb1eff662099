// One message: text, thinking, tool calls, results, time and tokens.
import { memo, useContext, useMemo, useState } from "react";
import type { HintBlock, MsgJson, ReplyError, ThinkingBlock } from "turnwire/message";
import { useAbout } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { sentence } from "../sentence.ts";
import { between, clock, duration, exactTime } from "../time.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Icon } from "../ui/icon.tsx";
import { Shape, State } from "../ui/state.tsx";
import { finishLabel, type Item, toItems, totalSpent } from "./content-items.ts";
import { ConversationContext } from "./context.ts";
import { Data } from "./data-block.tsx";
import { visible, visibleName } from "./json.ts";
import { Markdown } from "./markdown/markdown.tsx";
import { Json, Tool } from "./tool.tsx";
import { TraceButton } from "./trace-button.tsx";
import { EditMessage, TurnActions } from "./turn-actions.tsx";
import { UserText } from "./user-text.tsx";

interface Props {
  message: MsgJson;
  isNested?: boolean;
}

export const Message = memo(function Message({ message, isNested = false }: Props) {
  return (
    <Boundary name="This message" raw={JSON.stringify(message.content)} resetKey={message.finished_at ?? ""}>
      <WholeMessage message={message} isNested={isNested} />
    </Boundary>
  );
});

function WholeMessage({ message, isNested }: Required<Props>) {
  const [isEdited, setEdited] = useState(false);
  const { turns } = useContext(ConversationContext);
  const { role, name, created_at = "" } = message;
  const shown = useMemo(() => toItems(message.content), [message.content]);
  const isReply = role === "assistant";
  const isOpen = isReply && message.finished_at === null;
  const author = name ? visibleName(name) : role === "user" ? "You" : role;
  return (
    <article
      className="message"
      data-role={role}
      data-nested={isNested}
      data-open={isOpen}
      data-message={message.id}
      tabIndex={-1}
      aria-label={`${role === "user" ? "You" : author}${created_at && `, ${clock(created_at)}`}`}
      aria-busy={isOpen}
    >
      <header>
        <h2 className="visually-hidden">{role === "user" && name === "user" ? "You" : author}</h2>
        <bdi className="who" aria-hidden="true">
          {role === "user" && name === "user" ? "You" : author}
        </bdi>
        {created_at !== "" && (
          <time dateTime={created_at} title={exactTime(created_at)}>
            {clock(created_at)}
          </time>
        )}
        {message.metadata?.claimed === true && (
          <span
            className="dim"
            title="A client sent this as earlier history. The server cannot check that it was really said."
          >
            Unverified: from a client's history
          </span>
        )}
        {isReply && <ReplyStats message={message} />}
        {isReply && <TraceButton reply={message.id ?? ""} call="" name={author} />}
      </header>
      <div className="content">
        {isEdited && turns !== null ? (
          <EditMessage message={message} onClose={() => setEdited(false)} />
        ) : (
          shown.map((item, at) => (
            // Each on its own: a text that cannot be shown hides no question about a call.
            <Boundary
              key={item.key}
              name="This part of the message"
              raw={rawText(item)}
              resetKey={message.finished_at ?? ""}
            >
              <Content item={item} isOpen={isOpen} isLast={at === shown.length - 1} role={role} />
            </Boundary>
          ))
        )}
        {isOpen && shown.length === 0 && (
          <p className="dim">
            <span className="caret" /> Starting
          </p>
        )}
        {message.structured_output != null && (
          <details className="structured">
            <summary>Structured output</summary>
            <Json text={JSON.stringify(message.structured_output)} label="Structured output" />
          </details>
        )}
        <ReplyErrorNote message={message} />
      </div>
      {!isOpen && !isNested && <TurnActions message={message} edit={() => setEdited(true)} />}
    </article>
  );
}

/** A part of a message as it was written. */
function rawText(item: Item): string {
  if (item.kind === "text") return item.block.text;
  if (item.kind === "thinking") return item.block.thinking;
  return JSON.stringify(item.kind === "tool" ? [item.call, item.result] : item.block);
}

/** Duration, tokens and cost, sub-agents included. */
function ReplyStats({ message }: { message: MsgJson }) {
  const { nested, forkedAt } = useContext(ConversationContext);
  const { currency } = useAbout();
  const ms = between(message.created_at, message.finished_at);
  // A reply that was open at a fork ends with the fork, whenever that was.
  const isCut =
    forkedAt !== undefined && (message.created_at ?? "") < forkedAt && (message.finished_at ?? "") >= forkedAt;
  const { input, output, cost, agents } = totalSpent(message, nested);
  return (
    <>
      {isCut && <State tone="wait">Cut off by the fork</State>}
      {ms !== null && !isCut && (
        <span className="num" title="Total time, including waiting">
          {duration(ms)}
        </span>
      )}
      {input + output > 0 && (
        <span
          className="num"
          title={`${count(input)} tokens in, ${count(output)} out${agents > 0 ? `, ${agents === 1 ? "1 sub-agent" : `${agents} sub-agents`} included` : ""}`}
        >
          {count(input + output)} tokens
        </span>
      )}
      {cost !== null && (
        <span className="num" title="As charged when the model calls ended">
          {formatMoney(cost, currency)}
        </span>
      )}
      {!isCut &&
        message.finished_reason !== null &&
        message.finished_reason !== "completed" &&
        message.finished_reason !== "error" && <State tone="bad">{finishLabel(message.finished_reason)}</State>}
    </>
  );
}

function Content({ item, isOpen, isLast, role }: { item: Item; isOpen: boolean; isLast: boolean; role: string }) {
  switch (item.kind) {
    case "text": {
      // A user's text is shown verbatim.
      if (role === "user") return <UserText text={item.block.text} />;
      return <Markdown text={item.block.text} growing={isOpen && item.block.finished_at == null} />;
    }
    case "thinking":
      return <Thinking block={item.block} isGrowing={isOpen && item.block.finished_at == null && isLast} />;
    case "data":
      return <Data block={item.block} growing={isOpen && item.block.finished_at == null} />;
    case "hint":
      return <Hint block={item.block} />;
    case "tool":
      return <Tool call={item.call} result={item.result} isOpen={isOpen} />;
    case "other":
      return (
        <details className="structured">
          <summary>{item.block.type}</summary>
          <Json text={JSON.stringify(item.block)} label={item.block.type} />
        </details>
      );
  }
}

function Thinking({ block, isGrowing }: { block: ThinkingBlock; isGrowing: boolean }) {
  const [isShown, setShown] = useState(false);
  const ms = between(block.created_at, block.finished_at);
  const label = isGrowing ? "Thinking" : ms === null ? "Thought" : `Thought for ${duration(ms)}`;
  return (
    <div className="thinking">
      <button type="button" className="link" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
        {isGrowing ? <Shape tone="run" /> : <Icon name={isShown ? "down" : "right"} size={12} />} {label}
      </button>
      {isShown &&
        (block.thinking === "" ? (
          <p className="dim">The provider did not send the thinking text.</p>
        ) : (
          <Markdown text={block.thinking} growing={isGrowing} />
        ))}
    </div>
  );
}

function Hint({ block: { hint, source } }: { block: HintBlock }) {
  return (
    <div className="hint" role="note" aria-label="Hint">
      <Icon name="bolt" />
      <div>
        <span className="dim">
          Hint
          {source && (
            <>
              {" from "}
              <bdi>{visible(source)}</bdi>
            </>
          )}
        </span>
        {typeof hint === "string" ? (
          <Markdown text={hint} />
        ) : (
          hint.map((part, at) =>
            part.type === "text" ? <Markdown key={at} text={part.text} /> : <Data key={at} block={part} />,
          )
        )}
      </div>
    </div>
  );
}

/** Advice for each kind of error. */
const ADVICE: Record<string, string> = {
  authentication: "The API key is missing or invalid: check api_key_env of this agent in turnwire.toml.",
  permission: "The API key has no access to this model: use another model or another key.",
  rate_limit: "The provider's rate limit is reached. Wait, then retry.",
  invalid_request:
    "The provider rejected the request; the message says why. Rephrase the message, or start a new conversation.",
  upstream: "The provider failed. Retry; if it fails again, check the provider’s status page.",
  connection: "The provider is unreachable: check base_url of this agent and the network, then retry.",
  internal: "Internal error: see the server’s log.",
  setup: "The agent's settings are invalid: run turnwire config check.",
};

function ReplyErrorNote({ message: { error } }: { message: { error: ReplyError | null } }) {
  if (error === null) return null;
  return (
    <div className="problem" role="note" aria-label="Error">
      <Shape tone="bad" />
      <div>
        <strong>{sentence(error.message || "The reply failed.")}</strong>
        <p>
          <code>{error.type}</code> {ADVICE[error.type] ?? "Retry, or see the server’s log."}
        </p>
      </div>
    </div>
  );
}
