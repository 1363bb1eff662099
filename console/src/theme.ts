// Light or dark: the system's setting, or the user's choice. `first-paint.ts` reads it before the first paint.
import { useSyncExternalStore } from "react";

const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const KEY = "turnwire.theme";
const listeners = new Set<() => void>();

function theme(): Theme {
  try {
    return THEMES.find((known) => known === localStorage.getItem(KEY)) ?? "system";
  } catch {
    return "system";
  }
}

function applyTheme(): void {
  const chosen = theme();
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}

export function nextTheme(): void {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(KEY, next);
  applyTheme();
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, theme);
}
