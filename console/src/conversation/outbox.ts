// Messages on their way: shown at once, kept until the conversation has them, sent again with the same key if they fail.
import { useEffect, useSyncExternalStore } from "react";
import { newId, type Sendable, type Sent } from "turnwire";
import { client } from "../client.ts";
import { read, write } from "../storage.ts";

export interface Outgoing {
  /** The idempotency key: sending again never sends twice. */
  key: string;
  content: Sendable;
  text: string;
  at: string;
  state: "sending" | "sent" | "failed";
  error: unknown;
  messageId: string | null;
}

type Send = (content: Sendable, options: { key: string }) => Promise<Sent>;

const boxes = new Map<string, readonly Outgoing[]>();
const senders = new Map<string, Send>();
/** A message waits for those before it, so that they arrive in order. */
const lastDelivery = new Map<string, Promise<void>>();
const listeners = new Set<() => void>();
const NONE: readonly Outgoing[] = [];

const storageKey = (session: string) => `turnwire.outbox.${session}`;

function box(session: string): readonly Outgoing[] {
  let found = boxes.get(session);
  if (found === undefined) {
    found = loadUnsent(session);
    boxes.set(session, found);
  }
  return found;
}

/** What was not sent when the page was closed or reloaded. */
function loadUnsent(session: string): readonly Outgoing[] {
  try {
    const kept = JSON.parse(read(storageKey(session), "tab") ?? "[]") as Outgoing[];
    return kept.map((one) => ({
      ...one,
      state: "failed" as const,
      error: new Error("The page was closed before this was sent."),
    }));
  } catch {
    return NONE;
  }
}

function setBox(session: string, to: readonly Outgoing[]): void {
  boxes.set(session, to);
  const unsent = to.filter(({ state }) => state !== "sent");
  write(storageKey(session), unsent.length === 0 ? null : JSON.stringify(unsent), "tab");
  for (const listener of [...listeners]) listener();
}

function updateOutgoing(session: string, key: string, to: Partial<Outgoing>): void {
  setBox(
    session,
    box(session).map((one) => (one.key === key ? { ...one, ...to } : one)),
  );
}

async function deliver(session: string, key: string): Promise<void> {
  const one = box(session).find((one) => one.key === key);
  if (one === undefined) return;
  const byClient: Send = (content, options) => client.session(session).send(content, { queue: true, ...options });
  try {
    const { message_id } = await (senders.get(session) ?? byClient)(one.content, { key });
    // A conversation that is not open loads the message when it opens.
    if (senders.has(session)) updateOutgoing(session, key, { state: "sent", messageId: message_id });
    else discard(session, key);
  } catch (error) {
    updateOutgoing(session, key, { state: "failed", error });
  }
}

function enqueue(session: string, key: string): void {
  lastDelivery.set(
    session,
    (lastDelivery.get(session) ?? Promise.resolve()).then(() => deliver(session, key)),
  );
}

/** Sends a message. It is in the outbox at once. */
export function post(session: string, content: Sendable, text: string): void {
  const key = newId();
  const one: Outgoing = {
    key,
    content,
    text,
    at: new Date().toISOString(),
    state: "sending",
    error: null,
    messageId: null,
  };
  setBox(session, [...box(session), one]);
  enqueue(session, key);
}

/** Sends a failed message again. */
export function postAgain(session: string, key: string): void {
  updateOutgoing(session, key, { state: "sending", error: null });
  enqueue(session, key);
}

export function discard(session: string, key: string): void {
  setBox(
    session,
    box(session).filter((one) => one.key !== key),
  );
}

/** How messages of a session are sent while its conversation is open. */
export function setSender(session: string, send: Send): () => void {
  senders.set(session, send);
  return () => {
    if (senders.get(session) !== send) return;
    senders.delete(session);
    removeSent(session, () => true);
  };
}

/** Removes sent messages. Once the conversation had a message, it alone decides whether the message is still there. */
function removeSent(session: string, isRemoved: (messageId: string) => boolean): void {
  const before = box(session);
  const rest = before.filter(({ messageId }) => messageId === null || !isRemoved(messageId));
  if (rest.length < before.length) setBox(session, rest);
}

/** The messages that the conversation does not have yet. */
export function useOutbox(session: string, known: ReadonlySet<string | undefined>): readonly Outgoing[] {
  const all = useSyncExternalStore(
    (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
    () => box(session),
  );
  useEffect(() => removeSent(session, (id) => known.has(id)), [session, all, known]);
  return all.filter(({ messageId }) => messageId === null || !known.has(messageId));
}
