// The messages of a conversation, from the oldest that is loaded to the end.
import { memo, type ReactNode, useMemo, useState } from "react";
import type { MsgJson } from "turnwire/message";
import { Icon } from "../ui/icon.tsx";
import { LoadMore } from "../ui/load-more.tsx";
import { Batches } from "./batches.ts";
import { Message } from "./message.tsx";
import { useScroll } from "./scroll.ts";

interface Props {
  messages: readonly MsgJson[];
  /** Replies that a retry replaced, by the message they stood before. */
  replaced: ReadonlyMap<string, MsgJson[]>;
  hasMore: boolean;
  loadMore: () => Promise<void>;
  /** Asks for another reply to the last message; null if that is not possible now. */
  retry: (() => void) | null;
  /** Shown after the last message. */
  children?: ReactNode;
}

export function Thread({ messages, replaced, hasMore, loadMore, retry, children }: Props) {
  const [batches] = useState(() => new Batches());
  const list = useMemo(() => batches.update(messages), [batches, messages]);
  const { box, inside, isFollowing, toEnd } = useScroll(list[0]?.key ?? null);
  return (
    <div className="thread-frame">
      <div className="thread" ref={box} tabIndex={0} role="region" aria-label="Messages">
        <div className="thread-in" ref={inside}>
          {hasMore && <LoadMore load={loadMore} name="earlier messages" className="earlier" inside=".thread" />}
          {list.map(({ key, messages }, at) => (
            <MessageBatch
              key={key}
              id={key}
              messages={messages}
              replaced={replaced}
              retry={at === list.length - 1 ? retry : null}
            />
          ))}
          <Replaced replies={replaced.get("")} />
          {children}
        </div>
      </div>
      {!isFollowing && (
        <button type="button" className="latest" onClick={toEnd}>
          <Icon name="down" size={12} /> Jump to latest
        </button>
      )}
    </div>
  );
}

/** A batch of messages; while it is out of sight the browser does not lay it out. */
const MessageBatch = memo(function MessageBatch({
  id,
  messages,
  replaced,
  retry,
}: Pick<Props, "messages" | "replaced" | "retry"> & { id: number }) {
  const last = messages.at(-1);
  return (
    <div className="some" data-batch={id}>
      {messages.map((message) => (
        <div key={message.id}>
          <Replaced replies={replaced.get(message.id ?? "")} />
          <Message
            message={message}
            actions={message === last && retry !== null ? <RetryButton retry={retry} /> : undefined}
          />
        </div>
      ))}
    </div>
  );
});

function RetryButton({ retry }: { retry: () => void }) {
  return (
    <button
      type="button"
      className="icon-button"
      onClick={retry}
      title="Ask for a new reply; this one leaves the history and stays in the log"
    >
      <Icon name="retry" /> Retry
    </button>
  );
}

function Replaced({ replies }: { replies: readonly MsgJson[] | undefined }) {
  const [isShown, setShown] = useState(false);
  if (!replies || replies.length === 0) return null;
  return (
    <div className="replaced">
      <button type="button" className="link" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
        <Icon name={isShown ? "down" : "right"} size={12} />{" "}
        {replies.length === 1 ? "1 earlier reply" : `${replies.length} earlier replies`}
      </button>
      {isShown && replies.map((message) => <Message key={message.id} message={message} isNested />)}
    </div>
  );
}
