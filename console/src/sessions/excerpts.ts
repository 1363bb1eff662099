// What a search found in a conversation: loaded for the rows that are in sight.
import { useEffect, useState } from "react";
import type { Hit } from "turnwire";
import { impatientClient } from "../client.ts";

const known = new Map<string, Hit | null>();
const MOST = 500;
/** For how many milliseconds the words and the results must stay the same: the server answers few searches of a user at once. */
const SETTLED = 150;

/** The latest message that has the words; `null`: none, such as if only the title has them. */
export function useHit(session: string, seq: number, query: string): Hit | null {
  const key = `${session} ${seq} ${query}`;
  const [hit, setHit] = useState<Hit | null>(known.get(key) ?? null);
  useEffect(() => {
    if (query === "") return setHit(null);
    const found = known.get(key);
    if (found !== undefined) return setHit(found);
    const stop = new AbortController();
    const load = () =>
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
    const timer = setTimeout(load, SETTLED);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, session, query]);
  return hit;
}
