// The middle: one conversation, or the page from which a new one starts.
import { lazyComponent } from "../lazy.tsx";
import "./conversation.css";
import { Welcome } from "./welcome.tsx";

/** What an open conversation needs, and a first visit does not. */
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
