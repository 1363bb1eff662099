// Notifications of the system for questions that wait, if somebody wants them.
import { useSyncExternalStore } from "react";
import { read, write } from "./storage.ts";

const KEY = "turnwire.notify";
const listeners = new Set<() => void>();

export const canNotify = (): boolean => "Notification" in window;

const notifies = (): boolean => canNotify() && Notification.permission === "granted" && read(KEY) === "on";

export async function setNotifies(isOn: boolean): Promise<void> {
  if (isOn && (await Notification.requestPermission()) !== "granted") return;
  write(KEY, isOn ? "on" : null);
  for (const listener of [...listeners]) listener();
}

export function useNotifies(): boolean {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, notifies);
}

/** Shows a notification of a question, unless somebody looks at the page. */
export function notify(title: string, body: string, open: () => void): void {
  if (!notifies() || !document.hidden) return;
  try {
    const shown = new Notification(title, { body, tag: "turnwire" });
    shown.onclick = () => {
      window.focus();
      open();
    };
  } catch {
    // Chrome on Android has the constructor and refuses to run it.
  }
}
