// Three panes: sessions, the conversation, and what is behind it. Below 900 px one at a time.
import { useEffect, useState, useSyncExternalStore } from 'react';
import { Conversation } from './conversation/conversation.tsx';
import { Help } from './help.tsx';
import { Inspect } from './inspect/inspect.tsx';
import { useKeys } from './keys.ts';
import { go, useRoute } from './route.ts';
import { Sessions } from './sessions/sessions.tsx';
import { useSessions } from './sessions/store.ts';
import { Icon } from './ui/icon.tsx';
import './ui/ui.css';

export function App() {
  const { session, at, pane } = useRoute();
  const { isLocked, isLoaded, sessions, query } = useSessions();
  // Where only one pane fits, whether a new conversation is written or the list is read.
  const [isWriting, setWriting] = useState(false);
  useEffect(() => {
    const list = () => setWriting(false);
    window.addEventListener('turnwire:list', list);
    return () => window.removeEventListener('turnwire:list', list);
  }, []);
  useEffect(() => setWriting(false), [session]);
  const startNew = () => {
    go({ session: null, at: null, pane: null });
    setWriting(true);
    setTimeout(() => document.getElementById('composer')?.focus());
  };
  useKeys({ n: startNew });
  const isNarrow = useNarrow();
  const isFirstVisit = isLoaded && sessions.length === 0 && query === '';
  const shows = isLocked ? 'sessions' : session === null ? (isWriting || isFirstVisit ? 'conversation' : 'sessions') : pane === null ? 'conversation' : 'inspect';
  return (
    <div className="app" data-shows={shows} data-pane={session !== null && pane !== null && !isLocked}>
      {!isLocked && at === null && (!isNarrow || shows === 'conversation') && (
        <a className="skip" href="#composer" onClick={(event) => {
          event.preventDefault();
          document.getElementById('composer')?.focus();
        }}>Skip to writing</a>
      )}
      <Sessions selected={session} isMain={isNarrow && shows === 'sessions'} onNew={startNew} />
      {isLocked ? (
        <main className="conversation">
          <p className="dim center">Sign in to see the conversations of this server.</p>
        </main>
      ) : (
        <Conversation key={session} session={session} />
      )}
      {session !== null && pane !== null && !isLocked && (
        <div className="beside">
          <button type="button" className="link narrow beside-back" onClick={() => go({ pane: null })}>
            <Icon name="back" size={12} /> conversation
          </button>
          <Inspect key={session} session={session} pane={pane} isMain={isNarrow} />
        </div>
      )}
      <Help />
    </div>
  );
}

const NARROW = window.matchMedia('(max-width: 899px)');

/** Whether only one pane fits. */
function useNarrow(): boolean {
  return useSyncExternalStore(
    (changed) => {
      NARROW.addEventListener('change', changed);
      return () => NARROW.removeEventListener('change', changed);
    },
    () => NARROW.matches,
  );
}
