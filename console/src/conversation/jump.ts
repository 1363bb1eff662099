// Goes to the message that the address names, and loads earlier ones until it is there.
import { type RefObject, useEffect, useRef } from "react";
import type { MsgJson } from "turnwire/message";
import { useRoute } from "../route.ts";

/** Pages that are loaded to find a message. */
const MAX_PAGES = 200;

export function useJump(
  box: RefObject<HTMLElement | null>,
  messages: readonly MsgJson[],
  hasMore: boolean,
  loadMore: () => Promise<void>,
  leaveEnd: () => void,
): void {
  const { message: wanted = null } = useRoute();
  const shownMessage = useRef<string | null>(null);
  const loaded = useRef(0);
  useEffect(() => {
    if (wanted === null || shownMessage.current === wanted || messages.length === 0) return;
    const found = box.current?.querySelector<HTMLElement>(`[data-message="${CSS.escape(wanted)}"]`);
    if (found) {
      shownMessage.current = wanted;
      loaded.current = 0;
      leaveEnd();
      revealElement(found);
    } else if (hasMore && loaded.current < MAX_PAGES) {
      loaded.current += 1;
      leaveEnd();
      void loadMore().catch(() => {});
    }
  }, [wanted, messages, hasMore, loadMore, leaveEnd, box]);
}

/** Scrolls to a part of the conversation and marks it for a moment. `takesFocus`: keys go there from now on. */
export function revealElement(element: HTMLElement, takesFocus = true): void {
  element.scrollIntoView({ block: "center" });
  // What is above it is laid out only now, and may move it.
  requestAnimationFrame(() => element.scrollIntoView({ block: "center" }));
  if (takesFocus) element.focus({ preventScroll: true });
  element.dataset["marked"] = "true";
  setTimeout(() => delete element.dataset["marked"], 2500);
}
