// Ctrl K: go to any conversation, or do something, by typing a part of its name.
import { useEffect, useId, useMemo, useState } from "react";
import type { SessionInfo } from "turnwire";
import { impatientClient } from "./client.ts";
import { showKeys } from "./help.tsx";
import { navigate, PANES, useRoute } from "./route.ts";
import { useSessions } from "./sessions/store.ts";
import { nextTheme } from "./theme.ts";
import { Dialog } from "./ui/dialog.tsx";

interface Choice {
  name: string;
  about: string;
  run: () => void;
}

export function Palette({ startNew }: { startNew: (() => void) | null }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey)
        return;
      event.preventDefault();
      setOpen((before) => !before && document.querySelector("dialog[open]") === null);
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
  if (!isOpen) return null;
  return (
    <Dialog title="Go to" onClose={() => setOpen(false)}>
      <Choices startNew={startNew} close={() => setOpen(false)} />
    </Dialog>
  );
}

function Choices({ startNew, close }: { startNew: (() => void) | null; close: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { session } = useRoute();
  const found = useFound(text);
  const id = useId();
  const choices = useMemo<Choice[]>(() => {
    const commands: Choice[] = [
      ...(startNew === null ? [] : [{ name: "New conversation", about: "n", run: startNew }]),
      {
        name: "Overview of all conversations",
        about: "",
        run: () => navigate({ session: null, at: null, pane: null, page: "overview" }),
      },
      ...(session === null
        ? []
        : PANES.map((pane) => ({ name: `Show the ${pane}`, about: "", run: () => navigate({ pane }) }))),
      { name: "Change the theme", about: "", run: nextTheme },
      { name: "List the keyboard shortcuts", about: "?", run: showKeys },
    ];
    const words = text.toLowerCase().split(/\s+/);
    const fits = (name: string) => words.every((word) => name.toLowerCase().includes(word));
    return [
      ...found.slice(0, 12).map((info) => ({
        name: info.title || info.id,
        about: info.agent,
        run: () => navigate({ session: info.id, at: null }),
      })),
      ...commands.filter(({ name }) => fits(name)),
    ];
  }, [found, text, startNew, session]);
  const chosen = Math.min(at, choices.length - 1);
  useEffect(() => {
    document.getElementById(`${id}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [id, chosen]);
  const run = (choice: Choice | undefined) => {
    close();
    // After the dialog has given the focus back.
    setTimeout(() => choice?.run());
  };
  return (
    <div className="palette">
      <input
        role="combobox"
        aria-label="Conversation or command"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={choices.length > 0 ? `${id}-${chosen}` : undefined}
        placeholder="Conversation or command"
        value={text}
        autoFocus
        onChange={({ target }) => {
          setText(target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (event.key === "Enter") run(choices[chosen]);
          else if (by !== undefined) setAt((chosen + by + choices.length) % Math.max(1, choices.length));
          else return;
          event.preventDefault();
        }}
      />
      <div id={`${id}-list`} role="listbox" aria-label="Results">
        {choices.map((choice, index) => (
          <div
            key={`${choice.name} ${index}`}
            id={`${id}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onClick={() => run(choice)}
          >
            <bdi>{choice.name}</bdi> <span className="dim">{choice.about}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

/** Conversations by their titles and messages; those that are listed already come at once. */
function useFound(text: string): readonly SessionInfo[] {
  const { sessions } = useSessions();
  const [found, setFound] = useState<{ text: string; list: SessionInfo[] }>({ text: "", list: [] });
  useEffect(() => {
    if (text.trim() === "") return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      impatientClient.sessions({ q: text, limit: 12, signal: stop.signal }).then(
        ({ sessions }) => setFound({ text, list: sessions }),
        () => {},
      );
    }, 80);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  const words = text.toLowerCase();
  const listed = sessions.filter(({ title }) => (title ?? "").toLowerCase().includes(words));
  if (text.trim() === "" || found.text !== text) return listed;
  const ids = new Set(listed.map(({ id }) => id));
  return [...listed, ...found.list.filter(({ id }) => !ids.has(id))];
}
