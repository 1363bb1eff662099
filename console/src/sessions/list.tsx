// The conversations as a list that renders only what is in sight.
import { type ReactNode, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { SessionInfo } from "turnwire";
import type { ListRow } from "./groups.ts";

/** Heights in pixels, as `sessions.css` has them. */
const HEIGHTS = { session: 52, found: 70, group: 30 } as const;
const SPARE = 8;

interface Props {
  rows: readonly ListRow[];
  /** Whether rows have an excerpt. */
  hasExcerpts: boolean;
  render: (info: SessionInfo) => ReactNode;
}

/** Scrolls with the nearest `.sessions-list`. */
export function VirtualList({ rows, hasExcerpts, render }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 900 });
  const offsets = useMemo(() => {
    const tops = new Float64Array(rows.length + 1);
    rows.forEach(({ kind }, at) => {
      const height = kind === "group" ? HEIGHTS.group : hasExcerpts ? HEIGHTS.found : HEIGHTS.session;
      tops[at + 1] = (tops[at] ?? 0) + height;
    });
    return tops;
  }, [rows, hasExcerpts]);
  useLayoutEffect(() => {
    const list = box.current;
    const scroller = list?.closest<HTMLElement>(".sessions-list");
    if (!list || !scroller) return;
    const look = () => {
      const top = scroller.scrollTop - (list.offsetTop - scroller.offsetTop);
      setView((before) =>
        Math.abs(before.top - top) < 40 && before.height === scroller.clientHeight
          ? before
          : { top, height: scroller.clientHeight },
      );
    };
    look();
    const sized = new ResizeObserver(look);
    sized.observe(scroller);
    scroller.addEventListener("scroll", look, { passive: true });
    return () => {
      sized.disconnect();
      scroller.removeEventListener("scroll", look);
    };
  }, []);
  // Rows that are not rendered count, too.
  const places = useMemo(() => {
    let count = 0;
    return rows.map(({ kind }) => (kind === "group" ? 0 : ++count));
  }, [rows]);
  const size = places.reduce((most, place) => Math.max(most, place), 0);
  const from = Math.max(0, before(offsets, view.top) - SPARE);
  const to = Math.min(rows.length, before(offsets, view.top + view.height) + SPARE);
  return (
    <div ref={box} className="virtual" role="list" style={{ height: offsets[rows.length] }}>
      {rows.slice(from, to).map((row, at) => {
        const style = { transform: `translateY(${offsets[from + at]}px)` };
        // Each row says its own time; the day is for those who see the list.
        return row.kind === "group" ? (
          <div key={row.key} className="group" style={style} aria-hidden="true">
            {row.name}
          </div>
        ) : (
          <div
            key={row.key}
            className="row-place"
            role="listitem"
            aria-setsize={size}
            aria-posinset={places[from + at]}
            style={style}
          >
            {render(row.info)}
          </div>
        );
      })}
    </div>
  );
}

/** The last row that begins at or before a place. */
function before(offsets: Float64Array, place: number): number {
  let [from, to] = [0, offsets.length - 1];
  while (from < to) {
    const middle = (from + to + 1) >> 1;
    if ((offsets[middle] ?? 0) <= place) from = middle;
    else to = middle - 1;
  }
  return from;
}
