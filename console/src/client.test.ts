// @vitest-environment happy-dom
import { TurnwireError } from "turnwire";
import { expect, test } from "vitest";
import { explain } from "./client.ts";

test("what the server says is shown, as a sentence", () => {
  const error = new TurnwireError("the session is busy", "busy", 409, "wait for the reply");
  expect(explain(error)).toEqual({ message: "The session is busy", hint: "wait for the reply", detail: null });
});

test.each([
  new TypeError("Failed to fetch"),
  new TurnwireError("connection lost"),
  new DOMException("signal timed out", "TimeoutError"),
])("%s is a server that cannot be reached", (error) => {
  expect(explain(error)).toMatchObject({ message: "The server cannot be reached.", detail: null });
});

test("a mistake of the page is told in words, with the reason for whoever reports it", () => {
  const { message, hint, detail } = explain(new TypeError("x is not a function"));
  expect(message).toBe("This page made a mistake.");
  expect(hint).toMatch(/^Reload the page\./);
  expect(detail).toContain("TypeError: x is not a function");
});
