// What the parts of a conversation share: who waits for what, who works for whom, and what can be done.
import { createContext } from "react";
import type { Approval } from "turnwire";
import type { MsgJson, PermissionRule } from "turnwire/message";

export interface Answers {
  allow(asking: Approval, options: { input?: string; always?: PermissionRule[] }): Promise<void>;
  deny(asking: Approval, reason: string): Promise<void>;
  give(asking: Approval, output: string, state: "success" | "error"): Promise<void>;
}

export interface ConversationParts {
  /** By the id of the call. Empty where the past is shown: nothing of it can be answered. */
  pending: ReadonlyMap<string, Approval>;
  /** The messages of sub-agents, by the call that they work for. */
  nested: ReadonlyMap<string, MsgJson[]>;
  answers: Answers | null;
}

export const ConversationContext = createContext<ConversationParts>({
  pending: new Map(),
  nested: new Map(),
  answers: null,
});
