import type { ContentBlock, MsgJson, ToolCall, ToolResult } from "turnwire/message";
import { describe, expect, test } from "vitest";
import { sentences } from "./announcer.tsx";
import { groupBySubAgentCall, groupReplaced, stateOf, toItems } from "./content-items.ts";

const at = (second: number) => `2026-01-01T00:00:${String(second).padStart(2, "0")}Z`;
const call = (id: string, more: Partial<ToolCall> = {}): ToolCall => ({
  type: "tool_call",
  id,
  name: "tool",
  input: "{}",
  state: "finished",
  suggested_rules: [],
  ...more,
});
const result = (id: string, more: Partial<ToolResult> = {}): ToolResult => ({
  type: "tool_result",
  id,
  name: "tool",
  output: "",
  state: "success",
  metadata: {},
  ...more,
});
const message = (id: string, content: ContentBlock[] = [], more: Partial<MsgJson> = {}): MsgJson => ({
  id,
  name: "demo",
  role: "assistant",
  content,
  metadata: {},
  usage: null,
  finished_at: null,
  finished_reason: null,
  structured_output: null,
  error: null,
  ...more,
});

describe("what a message shows", () => {
  test("a call and its result are one, where the call stands", () => {
    const shown = toItems([
      { type: "text", text: "a", id: "t" },
      call("1"),
      call("2"),
      result("2"),
      result("1"),
      { type: "text", text: "b", id: "u" },
    ]);
    expect(shown.map((item) => (item.kind === "tool" ? `${item.call?.id}=${item.result?.id}` : item.kind))).toEqual([
      "text",
      "1=1",
      "2=2",
      "text",
    ]);
  });

  test("a result alone, an unknown block, and nothing for an empty text", () => {
    const shown = toItems([result("9"), { type: "video_call", id: "x" } as never, { type: "text", text: "" }]);
    expect(shown.map(({ kind }) => kind)).toEqual(["tool", "other"]);
  });

  test("keys are different", () => {
    const keys = toItems([
      call("1"),
      { type: "text", text: "a", id: "1" },
      { type: "text", text: "b" },
      { type: "text", text: "c" },
    ]).map(({ key }) => key);
    expect(new Set(keys).size).toBe(keys.length);
  });
});

describe("sub-agents", () => {
  const sub = (id: string, second: number, parent: string | null = null) => ({
    message: message(id, [], { created_at: at(second) }),
    agent_path: null,
    parent_tool_call_id: parent,
  });
  const main = message("main", [
    call("1"),
    result("1", { created_at: at(1), finished_at: at(5) }),
    call("2"),
    result("2", { created_at: at(6), finished_at: null }),
  ]);

  test("are in the call that they work for, where that is known", () => {
    expect([...groupBySubAgentCall([main], [sub("a", 2, "2")]).keys()]).toEqual(["2"]);
  });

  test("otherwise in the one that ran when they began", () => {
    const nested = groupBySubAgentCall([main], [sub("a", 2), sub("b", 7), sub("c", 0)]);
    expect([...nested].map(([id, list]) => `${id}:${list.map((it) => it.id).join()}`)).toEqual(["1:a", "2:b", ":c"]);
  });

  test("one inside another", () => {
    const outer = {
      ...sub("a", 2),
      message: message("a", [call("x"), result("x", { created_at: at(3), finished_at: at(4) })], { created_at: at(2) }),
    };
    const nested = groupBySubAgentCall([main], [outer, sub("b", 3)]);
    expect([...nested.keys()]).toEqual(["1", "x"]);
  });
});

describe("replies that were answered again", () => {
  test("stand before the one that is in their place", () => {
    const [u, one, two, three] = ["u", "one", "two", "three"].map((id) => message(id));
    const found = groupReplaced([u!, three!], [u!, one!, two!, three!]);
    expect([...found].map(([id, list]) => `${id}:${list.map((it) => it.id).join()}`)).toEqual(["three:one,two"]);
    expect(groupReplaced([u!], [u!, one!]).get("")).toEqual([one]);
    expect(groupReplaced([u!, one!], [u!, one!]).size).toBe(0);
  });
});

describe("how far a call is", () => {
  test.each([
    [call("1", { state: "pending" }), null, "Writing its input"],
    [call("1", { state: "pending", finished_at: at(1) }), null, "Called"],
    [call("1", { state: "asking" }), null, "Waiting for you"],
    [call("1", { state: "submitted" }), null, "Waiting for a client"],
    [call("1", { state: "allowed" }), null, "Running"],
    [call("1", { state: "allowed" }), result("1", { state: "running" }), "Running"],
    [call("1"), null, "Denied"],
    [call("1"), result("1"), "Done"],
    [call("1"), result("1", { state: "error" }), "Failed"],
    [call("1"), result("1", { state: "denied" }), "Denied"],
    [call("1"), result("1", { state: "interrupted" }), "Interrupted"],
    [null, result("1", { state: "half" }), "Half"],
  ])("%#", (of, with_, word) => expect(stateOf(of, with_).word).toBe(word));
});

describe("what is read out", () => {
  test("whole sentences, each once, and the rest at the end", () => {
    const text = "One. Two is lo";
    const first = sentences(text, 0, false);
    expect(first).toEqual({ text: "One.", to: 5 });
    expect(sentences(text, 5, false)).toBeNull();
    expect(sentences(`${text}nger`, 5, true)).toEqual({ text: "Two is longer", to: 18 });
    expect(sentences("", 0, true)).toBeNull();
    // A mark of which one character was there before is found, and all that was not announced.
    expect(sentences("One. Two", 0, false, 4)).toEqual({ text: "One.", to: 5 });
  });
});
