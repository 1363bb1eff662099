// Escape closes the innermost thing that is open: whatever opened last, closes first.
import { useEffect, useRef } from "react";

const open: { close: () => void }[] = [];

/** Closes what opened last. `false`: nothing is open. */
export function closeInnermost(): boolean {
  const last = open.at(-1);
  last?.close();
  return last !== undefined;
}

/** While `isOpen`, Escape calls `close`, wherever the focus is. */
export function useEscape(isOpen: boolean, close: () => void): void {
  const latest = useRef(close);
  useEffect(() => void (latest.current = close));
  useEffect(() => {
    if (!isOpen) return;
    const mine = { close: () => latest.current() };
    open.push(mine);
    return () => void open.splice(open.indexOf(mine), 1);
  }, [isOpen]);
}

/** Closes what is open where nobody else listens to Escape. */
export function useEscapeKey(): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (document.querySelector("dialog[open]") === null && closeInnermost()) event.preventDefault();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
}
