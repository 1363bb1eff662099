// Title, status, connection and menu of a conversation.
import { memo, useEffect, useRef, useState } from "react";
import type { Connection, SessionInfo, Status } from "turnwire";
import { client } from "../client.ts";
import { useKeys } from "../keys.ts";
import { useCan } from "../me.ts";
import { setPageTitle } from "../page-title.ts";
import { navigate, PANES, useRoute } from "../route.ts";
import { useSessionActions } from "../sessions/actions.tsx";
import { BackToList } from "../sessions/back-to-list.tsx";
import { statusLabel } from "../sessions/status.ts";
import { refreshSessions, useSessions } from "../sessions/store.ts";
import { Menu } from "../ui/menu.tsx";
import { State } from "../ui/state.tsx";
import { ConnectionState } from "./connection.tsx";

interface Props {
  session: string;
  info: SessionInfo | null;
  status: Status;
  /** Whether the reply waits for a client instead of a person. */
  isExternal: boolean;
  connection: Connection;
  /** The event that is shown; null: live. */
  at: number | null;
  /** Connects again now. */
  retryNow: () => void;
}

export const Header = memo(function Header({ session, info, status, isExternal, connection, at, retryNow }: Props) {
  const { pane } = useRoute();
  const canApprove = useCan("approve");
  // The list is refreshed more often than the session.
  const listed = useSessions().sessions.find(({ id }) => id === session);
  const title = (listed ?? info)?.title ?? null;
  const { entries, dialogs } = useSessionActions(session, title, listed ?? info);
  const { tone, word } = statusLabel(
    status,
    isExternal ? "client" : canApprove ? "you" : "decision",
    (listed ?? info)?.outcome,
  );
  useKeys({ t: () => navigate({ pane: pane === null ? "timeline" : null }) });
  return (
    <header className="head">
      <BackToList />
      <Title session={session} title={title} at={at} />
      <span className="grow" />
      {at !== null ? (
        <State tone="wait">{`Past, event ${at}`}</State>
      ) : (
        connection.state !== "closed" && <State tone={tone}>{word}</State>
      )}
      <ConnectionState connection={connection} retryNow={retryNow} />
      <div className="panes" role="group" aria-label="Open the inspector">
        {PANES.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={pane === name}
            onClick={() => navigate({ pane: pane === name ? null : name })}
          >
            {name.charAt(0).toUpperCase() + name.slice(1)}
          </button>
        ))}
      </div>
      <Menu label="Conversation menu" entries={entries} />
      {dialogs}
    </header>
  );
});

/** The title; a click edits it in place. */
function Title({ session, title, at }: { session: string; title: string | null; at: number | null }) {
  const canChat = useCan("chat");
  const [draft, setDraft] = useState<string | null>(null);
  // The new title is shown until the session is refreshed.
  const [written, setWritten] = useState<string | null>(null);
  const [failed, setFailed] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const wasEditing = useRef(false);
  useEffect(() => setWritten(null), [title]);
  useEffect(() => {
    if (wasEditing.current && draft === null) button.current?.focus();
    wasEditing.current = draft !== null;
  }, [draft]);
  const shown = written ?? title;
  useEffect(() => setPageTitle(`${shown || "Conversation"}${at === null ? "" : ` (event ${at})`}`), [shown, at]);
  const save = async () => {
    const to = draft?.trim() ?? "";
    setDraft(null);
    if (to === (shown ?? "")) return;
    setWritten(to);
    setFailed(false);
    try {
      await client.session(session).rename(to);
      refreshSessions();
    } catch {
      setWritten(null);
      setFailed(true);
    }
  };
  if (draft !== null) {
    return (
      <input
        className="title-input"
        aria-label="Title"
        value={draft}
        autoFocus
        maxLength={200}
        onChange={(event) => setDraft(event.target.value)}
        onBlur={() => void save()}
        onFocus={(event) => event.target.select()}
        onKeyDown={(event) => {
          if (event.key === "Enter") void save();
          if (event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            setDraft(null);
          }
        }}
      />
    );
  }
  return (
    <h1>
      <button
        ref={button}
        type="button"
        className="title"
        title={failed ? "The title could not be changed" : canChat ? "Rename" : undefined}
        disabled={!canChat}
        onClick={() => setDraft(shown ?? "")}
      >
        {shown || <span className="dim">Untitled</span>}
      </button>
    </h1>
  );
}
