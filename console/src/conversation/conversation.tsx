// The middle pane: one conversation, or the page that starts a new one.
import { lazyComponent } from "../lazy.tsx";
import "./conversation.css";
import { Welcome } from "./welcome.tsx";

/** Loaded later: the first visit does not need it. */
export const OpenConversation = lazyComponent(() =>
  import("./open-conversation.tsx").then(({ OpenConversation }) => OpenConversation),
);

export function Conversation({ session }: { session: string | null }) {
  if (session === null) return <Welcome />;
  return (
    <OpenConversation session={session}>
      {(problem) => (
        <main className="conversation">
          <header className="head" />
          {problem}
        </main>
      )}
    </OpenConversation>
  );
}
