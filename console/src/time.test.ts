// @vitest-environment happy-dom
import { describe, expect, test } from "vitest";
import { describeConnection } from "./conversation/connection.tsx";
import { ago, between, countdown, duration } from "./time.ts";

const NOW = Date.parse("2026-03-10T12:00:00Z");
const past = (seconds: number) => new Date(NOW - seconds * 1000).toISOString();

describe("times", () => {
  test.each([
    [-5, "now"],
    [0, "now"],
    [59, "now"],
    [60, "1 m"],
    [3599, "59 m"],
    [3600, "1 h"],
    [86_399, "23 h"],
    [86_400, "1 d"],
    [6 * 86_400, "6 d"],
    [20 * 86_400, "Feb 18"],
    [400 * 86_400, "Feb 3, 2025"],
  ])("%d s ago is %s", (seconds, said) => expect(ago(past(seconds), NOW)).toBe(said));

  test("what is no time is nothing", () => expect(ago("soon", NOW)).toBe(""));

  test.each([
    [0, "0 ms"],
    [42.4, "42 ms"],
    [600, "0.6 s"],
    [9949, "9.9 s"],
    [9950, "10 s"],
    [59_400, "59 s"],
    [59_600, "1 m 0 s"],
    [125_000, "2 m 5 s"],
    [3_780_000, "1 h 3 m"],
  ])("%d ms took %s", (ms, said) => expect(duration(ms)).toBe(said));

  test.each([
    [0, "0:00"],
    [-100, "0:00"],
    [1, "0:01"],
    [272_000, "4:32"],
    [3_605_000, "1:00:05"],
  ])("%d ms are left: %s", (ms, said) => expect(countdown(ms)).toBe(said));

  test("between two moments", () => {
    expect(between(past(2), past(1))).toBe(1000);
    expect(between(past(1), past(2))).toBeNull();
    expect(between(past(1), null)).toBeNull();
    expect(between(undefined, past(1))).toBeNull();
  });
});

describe("the connection", () => {
  const error = new Error("lost");
  test.each([
    [{ state: "live" as const }, true, "Connected"],
    [{ state: "connecting" as const }, true, "Connecting"],
    [{ state: "waiting" as const, retryAt: NOW + 2100, error }, true, "Reconnecting"],
    [{ state: "waiting" as const, retryAt: NOW + 500, error }, true, "Reconnecting"],
    [{ state: "waiting" as const, retryAt: NOW + 2100, error }, false, "Offline"],
    [{ state: "closed" as const, error }, true, "Not connected"],
    [{ state: "closed" as const, error: null }, true, "Not connected"],
  ])("%o, online: %s", (connection, isOnline, text) =>
    expect(describeConnection(connection, NOW, isOnline).text).toBe(text),
  );
});
