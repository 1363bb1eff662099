import type { Status } from "turnwire";

/** A session's status, in words. */
export function statusLabel(status: Status, isExternal = false): { tone: "run" | "wait" | "idle"; word: string } {
  switch (status) {
    case "running":
      return { tone: "run", word: "running" };
    case "waiting":
      return { tone: "wait", word: isExternal ? "waiting for a client" : "waiting for you" };
    case "idle":
      return { tone: "idle", word: "idle" };
  }
}
