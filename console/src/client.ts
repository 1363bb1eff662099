// The client of the server that served this page, and its token, which lives as long as the tab unless somebody wants it remembered.
import { useSyncExternalStore } from "react";
import { connect, webSocket } from "turnwire";
import { Socket } from "./socket/socket.ts";
import { read, write } from "./storage.ts";

const KEY = "turnwire.token";

/** Where the server is: the page may be below any path. */
export const BASE = new URL(".", document.baseURI).href.replace(/\/$/, "");

const listeners = new Set<() => void>();

export function token(): string {
  return read(KEY, "tab") ?? read(KEY) ?? "";
}

/** Signs in; an empty token signs out. `remember`: also after the tab is closed. */
export function setToken(value: string, remember = false): void {
  write(KEY, value === "" ? null : value, "tab");
  write(KEY, value === "" || !remember ? null : value);
  for (const listener of [...listeners]) listener();
}

/** Calls back when somebody signs in or out. */
export function onToken(changed: () => void): void {
  listeners.add(changed);
}

export function useToken(): string {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, token);
}

// A browser opens at most six HTTP connections per host over all tabs; WebSockets do not count.
export const client = connect({ url: BASE, token, name: "console", transport: webSocket(Socket) });

/** For polling: gives up soon if nobody answers. */
export const impatientClient = connect({ url: BASE, token, patience: 2000 });

/** Message and hint of an error. What a browser says of a lost connection is said in words. */
export function explain(error: unknown): { message: string; hint: string | undefined } {
  if (!(error instanceof Error)) return { message: String(error), hint: undefined };
  const { hint, status } = error as { hint?: string; status?: number };
  if (
    status === 0 ||
    status === 502 ||
    status === 504 ||
    /failed to fetch|networkerror|load failed|fetch failed/i.test(error.message)
  )
    return { message: "The server cannot be reached.", hint: "Check that it runs and that you are online." };
  return { message: error.message, hint };
}
