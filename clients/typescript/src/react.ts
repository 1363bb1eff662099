// `turnwire/react`: a conversation as a hook.

import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { Client } from "./index.js";
import type { ApproveOptions, Asking, Given, Sendable, Sent } from "./session.js";
import { EMPTY, type SessionState, SessionView, type ViewOptions } from "./view.js";

/** What a person can do. Each stays the same function; what does not work is thrown. */
export interface SessionActions {
  /** Says something; while a reply runs it waits for its turn, unless `queue: false`. */
  send(content: Sendable, options?: { queue?: boolean; key?: string }): Promise<Sent>;
  /** Takes back what still waits for its turn. */
  cancel(messageId: string): Promise<void>;
  approve(asking: Asking, options?: ApproveOptions): Promise<void>;
  deny(asking: Asking): Promise<void>;
  result(asking: Asking, given: Given | string): Promise<void>;
  stop(): Promise<void>;
  retry(messageId: string): Promise<Sent>;
  loadMore(): Promise<void>;
}

export type UseSession = SessionState & SessionActions;

/**
 * The session as it is, and as it goes on. It renders at most once a frame; messages and blocks that did not
 * change are the same objects, so that `memo` keeps them. `id` may be `null`: nothing is open yet.
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
  // What belongs to another session is not shown for a moment, either.
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
    deny: async (asking) => session().deny(asking),
    result: async (asking, given) => session().result(asking, given),
    stop: async () => session().stop(),
    retry: async (messageId) => session().retry(messageId),
    loadMore: async () => view?.loadMore(),
  };
}
