import type { SessionInfo } from "turnwire";
import { expect, test } from "vitest";
import { rowsOf } from "./groups.ts";

const NOW = new Date(2026, 2, 31, 12).getTime();
const at = (...date: [number, number, number, number?]) => new Date(...date).toISOString();
const info = (id: string, updated_at: string) => ({ id, updated_at }) as SessionInfo;

/** Headings and ids, in the order of the list. */
const shown = (sessions: SessionInfo[], pinned: string[] = []) =>
  rowsOf(sessions, new Set(pinned), NOW).map((row) => (row.kind === "group" ? row.name : row.info.id));

test("conversations stand below the day of their last change", () => {
  const sessions = [
    info("noon", at(2026, 2, 31, 12)),
    info("morning", at(2026, 2, 31)),
    info("late", at(2026, 2, 30, 23)),
    info("week", at(2026, 2, 25)),
    info("month", at(2026, 2, 2)),
    info("february", at(2026, 1, 20)),
    info("earlier in february", at(2026, 1, 3)),
    info("last year", at(2025, 10, 3)),
  ];
  expect(shown(sessions)).toEqual([
    "Today",
    "noon",
    "morning",
    "Yesterday",
    "late",
    "Last 7 days",
    "week",
    "Last 30 days",
    "month",
    "February 2026",
    "february",
    "earlier in february",
    "November 2025",
    "last year",
  ]);
});

test("pinned conversations come first, and in no other group", () => {
  const sessions = [info("a", at(2026, 2, 31)), info("b", at(2026, 2, 30)), info("c", at(2025, 0, 1))];
  expect(shown(sessions, ["b", "c"])).toEqual(["Pinned", "b", "c", "Today", "a"]);
});

test("a time in the future is today, and no conversation is no group", () => {
  expect(shown([info("a", at(2026, 3, 1))])).toEqual(["Today", "a"]);
  expect(shown([])).toEqual([]);
});
