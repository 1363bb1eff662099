// The messages of a conversation, from the oldest that is loaded to the end.
import { memo, type ReactNode, useMemo, useState } from "react";
import type { MsgJson } from "turnwire/message";
import { lazyComponent } from "../lazy.tsx";
import { dayOf } from "../time.ts";
import { Icon } from "../ui/icon.tsx";
import { LoadMore } from "../ui/load-more.tsx";
import { Batches } from "./batches.ts";
import { useJump } from "./jump.ts";
import { copyLongText } from "./markdown/copy-long-text.ts";
import { Message } from "./message.tsx";
import { useScroll } from "./scroll.ts";

const CompareReplies = lazyComponent(() => import("./compare.tsx").then(({ CompareReplies }) => CompareReplies));

interface Props {
  messages: readonly MsgJson[];
  /** Replies that a retry replaced, by the message they stood before. */
  replaced: ReadonlyMap<string, MsgJson[]>;
  hasMore: boolean;
  loadMore: () => Promise<void>;
  /** Shown after the last message. */
  children?: ReactNode;
}

export function Thread({ messages, replaced, hasMore, loadMore, children }: Props) {
  const [batches] = useState(() => new Batches());
  const list = useMemo(() => batches.update(messages), [batches, messages]);
  const { box, inside, isFollowing, toEnd, leaveEnd } = useScroll(list[0]?.key ?? null);
  useJump(box, messages, hasMore, loadMore, leaveEnd);
  return (
    <div className="thread-frame">
      <div className="thread" ref={box} tabIndex={0} role="region" aria-label="Messages" onCopy={copyLongText}>
        <div className="thread-in" ref={inside}>
          {hasMore && <LoadMore load={loadMore} name="earlier messages" className="earlier" inside=".thread" />}
          {list.map(({ key, messages }, at) => (
            <MessageBatch
              key={key}
              id={key}
              messages={messages}
              replaced={replaced}
              before={list[at - 1]?.messages.at(-1)?.created_at}
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
  before,
}: Pick<Props, "messages" | "replaced"> & { id: number; before: string | undefined }) {
  return (
    <div className="some" data-batch={id}>
      {messages.map((message, at) => (
        <div key={message.id}>
          <Day at={message.created_at} before={at === 0 ? before : messages[at - 1]?.created_at} />
          <Replaced replies={replaced.get(message.id ?? "")} now={message} />
          <Message message={message} />
        </div>
      ))}
    </div>
  );
});

/** The date, where a new day begins. */
function Day({ at, before }: { at: string | undefined; before: string | undefined }) {
  if (!at) return null;
  const day = dayOf(at);
  if (day === "" || (before !== undefined && dayOf(before) === day)) return null;
  return (
    <div className="day" role="separator" aria-label={day}>
      <time dateTime={at}>{day}</time>
    </div>
  );
}

/** Earlier replies to the same message, and how they differ from the one that counts. */
function Replaced({ replies, now }: { replies: readonly MsgJson[] | undefined; now?: MsgJson }) {
  const [isShown, setShown] = useState(false);
  const [compared, setCompared] = useState<MsgJson | null>(null);
  if (!replies || replies.length === 0) return null;
  // What an edit replaced has users' messages, too.
  const earlier = replies.filter(({ role }) => role === "assistant");
  const count = earlier.length || replies.length;
  const what = earlier.length === 0 ? "message" : count === 1 ? "reply" : "replies";
  return (
    <div className="replaced">
      <button type="button" className="link" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
        <Icon name={isShown ? "down" : "right"} size={12} />{" "}
        {`${count} earlier ${what}${what === "message" && count > 1 ? "s" : ""}`}
      </button>
      {now?.role === "assistant" && earlier.length > 0 && (
        <button type="button" className="link" onClick={() => setCompared(earlier.at(-1) ?? null)}>
          Compare
        </button>
      )}
      {isShown && replies.map((message) => <Message key={message.id} message={message} isNested />)}
      {compared !== null && now !== undefined && (
        <CompareReplies before={compared} now={now} onClose={() => setCompared(null)}>
          {(problem) => problem}
        </CompareReplies>
      )}
    </div>
  );
}
