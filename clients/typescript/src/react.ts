// `turnwire/react`: a session as a React hook, and everything that `turnwire` has.

import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { Client } from "./client.js";
import type { Content } from "./message.js";
import type { ApproveOptions, Asking, Given, Sendable, Sent } from "./session.js";
import { EMPTY, type SessionState, SessionView, type ViewOptions } from "./view.js";

export * from "./index.js";

/** Actions. Each function keeps its identity; failures are thrown. */
export interface SessionActions {
  /** Sends a message; while a reply runs it is queued, unless `queue: false`. */
  send(content: Sendable, options?: { queue?: boolean; key?: string }): Promise<Sent>;
  /** Removes a queued message. */
  cancel(messageId: string): Promise<void>;
  approve(asking: Asking, options?: ApproveOptions): Promise<void>;
  deny(asking: Asking, reason?: string): Promise<void>;
  result(asking: Asking, given: Given | string): Promise<void>;
  stop(): Promise<void>;
  retry(messageId: string, content?: Content): Promise<Sent>;
  loadMore(): Promise<void>;
}

export type UseSession = SessionState & SessionActions;

/**
 * The live state of a session. Renders at most once per frame; unchanged messages and blocks are the same objects, so
 * that `memo` skips them. `id` may be `null`: no session yet.
 */
export function useSession(client: Client, id: string | null, options: Omit<ViewOptions, "signal"> = {}): UseSession {
  const [view, setView] = useState<SessionView | null>(null);
  const latest = useRef(options);
  useEffect(() => void (latest.current = options));
  useEffect(() => {
    if (id === null) return;
    const onevent: ViewOptions["onevent"] = (event) => latest.current.onevent?.(event);
    const view = new SessionView(client.session(id), { ...latest.current, onevent });
    setView(view);
    return () => {
      view.close();
      setView((current) => (current === view ? null : current));
    };
  }, [client, id]);
  // Never shows the state of another session, not even for one frame.
  const open = view?.session.id === id ? view : null;
  const subscribe = useMemo(() => (listener: () => void) => open?.subscribe(listener) ?? (() => {}), [open]);
  const state = useSyncExternalStore(
    subscribe,
    () => open?.state ?? EMPTY,
    () => EMPTY,
  );
  const actions = useMemo(() => actionsOf(client, id, open), [client, id, open]);
  return { ...state, ...actions };
}

function actionsOf(client: Client, id: string | null, view: SessionView | null): SessionActions {
  const session = () => {
    if (id === null) throw new Error("there is no session yet");
    return client.session(id);
  };
  return {
    send: async (content, options) =>
      view ? view.send(content, options) : session().send(content, { queue: true, ...options }),
    cancel: async (messageId) => (view ?? session()).cancel(messageId),
    approve: async (asking, options) => session().approve(asking, options),
    deny: async (asking, reason) => session().deny(asking, reason),
    result: async (asking, given) => session().result(asking, given),
    stop: async () => session().stop(),
    retry: async (messageId, content) => session().retry(messageId, content),
    loadMore: async () => view?.loadMore(),
  };
}
