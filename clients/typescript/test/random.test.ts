// Random streams, valid and not, through our fold and through `turnwire fold`.

import { spawnSync } from "node:child_process";
import { type EventLike, FoldError, Folder } from "turnwire/message";
import { expect, test } from "vitest";
import { program, random } from "./harness.js";

const pick = <T>(items: readonly T[]): T => items[random(items.length)]!;
const maybe = (fields: object): object => (random(2) ? fields : {});
const TEXTS = ["Hello", " ", "wörld", "\n", '"', "\\", "日本", "🙂", "\0", "\u2028", "", '{"a":'];
const text = () => Array.from({ length: random(4) }, () => pick(TEXTS)).join("");
const BYTES = ["YQ==", "YWI=", "YWJj", "Y", "YW", "YWJ", "=", "==", "YWJjZGVm", "Y\nWJj", "!", "", "YQ==YWI="];

let places = 0;

function event(numbered: boolean): EventLike & Record<string, unknown> {
  const reply_id = pick(["r1", "r1", "r1", "r2"]);
  const block_id = pick(["a", "b", "c"]);
  const tool_call_id = pick(["c1", "c2"]);
  const call = { type: "tool_call", id: tool_call_id, ...maybe({ name: "t" }), input: pick(["", '{"edited":1}']) };
  const result = {
    id: tool_call_id,
    output: pick<unknown>(["done", [{ type: "text", text: "x" }], []]),
    state: pick(["success", "error"]),
  };
  const chunk = random(6) ? { data: pick(BYTES) } : { url: "https://example.com/a" };
  const media = maybe({ media_type: "image/png" });
  const extra = maybe({ extra: { signature: text(), id: "never", text: "never", source: "x" } });
  const kinds: (() => EventLike & object)[] = [
    () => ({
      type: "REPLY_START",
      ...maybe({ name: "friday" }),
      ...(random(5) ? {} : { role: pick(["user", "system", "tool"]) }),
    }),
    () => ({
      type: random(12) ? "MODEL_CALL_START" : "REPLY_END",
      ...maybe({ error: { type: "upstream" } }),
      ...maybe({ message_metadata: { a: 1 } }),
      ...maybe({ structured_output: [1] }),
    }),
    () => ({
      type: "MODEL_CALL_END",
      input_tokens: random(9),
      ...(random(6) ? {} : { discard: [block_id, tool_call_id] }),
    }),
    () => ({ type: "TEXT_BLOCK_START", block_id }),
    () => ({ type: "TEXT_BLOCK_DELTA", block_id, delta: text() }),
    () => ({ type: "TEXT_BLOCK_DELTA", block_id, delta: text() }),
    () => ({ type: "TEXT_BLOCK_END", block_id, ...maybe({ text: pick([null, "whole"]) }), ...extra }),
    () => ({ type: "THINKING_BLOCK_START", block_id }),
    () => ({ type: "THINKING_BLOCK_DELTA", block_id, delta: text() }),
    () => ({ type: "THINKING_BLOCK_END", block_id, ...extra }),
    () => ({ type: "DATA_BLOCK_START", block_id, ...media, ...maybe({ name: "a.png" }) }),
    () => ({ type: "DATA_BLOCK_DELTA", block_id, ...media, ...chunk }),
    () => ({ type: "DATA_BLOCK_DELTA", block_id, ...media, ...chunk }),
    () => ({ type: "DATA_BLOCK_END", block_id, ...extra }),
    () => ({
      type: "HINT_BLOCK",
      block_id,
      hint: pick<unknown>([text(), [{ type: "text", text: "x", id: "" }, { type: "odd" }]]),
    }),
    () => ({ type: "TOOL_CALL_START", tool_call_id, ...maybe({ tool_call_name: "t" }) }),
    () => ({ type: "TOOL_CALL_DELTA", tool_call_id, delta: text() }),
    () => ({ type: "TOOL_CALL_END", tool_call_id, ...extra }),
    () => ({ type: "TOOL_RESULT_START", tool_call_id }),
    () => ({ type: "TOOL_RESULT_TEXT_DELTA", tool_call_id, delta: text() }),
    () => ({ type: "TOOL_RESULT_DATA_DELTA", tool_call_id, ...maybe({ block_id }), ...media, ...chunk }),
    () => ({ type: "TOOL_RESULT_DATA_DELTA", tool_call_id, ...maybe({ block_id }), ...media, ...chunk }),
    () => ({ type: "TOOL_RESULT_END", tool_call_id, state: "success", ...maybe({ metadata: { artifact: 1 } }) }),
    () => ({ type: "REQUIRE_USER_CONFIRM", tool_calls: [call, { id: "c9", suggested_rules: [{ tool_name: "t" }] }] }),
    () => ({ type: "USER_CONFIRM_RESULT", confirm_results: [{ confirmed: !!random(2), tool_call: call }] }),
    () => ({ type: "REQUIRE_EXTERNAL_EXECUTION", tool_calls: [call] }),
    () => ({ type: "EXTERNAL_EXECUTION_RESULT", execution_results: [result] }),
    () => ({
      type: "BLOCK",
      block: pick<unknown>([
        { type: "odd", x: null },
        { type: "image", id: "i", name: null, source: { type: "url", url: "u", media_type: null } },
        { type: "tool_call", id: tool_call_id },
        { type: "text", text: "t", id: block_id, created_at: "" },
      ]),
    }),
    () => ({ type: "USER_INTERRUPT" }),
    () => ({ type: "X_LATER", anything: 1 }),
    () => ({ type: "CUSTOM", name: "n" }),
    () => ({ type: "MESSAGE", message: { id: pick(["u1", "u2", "r1", ""]), role: "user", content: text() } }),
    () => (random(8) ? { type: "SUPERSEDE", message_ids: ["u1"] } : { type: "RESET", ...maybe({ id: "once" }) }),
  ];
  const seq = numbered
    ? { seq: (places += random(8) ? 1 : -1), ...(random(20) ? {} : { seq_from: Math.max(1, places - 1) }) }
    : {};
  if (numbered && places < 1) Object.assign(seq, { seq: (places = 1) });
  const id = random(30) ? `e${random(1e9)}` : "again";
  return {
    reply_id,
    id,
    created_at: pick(["", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"]),
    ...seq,
    ...pick(kinds)(),
  };
}

function viaRust(lines: string, ...options: string[]) {
  const { stdout, stderr, error } = spawnSync(program, ["fold", ...options], { input: lines, encoding: "utf8" });
  if (error) throw error;
  const problems = stderr.split("\n").flatMap(
    (line) =>
      line
        .match(/line (\d+): (\w+)/)
        ?.slice(1, 3)
        .join(" ") ?? [],
  );
  return {
    messages: stdout
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line)),
    problems,
  };
}

test("the same messages and the same problems as `turnwire fold`, strict and tolerant", () => {
  for (let round = 0; round < 60; round++) {
    const numbered = !!random(2);
    places = 0;
    const events = Array.from({ length: 20 + random(120) }, () => event(numbered));
    const lines = events.map((event) => JSON.stringify(event)).join("\n");
    for (const tolerant of [false, true]) {
      const folder = new Folder();
      const problems: string[] = [];
      let bad = new Set<string>();
      events.forEach((event, at) => {
        const report = (problem: FoldError) => {
          problems.push(`${at + 1} ${problem.kind}`);
          bad.add(event.type === "MESSAGE" ? (event["message"] as { id: string }).id : (event["reply_id"] as string));
        };
        if (event.type === "RESET") bad = new Set();
        const copy = JSON.parse(JSON.stringify(event));
        if (tolerant) return void folder.pushTolerant(copy, report);
        try {
          folder.push(copy);
        } catch (error) {
          if (!(error instanceof FoldError)) throw error;
          report(error);
        }
      });
      const rust = viaRust(lines, ...(tolerant ? ["--tolerant"] : []));
      expect(problems, lines).toEqual(rust.problems);
      const shown = folder.messages.filter(({ id }) => tolerant || !bad.has(id));
      expect(JSON.parse(JSON.stringify(shown)), lines).toEqual(rust.messages);
    }
  }
});
