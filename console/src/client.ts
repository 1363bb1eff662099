// The server that this page came from, and who asks. A token lives as long as the tab does.
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

/** Signs in, or out with an empty one. */
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

// A browser keeps six connections to a host for all its tabs; one socket is not among them.
export const client = connect({ url: BASE, token, transport: webSocket(Socket) });

/** For what is asked again anyway: it says soon that nobody answers. */
export const impatientClient = connect({ url: BASE, token, patience: 2000 });

/** What the server, or the way to it, said: what happened, and what to do about it. */
export function explain(error: unknown): { message: string; hint: string | undefined } {
  if (!(error instanceof Error)) return { message: String(error), hint: undefined };
  const { hint } = error as { hint?: string };
  return { message: error.message, hint };
}
