// What the server knows about whoever looks: their name and scopes; and about itself: its agents and the currency.
import { useSyncExternalStore } from "react";
import type { Agent, Me } from "turnwire";
import { client, onToken } from "./client.ts";

export type Scope = "chat" | "approve" | "publish";

export interface About {
  /** `null` until it is known; then everything is offered. */
  me: Me | null;
  agents: readonly Agent[] | null;
  defaultAgent: string | null;
  currency: string;
}

const UNKNOWN: About = { me: null, agents: null, defaultAgent: null, currency: "USD" };
let about = UNKNOWN;
let isRequested = false;
/** Counts requests: the answer for an earlier token does not count. */
let generation = 0;
const listeners = new Set<() => void>();

function setAbout(change: Partial<About>): void {
  about = { ...about, ...change };
  for (const listener of [...listeners]) listener();
}

/** Asks again: another token may do something else. */
export function refreshAbout(): void {
  isRequested = true;
  const request = ++generation;
  client.me().then(
    (me) => request === generation && setAbout({ me }),
    () => {},
  );
  client.agents().then(
    ({ agents, default_agent, currency = "USD" }) =>
      request === generation && setAbout({ agents, defaultAgent: default_agent, currency }),
    () => {
      if (request === generation) isRequested = false;
    },
  );
}

onToken(() => {
  setAbout({ ...UNKNOWN });
  refreshAbout();
});

export function useAbout(): About {
  return useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      if (!isRequested) refreshAbout();
      return () => listeners.delete(changed);
    },
    () => about,
  );
}

/** Whether these credentials allow it. */
export function can({ me }: About, scope: Scope): boolean {
  return me === null || me.scopes.includes(scope);
}

export function useCan(scope: Scope): boolean {
  return can(useAbout(), scope);
}
