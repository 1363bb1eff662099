// Actions on a whole conversation.
import { type ReactNode, useId, useState } from "react";
import type { SessionInfo } from "turnwire";
import { client } from "../client.ts";
import { lazyComponent } from "../lazy.tsx";
import { useCan } from "../me.ts";
import { formatRoute, navigate, type Route, useRoute } from "../route.ts";
import { Dialog } from "../ui/dialog.tsx";
import type { Entry } from "../ui/menu.tsx";
import { Problem } from "../ui/state.tsx";
import { forkOf } from "./fork.ts";
import { refreshSessions, removeFromList } from "./store.ts";

export const CompareSessions = lazyComponent(() =>
  import("../conversation/compare.tsx").then(({ CompareSessions }) => CompareSessions),
);

const FORMATS = { md: "Markdown", html: "HTML", ndjson: "events (NDJSON)" } as const;

/** Copies a link to a conversation, or to what is shown of it. */
async function copyLink(to: Route): Promise<void> {
  const hash = formatRoute(to);
  await navigator.clipboard.writeText(`${window.location.href.split("#")[0]}${hash}`);
}

export function useSessionActions(
  session: string,
  title: string | null,
  info: SessionInfo | null,
): { entries: Entry[]; dialogs: ReactNode } {
  const route = useRoute();
  const { session: selected, at } = route;
  const [dialog, setDialog] = useState<"rename" | "delete" | "compare" | null>(null);
  const [error, setError] = useState<unknown>(null);
  const name = title || "Untitled";
  const fork = forkOf(info);
  const makeFork = async () => {
    // While an earlier state is shown, the fork starts there.
    const from = session === selected && at !== null ? { at } : {};
    const made = await client.session(session).fork({ ...from, title: `${name} (fork)` });
    refreshSessions();
    navigate({ session: made.id, at: null });
  };
  const canChat = useCan("chat");
  const change: Entry[] = [
    { name: "Rename", icon: "pen", run: () => setDialog("rename") },
    {
      name: session === selected && at !== null ? `Fork at event ${at}` : "Fork",
      icon: "fork",
      run: () => void makeFork().catch(setError),
    },
  ];
  const entries: Entry[] = [
    ...(canChat ? change : []),
    { name: "Copy link", icon: "link", run: () => void copyLink({ session, at: null, pane: null }).catch(setError) },
    ...(session === selected && at !== null
      ? [
          {
            name: `Copy link to event ${at}`,
            icon: "link" as const,
            run: () => void copyLink({ ...route, message: null }).catch(setError),
          },
        ]
      : []),
    ...(["md", "html", "ndjson"] as const).map((format) => ({
      name: `Export as ${FORMATS[format]}`,
      icon: "save" as const,
      run: () =>
        void import("../share/export.ts").then(({ exportAs }) => exportAs(session, name, format)).catch(setError),
    })),
    ...(fork === null
      ? []
      : [{ name: "Compare with its origin", icon: "fork" as const, run: () => setDialog("compare") }]),
    ...(canChat ? [{ name: "Delete", icon: "trash", bad: true, run: () => setDialog("delete") } as const] : []),
  ];
  const close = () => setDialog(null);
  const dialogs = (
    <>
      {dialog === "rename" && <Rename session={session} title={title ?? ""} onClose={close} />}
      {dialog === "delete" && <Delete session={session} name={name} onClose={close} />}
      {dialog === "compare" && fork !== null && (
        <CompareSessions
          before={{ id: fork.session, title: `Origin, ${fork.session.slice(0, 12)}` }}
          now={{ id: session, title: "This conversation" }}
          onClose={close}
        >
          {(problem) => problem}
        </CompareSessions>
      )}
      {error !== null && (
        <Dialog title="Request failed" onClose={() => setError(null)}>
          <Problem error={error} />
        </Dialog>
      )}
    </>
  );
  return { entries, dialogs };
}

function Rename({ session, title, onClose }: { session: string; title: string; onClose: () => void }) {
  const [text, setText] = useState(title);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const save = async () => {
    await client.session(session).rename(text.trim());
    refreshSessions();
    onClose();
  };
  return (
    <Dialog title="Rename" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save().catch(setError);
        }}
      >
        <div className="field">
          <label htmlFor={id}>Title</label>
          <input
            id={id}
            value={text}
            autoFocus
            maxLength={200}
            onChange={(event) => setText(event.target.value)}
            onFocus={(event) => event.target.select()}
          />
        </div>
        {error !== null && <Problem error={error} />}
        <div className="actions">
          <button type="submit" className="button main">
            Rename
          </button>
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Delete({ session, name, onClose }: { session: string; name: string; onClose: () => void }) {
  const { session: selected } = useRoute();
  const [error, setError] = useState<unknown>(null);
  const remove = async () => {
    await client.session(session).delete();
    onClose();
    if (selected === session) navigate({ session: null, at: null, pane: null });
    removeFromList(session);
    refreshSessions();
  };
  return (
    <Dialog title={`Delete “${name}”?`} onClose={onClose}>
      <p>Its messages and events are deleted permanently. A running reply is stopped.</p>
      {error !== null && <Problem error={error} />}
      <div className="actions">
        <button type="button" className="button bad" onClick={() => void remove().catch(setError)}>
          Delete
        </button>
        <button type="button" className="button" autoFocus onClick={onClose}>
          Keep
        </button>
      </div>
    </Dialog>
  );
}
