// The client of the server that served this page, and its token, which lives as long as the tab.
import { useSyncExternalStore } from "react";
import { connect, webSocket } from "turnwire";
import { Socket } from "./socket/socket.ts";

const KEY = "turnwire.token";

/** Where the server is: the page may be below any path. */
export const BASE = new URL(".", document.baseURI).href.replace(/\/$/, "");

const listeners = new Set<() => void>();

export function token(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

/** Signs in; an empty token signs out. */
export function setToken(value: string): void {
  if (value === "") sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
  for (const listener of listeners) listener();
}

export function useToken(): string {
  return useSyncExternalStore((changed) => {
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, token);
}

// A browser opens at most six HTTP connections per host over all tabs; WebSockets do not count.
export const client = connect({ url: BASE, token, transport: webSocket(Socket) });

/** For polling: gives up soon if nobody answers. */
export const impatientClient = connect({ url: BASE, token, patience: 2000 });

/** Message and hint of an error. */
export function explain(error: unknown): { message: string; hint: string | undefined } {
  if (!(error instanceof Error)) return { message: String(error), hint: undefined };
  const { hint } = error as { hint?: string };
  return { message: error.message, hint };
}
