import type { MsgJson } from "turnwire/message";
import { describe, expect, test } from "vitest";
import { Batches } from "./batches.ts";

const say = (n: number): MsgJson => ({ id: `m${n}` }) as MsgJson;
const from = (a: number, b: number) => Array.from({ length: b - a }, (_, n) => say(a + n));
const shape = (list: readonly { key: number; messages: readonly MsgJson[] }[]) =>
  list.map(({ key, messages }) => [key, messages.length]);

describe("batches", () => {
  test("what comes behind fills the last one, and the others stay the same", () => {
    const batches = new Batches();
    const all = from(0, 50);
    const before = batches.update(all);
    expect(shape(before)).toEqual([
      [0, 20],
      [1, 20],
      [2, 10],
    ]);
    const now = batches.update([...all, say(50)]);
    expect(shape(now)).toEqual([
      [0, 20],
      [1, 20],
      [2, 11],
    ]);
    expect([now[0] === before[0], now[1] === before[1], now[2] === before[2]]).toEqual([true, true, false]);
    expect(batches.update([...now.flatMap(({ messages }) => messages)]).every((batch, at) => batch === now[at])).toBe(
      true,
    );
  });

  test("what comes in front makes new ones, and nothing moves from one to another", () => {
    const batches = new Batches();
    const all = from(100, 150);
    const before = batches.update(all);
    const older = from(73, 100);
    const now = batches.update([...older, ...all]);
    expect(shape(now)).toEqual([
      [-2, 7],
      [-1, 20],
      [0, 20],
      [1, 20],
      [2, 10],
    ]);
    expect(now.slice(2)).toEqual(before);
    expect(now.slice(2).every((batch, at) => batch === before[at])).toBe(true);
    expect(shape(batches.update([say(1), ...older, ...all]))[0]).toEqual([-3, 1]);
  });

  test("what is gone leaves its place, and others come", () => {
    const batches = new Batches();
    const all = from(0, 30);
    batches.update(all);
    const left = all.filter((_, at) => at !== 5 && at !== 29);
    expect(shape(batches.update(left))).toEqual([
      [0, 19],
      [1, 9],
    ]);
    expect(shape(batches.update([...left, say(99)]))).toEqual([
      [0, 19],
      [1, 10],
    ]);
    expect(shape(batches.update(from(500, 510)))).toEqual([[0, 10]]);
    expect(batches.update([])).toEqual([]);
    expect(shape(batches.update(from(0, 21)))).toEqual([
      [0, 20],
      [1, 1],
    ]);
  });

  test("another order is begun anew, with each message once", () => {
    const batches = new Batches();
    batches.update(from(0, 60));
    const turned = [...from(40, 60), ...from(0, 40)];
    const now = batches.update(turned);
    expect(now.flatMap(({ messages }) => messages)).toEqual(turned);
    expect(new Set(now.map(({ key }) => key)).size).toBe(now.length);
  });
});
