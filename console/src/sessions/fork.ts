import type { SessionInfo } from "turnwire";

/** Where a session was forked from. */
export function forkOf(info: SessionInfo | null): { session: string; seq: number } | null {
  const from = info?.metadata["forked_from"] as { session?: unknown; seq?: unknown } | undefined;
  if (typeof from?.session !== "string" || typeof from.seq !== "number") return null;
  return { session: from.session, seq: from.seq };
}
