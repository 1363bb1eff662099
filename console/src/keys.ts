// Keyboard shortcuts. They work everywhere except in text fields.
import { useEffect, useRef } from "react";

export const KEYS: readonly (readonly [key: string, does: string])[] = [
  ["n", "new conversation"],
  ["/", "search"],
  ["j", "next event in the timeline"],
  ["k", "previous event in the timeline"],
  ["a", "allow the pending call once"],
  ["d", "deny the pending call"],
  ["Esc", "stop the reply"],
  ["t", "show or hide the timeline"],
  ["i", "write a message"],
  ["?", "this list"],
];

function isWriting(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** `Escape` also works in text fields; no key works while a dialog is open. */
export function useKeys(keys: Record<string, (() => void) | null | undefined>): void {
  const latest = useRef(keys);
  useEffect(() => void (latest.current = keys));
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      const run = Object.hasOwn(latest.current, event.key) ? latest.current[event.key] : null;
      if (!run || document.querySelector("dialog[open]") !== null) return;
      if (event.key !== "Escape" && isWriting(event.target)) return;
      event.preventDefault();
      run();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
}
