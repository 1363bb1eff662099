// The client of the server that served this page, and its token, which lives as long as the tab unless somebody wants it remembered.
import { useSyncExternalStore } from "react";
import { connect, webSocket } from "turnwire";
import { sentence } from "./sentence.ts";
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

/** An error in words for people. */
export interface Explained {
  /** What happened. */
  message: string;
  /** What to do. */
  hint: string | undefined;
  /** For whoever reports it: what the program said. `null`: the message has it all. */
  detail: string | null;
}

/** What happened, in words, and what to do about it. What only programmers understand is the detail. */
export function explain(error: unknown): Explained {
  if (!(error instanceof Error)) return { message: sentence(String(error)), hint: undefined, detail: null };
  const { hint, status } = error as { hint?: string; status?: number };
  if (
    status === 0 ||
    status === 502 ||
    status === 504 ||
    /^(?:AbortError|NetworkError|TimeoutError)$/.test(error.name) ||
    /failed to fetch|networkerror|load failed|fetch failed/i.test(error.message)
  )
    return {
      message: "The server cannot be reached.",
      hint: "Check that it runs and that you are online.",
      detail: null,
    };
  if (error.name === "NotAllowedError")
    return { message: "The browser did not allow this.", hint: "Check its permissions for this page.", detail: null };
  // What JavaScript throws by itself says nothing to most people.
  if (/^(?:Type|Range|Reference|Syntax|Eval|URI|Internal)Error$/.test(error.name))
    return {
      message: "This page made a mistake.",
      hint: "Reload the page. If it happens again, report it with the technical details.",
      detail: technicalDetail(error),
    };
  return { message: sentence(error.message), hint, detail: null };
}

/** Name, message and stack of an error, with the browser: what a report needs. */
export function technicalDetail(error: unknown): string {
  const what =
    error instanceof Error
      ? error.stack?.includes(error.message)
        ? error.stack
        : `${error}\n${error.stack ?? ""}`
      : String(error);
  return `${what.trim()}\n${navigator.userAgent}`;
}
