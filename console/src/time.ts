// Times in short form. Tooltips have the exact ones.
import { useEffect, useState } from "react";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How long ago, short: `now`, `2 m`, `3 h`, `5 d`, then the date. */
export function ago(then: string | number, now: number): string {
  const at = typeof then === "number" ? then : Date.parse(then);
  if (Number.isNaN(at)) return "";
  const past = now - at;
  if (past < MINUTE) return "now";
  if (past < HOUR) return `${Math.floor(past / MINUTE)} m`;
  if (past < DAY) return `${Math.floor(past / HOUR)} h`;
  if (past < 7 * DAY) return `${Math.floor(past / DAY)} d`;
  const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return new Date(at).toLocaleDateString("en", {
    day: "numeric",
    month: "short",
    ...(!sameYear && { year: "numeric" }),
  });
}

/** How long ago, for a place without a label: `just now`, `2 m ago`, then the date. */
export function since(then: string | number, now: number): string {
  const text = ago(then, now);
  return text === "now" ? "just now" : /[mhd]$/.test(text) ? `${text} ago` : text;
}

/** How long it took: `40 ms`, `0.6 s`, `12 s`, `2 m 5 s`, `1 h 3 m`. */
export function duration(ms: number): string {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / SECOND).toFixed(1)} s`;
  const seconds = Math.round(ms / SECOND);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} m`;
}

/** The time left for a decision: `4:32`, `1:00:05`. */
export function countdown(ms: number): string {
  const left = Math.max(0, Math.ceil(ms / SECOND));
  const two = (n: number) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(left / 3600), Math.floor((left % 3600) / 60), left % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Milliseconds between two times; null if one of them is unknown. */
export function between(from: string | null | undefined, to: string | null | undefined): number | null {
  const ms = Date.parse(to ?? "") - Date.parse(from ?? "");
  return Number.isNaN(ms) || ms < 0 ? null : ms;
}

// Creating a formatter takes much longer than using it.
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const EXACT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** The time of day. */
export function clock(iso: string): string {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "" : CLOCK.format(at);
}

/** Date and time, for a tooltip. */
export function exactTime(iso: string): string {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "" : EXACT.format(at);
}

const DAYS = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** The day, for a heading between messages. */
export function dayOf(iso: string): string {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "" : DAYS.format(at);
}

/** The current time, updated at an interval. `null`: not updated. */
export function useNow(every: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (every === null) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
