// @vitest-environment happy-dom
import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { curl, shell, WIRES } from "./client-snippets.ts";
import { nameOf, Steps } from "./frames.ts";

const where = { base: "http://127.0.0.1:4747/agents/turnwire", session: "a:b", agent: "demo", token: false };

test("the snippets name this server with its path, and this session", () => {
  for (const wire of WIRES) {
    expect(curl(where, wire.name).text).toContain(`http://127.0.0.1:4747/agents/turnwire/v1/sessions/a%3Ab/events`);
    const { text } = wire.client(where);
    expect(text, wire.name).toMatch(/(?:http|ws):\/\/127\.0\.0\.1:4747\/agents\/turnwire/);
    expect(text, wire.name).toMatch(/a:b|a%3Ab/);
    expect(text, wire.name).not.toMatch(/TURNWIRE_TOKEN|[Bb]earer/);
  }
  expect(curl(where, "ag-ui").text).toContain("?wire=ag-ui");
});

test("where a server wants a token the snippets take it from outside", () => {
  for (const wire of WIRES) {
    expect(curl({ ...where, token: true }, wire.name).text).toContain("Bearer $TURNWIRE_TOKEN");
    expect(wire.client({ ...where, token: true }).text, wire.name).toMatch(/TURNWIRE_TOKEN|[Bb]earer|token }/);
  }
});

test("a shell sees an address as it is", () => {
  const odd = `http://h/it's "here" $HOME \`date\``;
  expect(execFileSync("sh", ["-c", `printf %s ${shell(odd)}`], { encoding: "utf8" })).toBe(odd);
});

const STREAM = `: turnwire
retry: 1000

id: e.2
data: {"type":"start"}

data: {"type":"start-step"}

id: e.5
data: {"type":"text-start"}

: beat

event: named
id: e.9
data: {"a":1,
data: "b":2}

data: [DONE]

`;

test("frames belong to the events up to the next id, cut anywhere", () => {
  for (const size of [1, 2, 7, 1000]) {
    const steps = new Steps();
    for (let from = 0; from < STREAM.length; from += size) steps.feed(STREAM.slice(from, from + size));
    expect(steps.list.map(({ after, seq, frames }) => [after, seq, frames.map(nameOf)])).toEqual([
      [0, 2, ["start"]],
      [2, 5, ["start-step", "text-start"]],
      [5, 9, ["named"]],
      [9, 0, ["[DONE]"]],
    ]);
    expect(steps.list[2]?.frames[0]?.data).toBe('{"a":1,\n"b":2}');
    expect([1, 2, 3, 5, 6, 9, 10].map((seq) => steps.find(seq))).toEqual([0, 0, 1, 1, 2, 2, 3]);
  }
});

test("a frame has a name on every wire", () => {
  expect(nameOf({ event: "message_start", data: "{}" })).toBe("message_start");
  expect(nameOf({ event: "", data: '{"object":"chat.completion.chunk"}' })).toBe("chat.completion.chunk");
  expect(nameOf({ event: "", data: '{"error":{}}' })).toBe("error");
  expect(nameOf({ event: "", data: "[1]" })).toBe("data");
});
