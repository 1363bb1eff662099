// @vitest-environment happy-dom

import type { Event } from "turnwire/message";
import { expect, test, vi } from "vitest";
import { Log } from "./log.ts";

const at = (ms: number) => new Date(ms).toISOString();
const event = (seq: number | undefined, type = "CUSTOM", created_at: string | undefined = at(1000)) =>
  ({ type, ...(seq !== undefined && { seq }), created_at }) as Event;

function log(...events: Event[]): Log {
  const made = new Log();
  for (const each of events) made.push(each);
  return made;
}

test("an event is found by its place, also where the log has lost its beginning", () => {
  expect([0, 1, 2, 3, 4].map((seq) => log(event(1), event(2), event(3)).indexOf(seq))).toEqual([-1, 0, 1, 2, 2]);
  // Messages whose events are gone stand at the last of them, and what says which of them count has no place.
  const trimmed = log(event(10), event(25), event(undefined, "SUPERSEDE"), event(26), event(27));
  expect([9, 10, 11, 25, 26, 27, 99].map((seq) => trimmed.indexOf(seq))).toEqual([-1, 0, 0, 2, 3, 4, 4]);
  expect([trimmed.first, trimmed.last]).toEqual([10, 27]);
});

test("times go on where one is missing, and a turn begins with its message", () => {
  const made = log(
    event(1, "MESSAGE", at(1000)),
    event(2, "REPLY_START", at(1004)),
    event(3, "CUSTOM", "nonsense"),
    event(4, "MESSAGE", at(5000)),
    event(5, "REPLY_START", at(5001)),
  );
  expect(made.times).toEqual([1000, 1004, 1004, 5000, 5001]);
  expect(made.turns).toEqual([1000, 1000, 1000, 5000, 5000]);
});

test("a reset empties it, and what was made of it is void", () => {
  const made = log(event(1), event(2));
  const { generation } = made;
  made.push({ type: "RESET", epoch: "e", reason: "gone" } as Event);
  expect([made.events, made.seqs, made.times, made.turns]).toEqual([[], [], [], []]);
  expect(made.generation).toBe(generation + 1);
  made.push(event(1));
  expect([made.last, made.ready]).toEqual([1, false]);
});

test("what is merged has the time of its first delta and the seq of its last", () => {
  const made = new Log(true);
  const delta = (seq: number, ms: number, block_id = "b") =>
    made.push({ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id, delta: "x", seq, created_at: at(ms) } as Event);
  made.push(event(1, "REPLY_START", at(1000)));
  delta(5, 1010);
  delta(6, 1020);
  delta(7, 1030);
  delta(8, 1040, "c");
  expect(made.events.length).toBe(3);
  expect([made.seqs, made.times]).toEqual([
    [1, 7, 8],
    [1000, 1010, 1040],
  ]);
});

test("a page that is hidden before its next frame is notified nevertheless", async () => {
  vi.stubGlobal("requestAnimationFrame", () => 1);
  const made = new Log();
  const notified = new Promise<void>((resolve) => void made.subscribe(resolve));
  made.push(event(1));
  await notified;
  vi.unstubAllGlobals();
});

test("subscribers are notified once for all that came together", async () => {
  const made = new Log();
  let notified = 0;
  const notifiedOnce = new Promise<void>((resolve) =>
    made.subscribe(() => {
      notified += 1;
      resolve();
    }),
  );
  for (let seq = 1; seq <= 1000; seq++) made.push(event(seq));
  await notifiedOnce;
  expect([notified, made.events.length]).toEqual([1, 1000]);
});
