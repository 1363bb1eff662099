// What a person reads of a rule before they accept it.

import type { PermissionRule } from "turnwire/message";
import { expect, test } from "vitest";
import { describeRule } from "./rule.ts";

const rule = (more: object): PermissionRule => ({
  tool_name: "shell",
  behavior: "allow",
  source: "suggested",
  ...more,
});

test("the words of the server are shown", () => {
  expect(
    describeRule(rule({ rule_content: "input == {}", description: "Always allow `shell` with an empty input" })),
  ).toBe("Always allow `shell` with an empty input");
});

test("a rule without words says what it is about", () => {
  expect(describeRule(rule({ rule_content: null }))).toBe("Always allow every call of shell");
  expect(describeRule(rule({ rule_content: "ACME", description: 7 }))).toBe("Always allow shell for ACME");
});
