// @vitest-environment happy-dom

import { type Event, Folder } from "turnwire/message";
import { expect, test } from "vitest";
import { Replay } from "./state-at.ts";

const seed = Number(process.env["TURNWIRE_SEED"] ?? Math.floor(Math.random() * 1e9));
console.log(`to repeat this run: TURNWIRE_SEED=${seed}`);
let state = seed;
function random(below: number): number {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
}

/** A log of turns: messages, replies with blocks of all kinds, sub-agents, retries; some of it late or wrong. */
function stream(length: number): Event[] {
  const events: Record<string, unknown>[] = [];
  const open: { id: string; blocks: { id: string; kind: string; over: boolean }[]; above: Record<string, string> }[] =
    [];
  const ended: string[] = [];
  let made = 0;
  const push = (event: Record<string, unknown>) => {
    const seq = events.length + 1;
    events.push({ id: `e${seq}`, created_at: new Date(seq * 10).toISOString(), metadata: {}, ...event, seq });
  };
  while (events.length < length) {
    const reply = open[random(open.length + 1)];
    const what = random(20);
    if (reply === undefined) {
      const id = `r${++made}`;
      if (what < 3)
        push({
          type: "MESSAGE",
          message: { id: `m${made}`, name: "u", role: "user", content: [{ type: "text", text: `say ${made}` }] },
        });
      else if (what < 4 && ended.length > 0) push({ type: "SUPERSEDE", message_ids: [ended[random(ended.length)]] });
      else if (what < 5 && ended.length > 0)
        push({ type: "TEXT_BLOCK_DELTA", reply_id: ended[random(ended.length)], block_id: "late", delta: "late" });
      else if (open.length < 3) {
        const above =
          open.length > 0 && random(2) === 0 ? { agent_path: "a/b", parent_tool_call_id: `c${random(9)}` } : {};
        push({ type: "REPLY_START", reply_id: id, session_id: "s", name: "demo", role: "assistant", ...above });
        open.push({ id, blocks: [], above: above as Record<string, string> });
      }
      continue;
    }
    const mine = { reply_id: reply.id, ...reply.above };
    const block = reply.blocks[random(reply.blocks.length + 1)];
    if (what === 19) {
      push({ type: "REPLY_START", session_id: "s", name: "somebody else", role: "assistant", ...mine });
    } else if (block === undefined) {
      const id = `b${++made}`;
      const kind = ["text", "thinking", "call", "data"][random(4)] ?? "text";
      if (kind === "call") push({ type: "TOOL_CALL_START", tool_call_id: id, tool_call_name: "tool", ...mine });
      else
        push({
          type: `${kind.toUpperCase()}_BLOCK_START`,
          block_id: id,
          ...(kind === "data" && { media_type: "image/png" }),
          ...mine,
        });
      reply.blocks.push({ id, kind, over: false });
    } else if (what === 0) {
      push({ type: "REPLY_END", session_id: "s", finished_reason: "completed", ...mine });
      open.splice(open.indexOf(reply), 1);
      ended.push(reply.id);
    } else if (what < 3) {
      if (block.kind === "call") push({ type: "TOOL_CALL_END", tool_call_id: block.id, ...mine });
      else push({ type: `${block.kind.toUpperCase()}_BLOCK_END`, block_id: block.id, ...mine });
      block.over = true;
    } else if (what < 4 && block.kind === "call") {
      push({ type: "REQUIRE_USER_CONFIRM", tool_calls: [{ id: block.id, name: "tool", input: "{}" }], ...mine });
    } else if (what < 5 && block.kind === "call") {
      push({
        type: "USER_CONFIRM_RESULT",
        confirm_results: [{ confirmed: true, tool_call: { id: block.id, name: "tool", input: '{"edited":1}' } }],
        ...mine,
      });
    } else if (what < 7 && block.kind === "call") {
      push({ type: "TOOL_RESULT_START", tool_call_id: block.id, tool_call_name: "tool", ...mine });
    } else if (what < 9 && block.kind === "call") {
      push({ type: "TOOL_RESULT_TEXT_DELTA", tool_call_id: block.id, delta: `out ${random(9)}`, ...mine });
    } else if (block.kind === "call") {
      push({ type: "TOOL_CALL_DELTA", tool_call_id: block.id, delta: "{", ...mine });
    } else if (block.kind === "data") {
      push({ type: "DATA_BLOCK_DELTA", block_id: block.id, data: ["AAEC", "AwQ", "F", "BgcI"][random(4)], ...mine });
    } else {
      push({ type: `${block.kind.toUpperCase()}_BLOCK_DELTA`, block_id: block.id, delta: `w${random(99)} `, ...mine });
    }
  }
  return events as unknown as Event[];
}

/** The same from the start, after no event, after one, and so on: as JSON. */
function fromStart(events: Event[]): string[] {
  const folder = new Folder();
  const agents = new Set<string>();
  const json = () => {
    const { history } = folder;
    return JSON.stringify({
      messages: history.filter(({ id }) => !agents.has(id)),
      agents: history.filter(({ id }) => agents.has(id)),
    });
  };
  return [
    json(),
    ...events.map((event) => {
      folder.pushTolerant(event);
      if (event.parent_tool_call_id !== undefined) agents.add((event as { reply_id: string }).reply_id);
      return json();
    }),
  ];
}

const shown = ({ messages, agents }: ReturnType<Replay["after"]>): unknown =>
  JSON.parse(JSON.stringify({ messages, agents: agents.map(({ message }) => message) }));

test("the state at any event is that of a fold from the start, in whatever order it is asked", () => {
  for (let round = 0; round < 4; round++) {
    const events = stream(250);
    const expected = fromStart(events);
    const replay = new Replay(events, 1 + random(40));
    const check = (count: number) =>
      expect(shown(replay.after(count)), `after ${count} of round ${round}`).toEqual(JSON.parse(expected[count] ?? ""));
    for (let step = 0; step < 40; step++) check(random(events.length + 1));
    for (let count = events.length; count >= 0; count -= 1 + random(12)) check(count);
  }
}, 20_000);

test("what was shown before does not change when another state is asked for", () => {
  const events = stream(300);
  const replay = new Replay(events, 32);
  const early = replay.after(150);
  const before = JSON.stringify(early);
  replay.after(300);
  replay.after(160);
  expect(JSON.stringify(early)).toBe(before);
});

test("events that come later are there when they are asked for", () => {
  const events = stream(200);
  const growing = events.slice(0, 100);
  const replay = new Replay(growing, 16);
  replay.after(100);
  growing.push(...events.slice(100));
  expect(shown(replay.after(200))).toEqual(JSON.parse(fromStart(events)[200] ?? ""));
});

test("a step back in a long log folds only what is behind the nearest point", () => {
  const head = { type: "TEXT_BLOCK_START", reply_id: "r", block_id: "b", seq: 1 } as Event;
  const deltas = Array.from(
    { length: 50_000 },
    (_, at) => ({ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "b", delta: "x", seq: at + 2 }) as Event,
  );
  const seen: number[] = [];
  // Counts each event that is looked at.
  const events = new Proxy([head, ...deltas], {
    get(target, key) {
      if (typeof key === "string" && /^\d+$/.test(key)) seen.push(Number(key));
      return Reflect.get(target, key) as unknown;
    },
  });
  const replay = new Replay(events, 1024);
  replay.after(50_001);
  seen.length = 0;
  const { messages } = replay.after(30_000);
  expect(messages[0]?.content[0]).toMatchObject({ text: "x".repeat(29_999) });
  expect(seen.length).toBeLessThanOrEqual(1024);
});
