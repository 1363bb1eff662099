import type { Outcome, Status } from "turnwire";

const OUTCOMES: Record<Outcome, string> = { failed: "failed", stopped: "stopped", expired: "expired, nobody answered" };

/** A session's status, in words. An idle session says how its last reply ended, unless it ended well. */
export function statusLabel(
  status: Status,
  isExternal = false,
  outcome?: Outcome,
): { tone: "run" | "wait" | "idle" | "bad"; word: string } {
  switch (status) {
    case "running":
      return { tone: "run", word: "running" };
    case "waiting":
      return { tone: "wait", word: isExternal ? "waiting for a client" : "waiting for you" };
    case "idle":
      return outcome === undefined ? { tone: "idle", word: "idle" } : { tone: "bad", word: OUTCOMES[outcome] };
  }
}
