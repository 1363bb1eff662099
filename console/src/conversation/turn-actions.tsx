// What can be done with one message: copy it or a link to it, answer it again, edit and send it again.
import { useContext, useId, useState } from "react";
import type { MsgJson } from "turnwire/message";
import { useEscape } from "../escape.ts";
import { formatRoute, useRoute } from "../route.ts";
import { Copy } from "../ui/copy.tsx";
import { Icon } from "../ui/icon.tsx";
import { ConversationContext } from "./context.ts";

export function textOf({ content }: Pick<MsgJson, "content">): string {
  return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
}

export function TurnActions({ message, edit }: { message: MsgJson; edit: () => void }) {
  const { turns } = useContext(ConversationContext);
  const { session } = useRoute();
  const isReply = message.role === "assistant";
  const { id } = message;
  const link = `${window.location.href.split("#")[0]}${formatRoute({ session, at: null, pane: null, message: id ?? null })}`;
  return (
    <footer>
      <Copy text={() => textOf(message)} label={isReply ? "Copy reply" : "Copy message"} />
      <Copy text={link} label="Copy link to this message" icon="link" />
      {turns !== null && id !== undefined && isReply && (
        <button
          type="button"
          className="icon-button"
          onClick={() => turns.retry(id)}
          title="Ask for a new reply. This reply and everything after it leave the history; the log keeps them."
        >
          <Icon name="retry" /> Retry
        </button>
      )}
      {turns !== null && id !== undefined && message.role === "user" && textOf(message) !== "" && (
        <button type="button" className="icon-button" onClick={edit} title="Edit and send again">
          <Icon name="pen" /> Edit
        </button>
      )}
    </footer>
  );
}

/** A user's message while it is edited. */
export function EditMessage({ message, onClose }: { message: MsgJson; onClose: () => void }) {
  const { turns } = useContext(ConversationContext);
  const [text, setText] = useState(() => textOf(message));
  const id = useId();
  useEscape(true, onClose);
  return (
    <form
      className="edit-message"
      aria-label="Edit the message"
      onSubmit={(event) => {
        event.preventDefault();
        if (message.id !== undefined && text.trim() !== "") turns?.edit(message.id, text);
        onClose();
      }}
    >
      <label className="visually-hidden" htmlFor={id}>
        Message
      </label>
      <textarea id={id} value={text} autoFocus rows={3} onChange={(event) => setText(event.target.value)} />
      <p className="dim">Everything after this message leaves the history. The log keeps it.</p>
      <div className="actions">
        <button type="submit" className="button main" disabled={text.trim() === ""}>
          Send again
        </button>
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </form>
  );
}
