// The route: the session, the event up to which it is shown, and the inspector pane beside the
// conversation. The address holds all of it, so that a link shows what its sender saw.
import { useSyncExternalStore } from "react";

export const PANES = ["timeline", "trace", "wire", "usage"] as const;
export type Pane = (typeof PANES)[number];

export interface Route {
  /** The session; null: the start page. */
  session: string | null;
  /** Show the conversation at this event; null: live. */
  at: number | null;
  /** The pane that the inspector shows; null: the inspector is closed. */
  pane: Pane | null;
  /** The message to show, if the address names one. */
  message?: string | null;
  /** Another page instead of a conversation. */
  page?: "overview" | null;
}

/** `#/SESSION@SEQ?pane=wire`; session ids have no `@`, `?` or `/`. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [session = "", at = ""] = path.split("@", 2);
  const fields = new URLSearchParams(query);
  const [pane, message] = [fields.get("pane"), fields.get("message")];
  const seq = Number.parseInt(at, 10);
  return {
    session: session === "" ? null : decode(session),
    at: Number.isSafeInteger(seq) && seq > 0 ? seq : null,
    pane: PANES.find((known) => known === pane) ?? null,
    ...(message && { message }),
    ...(session === "" && fields.get("page") === "overview" && { page: "overview" as const }),
  };
}

export function formatRoute({ session, at, pane, message, page }: Route): string {
  const place = session === null ? "" : encodeURIComponent(session) + (at === null ? "" : `@${at}`);
  const fields = [
    ...(pane === null ? [] : [`pane=${pane}`]),
    ...(message ? [`message=${encodeURIComponent(message)}`] : []),
    ...(page ? [`page=${page}`] : []),
  ];
  return `#/${place}${fields.length === 0 ? "" : `?${fields.join("&")}`}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let last: { hash: string; route: Route } | null = null;
/** The current route, while the address follows. */
let ahead: string | null = null;

export function currentRoute(): Route {
  const hash = ahead ?? window.location.hash;
  if (last?.hash !== hash) last = { hash, route: parseRoute(hash) };
  return last.route;
}

/** Browsers refuse an address that changes more often than a hundred times in half a minute. */
const PAUSE = 400;

function updateAddress(): void {
  if (ahead !== null) window.history.replaceState(null, "", ahead);
  ahead = null;
}

// Navigation by the browser, such as Back.
window.addEventListener("hashchange", ({ isTrusted }) => {
  if (isTrusted) ahead = null;
});

function subscribe(changed: () => void): () => void {
  window.addEventListener("hashchange", changed);
  return () => window.removeEventListener("hashchange", changed);
}

/** The current route. */
export function useRoute(): Route {
  return useSyncExternalStore(subscribe, currentRoute);
}

/** Navigates. `replace`: without an entry in the browser's history, for a scrubber that is dragged. */
export function navigate(change: Partial<Route>, how: "push" | "replace" = "push"): void {
  const { message = null, page: _page, ...now } = currentRoute();
  // A message is of one session, and seen in the present.
  const isElsewhere = change.session !== undefined || typeof change.at === "number";
  const to = formatRoute({ ...now, message: isElsewhere ? null : message, ...change });
  if (to === (ahead ?? window.location.hash)) return;
  if (how === "push") {
    updateAddress();
    window.location.hash = to;
  } else {
    if (ahead === null) setTimeout(updateAddress, PAUSE);
    ahead = to;
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  }
}
