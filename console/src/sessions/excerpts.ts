// What a search found in a conversation: loaded for the rows that are in sight.
import { useEffect, useState } from "react";
import type { Hit } from "turnwire";
import { impatientClient } from "../client.ts";
import { onSearch } from "./store.ts";

const known = new Map<string, Hit | null>();
const MOST = 500;
/** For how many milliseconds words and results must stay the same: the server runs few searches of a tenant at once. */
const SETTLED = 150;

/** The latest message that has the words; `null`: none, such as if only the title has them. */
export function useHit(session: string, seq: number, query: string): Hit | null {
  const key = `${session} ${seq} ${query}`;
  const [hit, setHit] = useState<Hit | null>(known.get(key) ?? null);
  useEffect(() => {
    if (query === "") return setHit(null);
    const found = known.get(key);
    if (found !== undefined) return setHit(found);
    let stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const load = async ({ signal }: AbortController) => {
      const { hits } = await impatientClient.session(session).search(query, { limit: 1, signal });
      const [first = null] = hits;
      if (known.size > MOST) known.clear();
      known.set(key, first);
      if (!signal.aborted) setHit(first);
    };
    const cancel = () => {
      clearTimeout(timer);
      stop.abort();
    };
    const begin = () => {
      cancel();
      stop = new AbortController();
      timer = setTimeout(() => load(stop).catch(() => {}), SETTLED);
    };
    begin();
    const leave = onSearch(begin);
    return () => {
      leave();
      cancel();
    };
  }, [key, session, query]);
  return hit;
}
