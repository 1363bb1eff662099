import type { Outcome, Status } from "turnwire";

const OUTCOMES: Record<Outcome, string> = { failed: "Failed", stopped: "Stopped", expired: "Expired, nobody answered" };

/** What a waiting session waits for: whoever looks, somebody else who may decide, or a client. */
export type WaitsFor = "you" | "decision" | "client";

export const WAITING: Record<WaitsFor, string> = {
  you: "Waiting for you",
  decision: "Waiting for a decision",
  client: "Waiting for a client",
};

/** A session's status, in words. An idle session says how its last reply ended, unless it ended well. */
export function statusLabel(
  status: Status,
  waitsFor: WaitsFor = "you",
  outcome?: Outcome,
): { tone: "run" | "wait" | "idle" | "bad"; word: string } {
  switch (status) {
    case "running":
      return { tone: "run", word: "Running" };
    case "waiting":
      return { tone: "wait", word: WAITING[waitsFor] };
    case "idle":
      return outcome === undefined ? { tone: "idle", word: "Idle" } : { tone: "bad", word: OUTCOMES[outcome] };
  }
}
