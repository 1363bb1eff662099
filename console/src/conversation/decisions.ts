// The decisions about pending calls of a session, and the rules that were accepted, as the log has them.
import { useCallback, useEffect, useMemo, useState } from "react";
import type { Decision } from "turnwire";
import type { PermissionRule } from "turnwire/message";
import { client } from "../client.ts";

export interface Decided {
  /** By call id. */
  byCall: ReadonlyMap<string, Decision>;
  rules: readonly PermissionRule[];
  refresh: () => void;
}

const NONE: readonly PermissionRule[] = [];

/** Events that change decisions or rules. */
export const changesDecisions = (event: { type: string; name?: unknown }): boolean =>
  event.type === "USER_CONFIRM_RESULT" || (event.type === "CUSTOM" && event.name === "rule_revoked");

/** Loaded when `version` changes; what was known stays until then. */
export function useDecisions(session: string, isReady: boolean, version: number): Decided {
  const [found, setFound] = useState<{ decisions: Decision[]; rules: PermissionRule[] } | null>(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!isReady) return;
    const stop = new AbortController();
    client
      .session(session)
      .decisions({ signal: stop.signal })
      .then(setFound, () => {});
    return () => stop.abort();
  }, [session, isReady, version, again]);
  const refresh = useCallback(() => setAgain((n) => n + 1), []);
  return useMemo(
    () => ({
      byCall: new Map(found?.decisions.map((decision) => [decision.call_id, decision])),
      rules: found?.rules ?? NONE,
      refresh,
    }),
    [found, refresh],
  );
}
