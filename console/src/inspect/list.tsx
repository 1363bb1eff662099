// A long list that renders only the visible rows. All rows have the same height.
import { type KeyboardEvent, type ReactNode, useLayoutEffect, useRef, useState } from "react";

export const ROW = 26;
/** Rows rendered before and after the visible ones. */
const SPARE = 12;

export interface ListProps {
  label: string;
  id: string;
  count: number;
  columns: number;
  /** The selected row; -1 for none. */
  chosen: number;
  /** Stay at the end while the list grows, unless the reader scrolled up. */
  follow: boolean;
  /** Renders a row: an element with `rowAttributes`, keyed by its index. */
  row: (index: number, chosen: boolean) => ReactNode;
  onKeyDown?: (event: KeyboardEvent) => void;
}

/** The attributes of a row's element. */
export function rowAttributes(list: string, index: number, chosen: boolean) {
  return {
    id: `${list}-${index}`,
    role: "row",
    className: "row",
    style: { transform: `translateY(${index * ROW}px)` },
    "aria-rowindex": index + 1,
    "aria-selected": chosen,
  };
}

export function List({ label, id, count, columns, chosen, follow, row, onKeyDown }: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const [{ top, height }, setView] = useState({ top: 0, height: 600 });
  const atEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setView((view) => ({ ...view, height: element.clientHeight })));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  // Scroll to the selected row, or stay at the end.
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null || chosen < 0) return;
    const [from, to] = [chosen * ROW, (chosen + 1) * ROW];
    if (from < element.scrollTop) element.scrollTop = from;
    else if (to > element.scrollTop + element.clientHeight) element.scrollTop = to - element.clientHeight;
  }, [chosen, height]);
  useLayoutEffect(() => {
    if (follow) atEnd.current = true;
  }, [follow]);
  useLayoutEffect(() => {
    const element = box.current;
    if (element !== null && follow && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [follow, count, height]);

  const from = Math.max(0, Math.floor(top / ROW) - SPARE);
  const to = Math.min(count, Math.ceil((top + height) / ROW) + SPARE);
  const rows: ReactNode[] = [];
  for (let index = from; index < to; index++) {
    rows.push(row(index, index === chosen));
  }
  return (
    <div
      ref={box}
      className="list"
      role="treegrid"
      aria-label={label}
      aria-rowcount={count}
      aria-colcount={columns}
      aria-activedescendant={chosen >= from && chosen < to ? `${id}-${chosen}` : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => {
        atEnd.current = scrollTop + clientHeight >= scrollHeight - 2;
        setView({ top: scrollTop, height: clientHeight });
      }}
    >
      <div className="rows" role="rowgroup" style={{ height: count * ROW }}>
        {rows}
      </div>
    </div>
  );
}

/** By how many rows a key moves; `null` for other keys. */
export function rowsToMove(key: string, page: number): number | null {
  switch (key) {
    case "j":
    case "ArrowDown":
      return 1;
    case "k":
    case "ArrowUp":
      return -1;
    case "PageDown":
      return page;
    case "PageUp":
      return -page;
    case "Home":
      return -Infinity;
    case "End":
      return Infinity;
    default:
      return null;
  }
}
