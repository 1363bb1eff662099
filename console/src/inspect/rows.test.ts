import type { Event } from "turnwire/message";
import { expect, test } from "vitest";
import { kindOf, summarizeEvents } from "./event-kinds.ts";
import { type Row, Rows } from "./rows.ts";

const delta = (block_id: string, delta = "x", type = "TEXT_BLOCK_DELTA") =>
  ({ type, reply_id: "r", block_id, delta }) as Event;
const start = (block_id: string) => ({ type: "TEXT_BLOCK_START", reply_id: "r", block_id }) as Event;
const source = (...events: Event[]) => ({ events, generation: 0 });

function all(rows: Rows): string[] {
  return Array.from({ length: rows.length }, (_, index) => {
    const { from, to, member, open } = rows.at(index) as Row;
    return `${member ? "  " : ""}${from}-${to - 1}${open ? " open" : ""}`;
  });
}

test("neighbouring deltas of one block are one row", () => {
  const rows = new Rows(
    source(
      start("a"),
      delta("a"),
      delta("a"),
      delta("b"),
      delta("b", "x", "THINKING_BLOCK_DELTA"),
      start("c"),
      delta("a"),
    ),
  ).sync();
  expect(all(rows)).toEqual(["0-0", "1-2", "3-3", "4-4", "5-5", "6-6"]);
});

test("a row grows with what comes, whichever way it comes", () => {
  const events = [start("a"), delta("a"), delta("a"), start("b"), delta("b"), delta("b"), delta("b")];
  const grown = { events: [] as Event[], generation: 0 };
  const rows = new Rows(grown);
  for (const event of events) {
    grown.events.push(event);
    rows.sync();
    expect(all(rows)).toEqual(all(new Rows(source(...grown.events)).sync()));
  }
  expect(all(rows)).toEqual(["0-0", "1-2", "3-3", "4-6"]);
});

test("opening a row shows each of its events, also those that come then", () => {
  const grown = { events: [start("a"), delta("a"), delta("a")], generation: 0 };
  const rows = new Rows(grown).sync();
  rows.toggle((rows.at(1) as Row).from);
  expect(all(rows)).toEqual(["0-0", "1-2 open", "  1-1", "  2-2"]);
  grown.events.push(delta("a"), start("b"));
  expect(all(rows.sync())).toEqual(["0-0", "1-3 open", "  1-1", "  2-2", "  3-3", "4-4"]);
  rows.toggle((rows.at(3) as Row).from);
  expect(all(rows)).toEqual(["0-0", "1-3", "4-4"]);
});

test("an event is found in the row that shows it", () => {
  const rows = new Rows(source(start("a"), delta("a"), delta("a"), delta("a"), start("b"))).sync();
  expect([0, 1, 2, 3, 4].map((event) => rows.find(event))).toEqual([0, 1, 1, 1, 2]);
  rows.toggle((rows.at(1) as Row).from);
  expect([0, 1, 2, 3, 4].map((event) => rows.find(event))).toEqual([0, 2, 3, 4, 5]);
});

test("a filter leaves the rows of one kind, and what is missing is found at the row before", () => {
  const events = [
    start("a"),
    { type: "TOOL_CALL_START", reply_id: "r", tool_call_id: "c", tool_call_name: "t" } as Event,
    delta("a"),
  ];
  const rows = new Rows(source(...events), "tool").sync();
  expect(all(rows)).toEqual(["1-1"]);
  expect([0, 1, 2].map((event) => rows.find(event))).toEqual([-1, 0, 0]);
});

test("a log that begins anew leaves nothing of the rows before", () => {
  const log = { events: [start("a"), delta("a"), delta("a")], generation: 0 };
  const rows = new Rows(log).sync();
  rows.toggle((rows.at(1) as Row).from);
  log.events = [start("z")];
  log.generation = 1;
  expect(all(rows.sync())).toEqual(["0-0"]);
});

test("a hundred thousand events that come one by one stay cheap", () => {
  const log = { events: [] as Event[], generation: 0 };
  const rows = new Rows(log);
  for (let at = 0; at < 100_000; at++) {
    log.events.push(start(String(at)));
    rows.sync();
  }
  expect(rows.length).toBe(100_000);
  expect(rows.find(77_777)).toBe(77_777);
});

test("a row says what its events say", () => {
  const events = [delta("a", "It "), delta("a", "is\n"), delta("a", "late")];
  expect(summarizeEvents(events, 0, 3)).toBe("It is late");
  expect(summarizeEvents([delta("a", "y".repeat(500))], 0, 1)).toHaveLength(121);
  expect(summarizeEvents([{ type: "SOMETHING_NEW" } as never], 0, 1)).toBe("");
  for (const type of ["REPLY_START", "REPLY_END", "MODEL_CALL_START", "MODEL_CALL_END", "TOOL_CALL_START"]) {
    expect(summarizeEvents([{ type } as never], 0, 1), "with nothing but what is needed").toBeTypeOf("string");
  }
});

test("every event is of a kind", () => {
  expect(kindOf("MESSAGE")).toBe("human");
  expect(kindOf("USER_CONFIRM_RESULT")).toBe("human");
  expect(kindOf("TOOL_RESULT_TEXT_DELTA")).toBe("tool");
  expect(kindOf("BLOCK")).toBe("text");
  expect(kindOf("SOMETHING_NEW")).toBe("other");
});
