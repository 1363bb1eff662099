// Three panes: sessions, the conversation, and what is behind it. Below 900 px one at a time.
import { useEffect, useLayoutEffect, useState, useSyncExternalStore } from "react";
import { Conversation, OpenConversation } from "./conversation/conversation.tsx";
import { useEscapeKey } from "./escape.ts";
import { Help } from "./help.tsx";
import { useKeys } from "./keys.ts";
import { lazyComponent } from "./lazy.tsx";
import { useCan } from "./me.ts";
import { useHasMessageField } from "./message-field.ts";
import { Palette } from "./palette.tsx";
import { navigate, parseRoute, useRoute } from "./route.ts";
import { ListBackdrop, PaneWaitingBar } from "./sessions/back-to-list.tsx";
import { Sessions } from "./sessions/sessions.tsx";
import { SignIn } from "./sessions/sign-in.tsx";
import { useSessions } from "./sessions/store.ts";
import { Boundary } from "./ui/boundary.tsx";
import { Icon } from "./ui/icon.tsx";
import "./ui/ui.css";
import "./small.css";

const Inspect = lazyComponent(() => import("./inspect/inspect.tsx").then(({ Inspect }) => Inspect));

const Overview = lazyComponent(() => import("./overview/overview.tsx").then(({ Overview }) => Overview));

/** Asks for what the address needs with the first picture. */
export function preloadRoute(): void {
  const { session, pane } = parseRoute(window.location.hash);
  if (session !== null) void OpenConversation.load();
  if (session !== null && pane !== null) void Inspect.load();
}

/** Asks for the rest when there is nothing else to do: what is opened later is there at once, also while the server is away. */
function preloadRest(): void {
  const rest = () => void OpenConversation.load().then(Inspect.load);
  if ("requestIdleCallback" in window) requestIdleCallback(rest, { timeout: 3000 });
  else setTimeout(rest, 1000);
}

export function App() {
  const { session, pane, page } = useRoute();
  const { isLocked, isLoaded, sessions, query, error } = useSessions();
  // Where only one pane fits, whether a new conversation is written or the list is read.
  const [isWriting, setWriting] = useState(false);
  useEffect(() => {
    const list = () => setWriting(false);
    window.addEventListener("turnwire:list", list);
    return () => window.removeEventListener("turnwire:list", list);
  }, []);
  useEffect(() => setWriting(false), [session]);
  useEffect(() => {
    if (isLoaded) preloadRest();
  }, [isLoaded]);
  const startNew = () => {
    navigate({ session: null, at: null, pane: null });
    setWriting(true);
    setTimeout(() => document.getElementById("composer")?.focus());
  };
  const canChat = useCan("chat");
  useKeys({ n: canChat ? startNew : null });
  useEscapeKey();
  const isNarrow = useNarrow();
  const hasField = useHasMessageField();
  const isFirstVisit = isLoaded && sessions.length === 0 && query === "";
  const shows = isLocked
    ? "conversation"
    : page === "overview"
      ? "conversation"
      : session === null
        ? isWriting || isFirstVisit
          ? "conversation"
          : "sessions"
        : pane === null
          ? "conversation"
          : "inspect";
  const hasPane = session !== null && pane !== null && !isLocked;
  useLayoutEffect(() => {
    const { dataset } = document.documentElement;
    dataset["shows"] = shows;
    dataset["pane"] = String(hasPane);
  }, [shows, hasPane]);
  return (
    <div className="app">
      {hasField && (!isNarrow || shows === "conversation") && (
        <a
          className="skip"
          href="#composer"
          onClick={(event) => {
            event.preventDefault();
            document.getElementById("composer")?.focus();
          }}
        >
          Skip to the message field
        </a>
      )}
      <Boundary name="The list of conversations">
        <Sessions selected={session} isMain={isNarrow && shows === "sessions"} onNew={canChat ? startNew : null} />
      </Boundary>
      <ListBackdrop />
      <Boundary name="This conversation" resetKey={`${session} ${page}`}>
        {isLocked ? (
          <SignIn error={error} />
        ) : page === "overview" ? (
          <Overview>{(problem) => <main className="conversation">{problem}</main>}</Overview>
        ) : (
          <Conversation key={session} session={session} />
        )}
      </Boundary>
      {hasPane && (
        <div className="beside">
          <button type="button" className="link narrow beside-back" onClick={() => navigate({ pane: null })}>
            <Icon name="back" size={12} /> Conversation
          </button>
          <PaneWaitingBar />
          <Boundary name="This pane" resetKey={`${session} ${pane}`}>
            <Inspect key={session} session={session} pane={pane} isMain={isNarrow}>
              {(problem) => (
                <aside className="inspect" aria-label="Inspector">
                  {problem}
                </aside>
              )}
            </Inspect>
          </Boundary>
        </div>
      )}
      <Boundary name="The dialog">
        <Help />
        <Palette startNew={canChat ? startNew : null} />
      </Boundary>
    </div>
  );
}

const NARROW = window.matchMedia("(max-width: 899px)");

/** Whether only one pane fits. */
function useNarrow(): boolean {
  return useSyncExternalStore(
    (changed) => {
      NARROW.addEventListener("change", changed);
      return () => NARROW.removeEventListener("change", changed);
    },
    () => NARROW.matches,
  );
}
