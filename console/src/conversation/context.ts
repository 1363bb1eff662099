// What the parts of a conversation share: pending calls, sub-agents, and actions.
import { createContext } from "react";
import type { Approval, Decision } from "turnwire";
import type { MsgJson, PermissionRule } from "turnwire/message";

export interface Answers {
  allow(asking: Approval, options: { input?: string; always?: PermissionRule[] }): Promise<void>;
  deny(asking: Approval, reason: string): Promise<void>;
  sendResult(asking: Approval, output: string, state: "success" | "error"): Promise<void>;
}

export interface ConversationParts {
  /** By call id. Empty while an earlier state is shown: nothing can be answered there. */
  pending: ReadonlyMap<string, Approval>;
  /** The messages of sub-agents, by the tool call they work for. */
  nested: ReadonlyMap<string, MsgJson[]>;
  answers: Answers | null;
  /** What was decided, by call id. */
  decisions: ReadonlyMap<string, Decision>;
  /** Answers again and edits; null if that is not possible now. */
  turns: { retry: (id: string) => void; edit: (id: string, text: string) => void } | null;
  /** When the session was forked from another; older replies that end later were cut off by that. */
  forkedAt?: string | undefined;
}

export const ConversationContext = createContext<ConversationParts>({
  pending: new Map(),
  nested: new Map(),
  answers: null,
  decisions: new Map(),
  turns: null,
});
