// Keeps the end of a growing conversation in view, until the reader scrolls up.
import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

export interface Scroll {
  box: RefObject<HTMLDivElement | null>;
  inside: RefObject<HTMLDivElement | null>;
  /** Whether the end is in view and stays there. */
  isFollowing: boolean;
  toEnd(): void;
  /** Something else than the end is shown now. */
  leaveEnd(): void;
}

/** `first`: the key of the first batch of messages; another one means that older ones came before it. */
export function useScroll(first: number | null): Scroll {
  const box = useRef<HTMLDivElement>(null);
  const inside = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [isFollowing, setFollowing] = useState(true);
  const last = useRef({ top: 0, height: 0 });

  const follow = useCallback((yes: boolean) => {
    follows.current = yes;
    setFollowing(yes);
  }, []);
  const toEnd = useCallback(() => {
    const { current } = box;
    if (current) current.scrollTop = current.scrollHeight;
    follow(true);
  }, [follow]);

  // Where the first batch stands: what is read stays in its place when older ones come in above it. A message in it
  // would not do: to say where it is, the browser would have to lay out what is out of sight.
  const anchor = useRef<{ key: number | null; top: number }>({ key: null, top: 0 });
  const mark = useCallback((element: HTMLElement) => {
    const now = element.querySelector<HTMLElement>("[data-batch]");
    anchor.current = { key: now ? Number(now.dataset["batch"]) : null, top: now?.getBoundingClientRect().top ?? 0 };
  }, []);

  useEffect(() => {
    const element = box.current;
    const content = inside.current;
    if (!element || !content) return;
    const onScroll = () => {
      const { scrollTop: top, scrollHeight: height, clientHeight } = element;
      const left = height - top - clientHeight;
      // Only scrolling up leaves the end; coming near it follows again.
      if (top < last.current.top && height >= last.current.height && left > 4) follow(false);
      else if (left < 24) follow(true);
      last.current = { top, height };
      mark(element);
    };
    const grown = new ResizeObserver(() => {
      if (follows.current) element.scrollTop = element.scrollHeight;
      mark(element);
    });
    element.addEventListener("scroll", onScroll, { passive: true });
    grown.observe(content);
    grown.observe(element);
    return () => {
      element.removeEventListener("scroll", onScroll);
      grown.disconnect();
    };
  }, [follow, mark]);

  useLayoutEffect(() => {
    const element = box.current;
    const { key, top } = anchor.current;
    if (!element || key === null || key === first || follows.current) return;
    const moved = (element.querySelector(`[data-batch="${key}"]`)?.getBoundingClientRect().top ?? top) - top;
    if (moved !== 0) element.scrollTop += moved;
    mark(element);
  }, [first, mark]);

  const leaveEnd = useCallback(() => follow(false), [follow]);
  return { box, inside, isFollowing, toEnd, leaveEnd };
}
