import type { Event } from "turnwire/message";
import { expect, test } from "vitest";
import { costOf, flatten, lines, type Reply, ReplyTimes, splitTime, tokens } from "./reply-times.ts";

let seq = 0;
/** Events with their times. */
function source(...events: [at: number, event: object][]) {
  seq = 0;
  return {
    events: events.map(([, event]) => event as Event),
    times: events.map(([at]) => at),
    seqs: events.map(() => ++seq),
    generation: 0,
  };
}

const reply_id = "r";
const begin = { type: "REPLY_START", reply_id, name: "demo" };
const end = { type: "REPLY_END", reply_id, finished_reason: "completed" };
const call = { type: "MODEL_CALL_START", reply_id, model_name: "m" };
const called = {
  type: "MODEL_CALL_END",
  reply_id,
  input_tokens: 10,
  output_tokens: 5,
  cache_input_tokens: 2,
  cache_creation_input_tokens: 0,
  finished_reason: "completed",
};
const tool = (id: string) => ({ type: "TOOL_RESULT_START", reply_id, tool_call_id: id, tool_call_name: `tool ${id}` });
const done = (id: string) => ({ type: "TOOL_RESULT_END", reply_id, tool_call_id: id, state: "success" });
const askMessage = (id: string) => ({
  type: "REQUIRE_USER_CONFIRM",
  reply_id,
  tool_calls: [{ id, name: `tool ${id}`, input: "{}" }],
});
const answer = (id: string) => ({
  type: "USER_CONFIRM_RESULT",
  reply_id,
  confirm_results: [{ confirmed: true, tool_call: { id } }],
});

const only = (turns: ReplyTimes): Reply => {
  expect(turns.replies).toHaveLength(1);
  return turns.replies[0] as Reply;
};

test("a reply is split into model, tools and waiting, and the rest", () => {
  const log = source(
    [0, begin],
    [10, call],
    [110, called],
    [110, askMessage("c")],
    [1110, answer("c")],
    [1110, tool("c")],
    [1310, done("c")],
    [1320, call],
    [1400, called],
    [1405, end],
  );
  const reply = only(new ReplyTimes(log).sync());
  expect(splitTime(reply, 9999)).toEqual({ model: 180, tool: 200, wait: 1000, other: 25 });
  expect(reply.spans.map(({ doing, from, to }) => [doing, from, to])).toEqual([
    ["model", 10, 110],
    ["wait", 110, 1110],
    ["tool", 1110, 1310],
    ["model", 1320, 1400],
  ]);
  expect(tokens(reply)).toEqual({
    input_tokens: 20,
    output_tokens: 10,
    cache_input_tokens: 4,
    cache_creation_input_tokens: 0,
  });
});

test("what happens at the same time counts once, a tool before waiting", () => {
  const log = source(
    [0, begin],
    [0, tool("a")],
    [50, askMessage("b")],
    [100, done("a")],
    [300, answer("b")],
    [300, end],
  );
  expect(splitTime(only(new ReplyTimes(log).sync()), 0)).toEqual({ model: 0, tool: 100, wait: 200, other: 0 });
});

test("what is open goes on until now", () => {
  const reply = only(new ReplyTimes(source([0, begin], [100, askMessage("a")])).sync());
  expect(reply.to).toBeNull();
  expect(splitTime(reply, 500)).toEqual({ model: 0, tool: 0, wait: 400, other: 100 });
});

test("a sub-agent lies inside the call that it works for, and its model counts as model", () => {
  const sub = { reply_id: "r2", agent_path: "demo/x", parent_tool_call_id: "a" };
  const log = source(
    [0, begin],
    [0, { type: "TOOL_CALL_START", reply_id, tool_call_id: "a", tool_call_name: "ask" }],
    [10, tool("a")],
    [20, { ...begin, ...sub, name: "x" }],
    [20, { ...call, ...sub }],
    [80, { ...called, ...sub }],
    [90, { ...end, ...sub }],
    [100, done("a")],
    [100, askMessage("b")],
    [100, end],
  );
  const reply = only(new ReplyTimes(log).sync());
  expect(flatten(reply).map(({ reply, depth }) => [reply.name, depth])).toEqual([
    ["demo", 0],
    ["x", 1],
  ]);
  expect(lines(reply).map(({ doing, label, depth }) => `${"  ".repeat(depth)}${doing} ${label}`)).toEqual([
    "reply demo",
    "  tool tool a",
    "    agent x",
    "      model m",
    "  wait tool b",
  ]);
  expect(splitTime(reply, 0)).toEqual({ model: 60, tool: 30, wait: 0, other: 10 });
  expect(tokens(reply).input_tokens).toBe(10);
});

test("a stop in the middle ends all that was open", () => {
  const reply = only(
    new ReplyTimes(
      source([0, begin], [5, call], [10, tool("a")], [20, { ...end, finished_reason: "interrupted" }]),
    ).sync(),
  );
  expect(reply.spans.every(({ to }) => to === 20)).toBe(true);
  expect(reply.reason).toBe("interrupted");
});

test("it goes on where it stopped, and begins anew with the log", () => {
  const whole = source([0, begin], [10, call], [110, called], [120, end]);
  const log = { events: [] as Event[], times: [] as number[], seqs: [] as number[], generation: 0 };
  const turns = new ReplyTimes(log);
  whole.events.forEach((event, at) => {
    log.events.push(event);
    log.times.push(whole.times[at] ?? 0);
    log.seqs.push(at + 1);
    turns.sync();
  });
  expect(turns.replies).toEqual(new ReplyTimes(whole).sync().replies);
  expect(turns.calls).toEqual([{ at: 110, seq: 3, input: 10, output: 5 }]);
  log.events = [];
  log.generation = 1;
  expect(turns.sync().replies).toEqual([]);
  expect(turns.calls).toEqual([]);
});

test("costs are those of the log, sub-agents included, whatever prices are now", () => {
  const sub = { reply_id: "r2", agent_path: "demo/x", parent_tool_call_id: "a" };
  const log = source(
    [0, begin],
    [0, { type: "TOOL_CALL_START", reply_id, tool_call_id: "a", tool_call_name: "ask" }],
    [1, call],
    [2, { ...called, metadata: { cost: 0.25 } }],
    [3, tool("a")],
    [4, { ...begin, ...sub, name: "x" }],
    [4, { ...call, ...sub }],
    [5, { ...called, ...sub, metadata: { cost: 0.5 } }],
    [6, { ...end, ...sub }],
    [7, done("a")],
    [8, call],
    [9, called],
    [9, end],
  );
  const reply = only(new ReplyTimes(log).sync());
  expect(costOf(reply)).toBe(0.75);
  expect(lines(reply).map(({ doing, cost }) => [doing, cost])).toEqual([
    ["reply", 0.75],
    ["model", 0.25],
    ["tool", null],
    ["agent", 0.5],
    ["model", 0.5],
    ["model", null],
  ]);
});
