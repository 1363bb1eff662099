// Actions on a whole conversation.
import { type ReactNode, useId, useState } from "react";
import { client } from "../client.ts";
import { go, useRoute } from "../route.ts";
import { Dialog } from "../ui/dialog.tsx";
import type { Entry } from "../ui/menu.tsx";
import { Problem } from "../ui/state.tsx";
import { forget, refreshSessions } from "./store.ts";

export function useSessionActions(session: string, title: string | null): { entries: Entry[]; dialogs: ReactNode } {
  const { session: selected, at } = useRoute();
  const [dialog, setDialog] = useState<"rename" | "delete" | null>(null);
  const [error, setError] = useState<unknown>(null);
  const name = title || "Untitled";
  const fork = async () => {
    // While an earlier state is shown, the fork starts there.
    const from = session === selected && at !== null ? { at } : {};
    const made = await client.session(session).fork({ ...from, title: `${name} (fork)` });
    refreshSessions();
    go({ session: made.id, at: null });
  };
  const entries: Entry[] = [
    { name: "Rename", icon: "pen", run: () => setDialog("rename") },
    {
      name: session === selected && at !== null ? `Fork at event ${at}` : "Fork",
      icon: "fork",
      run: () => void fork().catch(setError),
    },
    { name: "Export events", icon: "save", run: () => void exportEvents(session, name).catch(setError) },
    { name: "Delete", icon: "trash", bad: true, run: () => setDialog("delete") },
  ];
  const close = () => setDialog(null);
  const dialogs = (
    <>
      {dialog === "rename" && <Rename session={session} title={title ?? ""} onClose={close} />}
      {dialog === "delete" && <Delete session={session} name={name} onClose={close} />}
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
    if (selected === session) go({ session: null, at: null, pane: null });
    forget(session);
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

/** The log as a file: one event a line, as `turnwire fold` reads it. */
async function exportEvents(session: string, name: string): Promise<void> {
  const events = await client.session(session).export();
  const url = URL.createObjectURL(new Blob([events], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${
    name
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .replaceAll(/^-|-$/g, "")
      .slice(0, 60) || session
  }.ndjson`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
