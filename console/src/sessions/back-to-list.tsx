// Where the list makes room for something else: the way back to it, and what waits meanwhile.
import { useEffect, useSyncExternalStore } from "react";
import { visibleName } from "../conversation/json.ts";
import { reviewCall } from "../conversation/review.ts";
import { useEscape } from "../escape.ts";
import { useCan } from "../me.ts";
import { navigate, useRoute } from "../route.ts";
import { Icon } from "../ui/icon.tsx";
import { useSessions } from "./store.ts";

/** Questions that wait for whoever looks: in the open session, and in others. */
function useQuestions() {
  const { session } = useRoute();
  const { waiting } = useSessions();
  const canApprove = useCan("approve");
  const all = canApprove ? waiting.flatMap((one) => one.confirm.map((call) => ({ id: one.session_id, call }))) : [];
  return { here: all.filter(({ id }) => id === session), elsewhere: all.filter(({ id }) => id !== session) };
}

let isOpen = false;
const listeners = new Set<() => void>();

function setOpen(to: boolean): void {
  isOpen = to;
  document.documentElement.dataset["list"] = String(to);
  for (const listener of [...listeners]) listener();
}

function useIsOpen(): boolean {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => isOpen,
  );
}

/** Below 900 px it leads to the list; beside a pane it shows the list above the conversation. */
export function BackToList({ leave }: { leave?: () => void }) {
  const { elsewhere } = useQuestions();
  const isOpen = useIsOpen();
  const count = elsewhere.length;
  const label =
    count === 0
      ? "All conversations"
      : `All conversations, ${count === 1 ? "1 question" : `${count} questions`} waiting`;
  return (
    <button
      type="button"
      className="icon-button narrow back"
      aria-label={label}
      title={label}
      aria-expanded={isOpen}
      onClick={() => {
        if (!window.matchMedia("(max-width: 899px)").matches) setOpen(!isOpen);
        else if (leave) leave();
        else navigate({ session: null, at: null, pane: null });
      }}
    >
      <Icon name="back" />
      {count > 0 && (
        <span className="count" aria-hidden="true">
          {count}
        </span>
      )}
    </button>
  );
}

/** Closes the list that lies above the conversation: a click beside it, Escape, or another conversation. */
export function ListBackdrop() {
  const { session, pane } = useRoute();
  const isOpen = useIsOpen();
  // Another conversation or pane closes it.
  useEffect(() => setOpen(false), [session, pane]);
  const close = () => {
    setOpen(false);
    document.querySelector<HTMLElement>(".conversation .back")?.focus();
  };
  useEscape(isOpen, close);
  useEffect(() => {
    if (isOpen) document.querySelector<HTMLElement>(".sessions .name a")?.focus();
  }, [isOpen]);
  if (!isOpen) return null;
  return <button type="button" className="backdrop" aria-label="Close the list" onClick={close} />;
}

/** Above a pane that is shown alone: what waits, and the way to it. */
export function PaneWaitingBar() {
  const { here, elsewhere } = useQuestions();
  const next = here[0] ?? elsewhere[0];
  if (next === undefined) return null;
  return (
    <section className="waiting-bar narrow" aria-label="Questions">
      <span>
        {here.length > 0 ? (
          <>
            <bdi>{visibleName(next.call.name)}</bdi> waits for you
          </>
        ) : (
          `${elsewhere.length === 1 ? "1 question waits" : `${elsewhere.length} questions wait`} in other conversations`
        )}
      </span>
      <button type="button" className="link" onClick={() => reviewCall(next.id, next.call.id)}>
        Show
      </button>
    </section>
  );
}
