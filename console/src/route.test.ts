// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { formatRoute, parseRoute, type Route } from "./route.ts";

test.each<Route>([
  { session: null, at: null, pane: null },
  { session: "a.b_c:d-1", at: null, pane: null },
  { session: "s", at: 12, pane: "wire" },
  { session: "s", at: null, pane: "usage" },
])("%o comes back as it went", (route) => expect(parseRoute(formatRoute(route))).toEqual(route));

test("what makes no sense is nothing", () => {
  expect(parseRoute("#/s@x?pane=nosuch")).toEqual({ session: "s", at: null, pane: null });
  expect(parseRoute("")).toEqual({ session: null, at: null, pane: null });
  expect(parseRoute("#/%zz@-1")).toEqual({ session: "%zz", at: null, pane: null });
});
