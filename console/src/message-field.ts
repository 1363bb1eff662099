// Whether the page has a message field: the skip link leads there only then.
import { useEffect, useSyncExternalStore } from "react";

let count = 0;
const listeners = new Set<() => void>();

function add(by: 1 | -1): void {
  count += by;
  for (const listener of [...listeners]) listener();
}

/** Called by the field. */
export function useIsMessageField(isOn: boolean): void {
  useEffect(() => {
    if (!isOn) return;
    add(1);
    return () => add(-1);
  }, [isOn]);
}

export function useHasMessageField(): boolean {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => count > 0,
  );
}
