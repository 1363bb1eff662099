// The middle: one conversation, or the page from which a new one starts.
import { later } from "../later.tsx";
import "./conversation.css";
import { Welcome } from "./welcome.tsx";

/** What an open conversation needs, and a first visit does not. */
export const Open = later(() => import("./open.tsx").then(({ Open }) => Open));

export function Conversation({ session }: { session: string | null }) {
  if (session === null) return <Welcome />;
  return (
    <Open session={session}>
      {(problem) => (
        <main className="conversation">
          <header className="head" />
          {problem}
        </main>
      )}
    </Open>
  );
}
