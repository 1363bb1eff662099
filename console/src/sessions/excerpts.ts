// What a search found in a conversation: loaded for the rows that are in sight.
import { useEffect, useState } from "react";
import type { Hit } from "turnwire";
import { impatientClient } from "../client.ts";

const known = new Map<string, Hit | null>();
const MOST = 500;

/** The latest message that has the words; `null`: none, such as if only the title has them. */
export function useHit(session: string, seq: number, query: string): Hit | null {
  const key = `${session} ${seq} ${query}`;
  const [hit, setHit] = useState<Hit | null>(known.get(key) ?? null);
  useEffect(() => {
    if (query === "") return setHit(null);
    const found = known.get(key);
    if (found !== undefined) return setHit(found);
    const stop = new AbortController();
    impatientClient
      .session(session)
      .search(query, { limit: 1, signal: stop.signal })
      .then(
        ({ hits: [first = null] }) => {
          if (known.size > MOST) known.clear();
          known.set(key, first);
          if (!stop.signal.aborted) setHit(first);
        },
        () => {},
      );
    return () => stop.abort();
  }, [key, session, query]);
  return hit;
}
