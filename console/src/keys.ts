// Keyboard shortcuts. They work everywhere except in text fields, and can be turned off. None of them decides about a call:
// that needs a focused card and a modifier key (`approval.tsx`).
import { useEffect, useRef } from "react";
import { closeInnermost } from "./escape.ts";
import { read, write } from "./storage.ts";

export const KEYS: readonly (readonly [key: string, does: string])[] = [
  ["n", "New conversation"],
  ["/", "Search"],
  ["Ctrl K", "Go to a conversation or a command"],
  ["j", "Next event in the timeline"],
  ["k", "Previous event in the timeline"],
  ["Ctrl Enter", "On the card of a pending call: allow it once"],
  ["Ctrl Backspace", "On the card of a pending call: deny it, with a reason"],
  ["Esc", "Close what is open, return to live, or stop the reply"],
  ["t", "Show or hide the timeline"],
  ["i", "Write a message"],
  ["?", "List the keyboard shortcuts"],
];

/** Escape in any other field belongs to that field. */
function isComposer(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.id === "composer";
}

export function isWriting(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

const SETTING = "turnwire.keys";

/** Whether shortcuts of a single character work. */
export function hasKeys(): boolean {
  return read(SETTING) !== "off";
}

export function setHasKeys(isOn: boolean): void {
  write(SETTING, isOn ? null : "off");
}

/** `Escape` also works in the message field; no key works while a dialog is open. */
export function useKeys(keys: Record<string, (() => void) | null | undefined>): void {
  const latest = useRef(keys);
  useEffect(() => void (latest.current = keys));
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      if (event.key === "Escape" && document.querySelector("dialog[open]") === null && closeInnermost())
        return event.preventDefault();
      const run = Object.hasOwn(latest.current, event.key) ? latest.current[event.key] : null;
      if (!run || document.querySelector("dialog[open]") !== null) return;
      if (event.key !== "Escape" && (isWriting(event.target) || !hasKeys())) return;
      if (event.key === "Escape" && isWriting(event.target) && !isComposer(event.target)) return;
      event.preventDefault();
      run();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
}
