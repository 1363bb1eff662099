// Three panes: sessions, the conversation, and what is behind it. Below 900 px one at a time.
import { Conversation } from './conversation/conversation.tsx';
import { Inspect } from './inspect/inspect.tsx';
import { useRoute } from './route.ts';
import { Sessions } from './sessions/sessions.tsx';

export function App() {
  const { session, pane } = useRoute();
  return (
    <div className="app" data-session={session !== null} data-pane={pane !== null}>
      <Sessions selected={session} />
      <Conversation key={session} session={session} />
      {session !== null && pane !== null && <Inspect key={session} session={session} pane={pane} />}
    </div>
  );
}
