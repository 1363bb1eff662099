// Leads to the card of a pending call, where all of its input can be read.
import { useEffect } from "react";
import { navigate } from "../route.ts";

/** The call whose card is to be shown as soon as its conversation is open. */
let wanted: string | null = null;

/** Scrolls to the card and focuses it, but none of its buttons: a key that was meant for something else decides nothing. */
export function showCard(call: string): boolean {
  const card = document.querySelector<HTMLElement>(`[data-call="${CSS.escape(call)}"]:has(.approval)`);
  // A sub-agent's card may be in something that is closed.
  for (let box = card?.parentElement; box; box = box.parentElement)
    if (box instanceof HTMLDetailsElement) box.open = true;
  card?.scrollIntoView({ block: "start" });
  card?.focus({ preventScroll: true });
  return card !== null;
}

/** Opens the conversation of a pending call at its card. */
export function reviewCall(session: string, call: string): void {
  wanted = call;
  // Where only one pane fits, it is the conversation.
  navigate({ session, at: null, ...(window.matchMedia("(max-width: 899px)").matches && { pane: null }) });
  setTimeout(() => {
    if (wanted === call && showCard(call)) wanted = null;
  });
}

/** Called by the card: shows it if somebody wants to review it. */
export function useReview(call: string): void {
  useEffect(() => {
    if (wanted === call && showCard(call)) wanted = null;
  }, [call]);
}
