// The messages of a conversation, from the oldest that is loaded to the end.
import { useEffect, useRef, useState, type ReactNode } from 'react';
import type { MsgJson } from 'turnwire/message';
import { Icon } from '../ui/icon.tsx';
import { Message } from './message.tsx';
import { useScroll } from './scroll.ts';

interface Props {
  messages: readonly MsgJson[];
  /** Replies that were answered again, by the message before which they stood. */
  replaced: ReadonlyMap<string, MsgJson[]>;
  hasMore: boolean;
  loadMore: () => Promise<void>;
  /** Answers the last message again; nothing where that cannot be done now. */
  retry: (() => void) | null;
  /** What stands behind the last message. */
  children?: ReactNode;
}

export function Thread({ messages, replaced, hasMore, loadMore, retry, children }: Props) {
  const { box, inside, isFollowing, toEnd } = useScroll(messages[0]?.id ?? null);
  const last = messages.at(-1);
  return (
    <div className="thread-frame">
      <div className="thread" ref={box} tabIndex={0} role="region" aria-label="Messages">
        <div className="thread-in" ref={inside}>
          {hasMore && <Earlier load={loadMore} />}
          {messages.map((message) => (
            <div key={message.id} data-id={message.id}>
              <Replaced replies={replaced.get(message.id ?? '')} />
              <Message message={message} actions={message === last && retry !== null ? <RetryButton retry={retry} /> : undefined} />
            </div>
          ))}
          <Replaced replies={replaced.get('')} />
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

function RetryButton({ retry }: { retry: () => void }) {
  return (
    <button type="button" className="icon-button" onClick={retry} title="Answer again; this reply leaves the history, the log keeps it">
      <Icon name="retry" /> Retry
    </button>
  );
}

/** What came before: it is loaded when one comes near, or asks. */
function Earlier({ load }: { load: () => Promise<void> }) {
  const [isLoading, setLoading] = useState(false);
  const [failed, setFailed] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const run = useRef(() => {});
  useEffect(() => {
    run.current = () => {
      if (isLoading) return;
      setLoading(true);
      load().then(
        () => setLoading(false),
        () => {
          setLoading(false);
          setFailed(true);
        },
      );
    };
  });
  useEffect(() => {
    const { current } = button;
    if (!current || isLoading || failed) return;
    const near = new IntersectionObserver(([seen]) => seen?.isIntersecting && run.current(), { root: current.closest('.thread'), rootMargin: '300px 0px 0px' });
    near.observe(current);
    return () => near.disconnect();
  }, [isLoading, failed]);
  return (
    <button ref={button} type="button" className="link earlier" disabled={isLoading} onClick={() => run.current()}>
      {isLoading ? 'loading earlier messages' : failed ? 'could not load earlier messages; try again' : 'earlier messages'}
    </button>
  );
}

function Replaced({ replies }: { replies: readonly MsgJson[] | undefined }) {
  const [isShown, setShown] = useState(false);
  if (!replies || replies.length === 0) return null;
  return (
    <div className="replaced">
      <button type="button" className="link" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
        <Icon name={isShown ? 'down' : 'right'} size={12} /> {replies.length === 1 ? '1 earlier answer' : `${replies.length} earlier answers`}
      </button>
      {isShown && replies.map((message) => <Message key={message.id} message={message} isNested />)}
    </div>
  );
}
