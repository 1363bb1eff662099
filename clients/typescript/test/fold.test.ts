// The fold, compared with what the Rust one makes of the same streams.

import { readFileSync } from "node:fs";
import {
  AssistantMsg,
  type Event,
  type EventLike,
  EventType,
  FoldError,
  Folder,
  Msg,
  SystemMsg,
  snapshot,
  UserMsg,
} from "turnwire/message";
import { describe, expect, test } from "vitest";

function vectors(name: string): any[] {
  return JSON.parse(readFileSync(new URL(`vectors/${name}.json`, import.meta.url), "utf8")).cases;
}

/** As JSON: what is undefined is not there. */
const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

function strict(events: EventLike[]) {
  const folder = new Folder();
  const outcomes = events.map((event) => {
    try {
      return folder.push(event);
    } catch (error) {
      if (!(error instanceof FoldError)) throw error;
      return `skipped ${error.kind}`.toLowerCase();
    }
  });
  return { outcomes, folder };
}

function tolerant(events: EventLike[]) {
  const folder = new Folder();
  const outcomes = events.map((event) => {
    let problem = "";
    const outcome = folder.pushTolerant(event, (error) => (problem = ` ${error.kind}`.toLowerCase()));
    return outcome + problem;
  });
  return { outcomes, folder };
}

describe.each(["replies", "repeats", "disorder"])("%s", (name) => {
  test.each(vectors(name).map((each, at) => [at, each] as const))(
    "case %i folds to what Rust folds it to",
    (_, each) => {
      for (const [mode, fold] of Object.entries({ strict, tolerant })) {
        const { outcomes, folder } = fold(plain(each.events));
        const numbered = (list: string[]) => list.map((outcome, at) => `${at} ${each.events[at].type} ${outcome}`);
        expect(numbered(outcomes), mode).toEqual(numbered(each[mode].outcomes));
        expect(plain(folder.messages), mode).toEqual(each[mode].messages);
        expect(
          folder.history.map(({ id }) => id),
          mode,
        ).toEqual(each[mode].history);
      }
    },
  );
});

test("a message that was stored in the middle continues", () => {
  for (const { before, message, cursor, behind, whole } of vectors("splits")) {
    const msg = Msg.reply("r");
    for (const event of before) msg.appendEvent(event);
    expect(plain(msg)).toEqual(message);
    expect(msg.cursor()).toEqual(cursor);
    const later = Msg.from(plain(message), cursor);
    for (const event of [...before, ...behind]) later.appendEvent(event);
    expect(plain(later)).toEqual(whole);
  }
});

test("a message is read as Rust reads it", () => {
  for (const { read, written, error } of vectors("messages")) {
    if (error) {
      expect(() => Msg.from(plain(read)), JSON.stringify(read)).toThrow(expect.objectContaining({ kind: error }));
    } else {
      expect(plain(Msg.from(plain(read)))).toEqual(written);
    }
  }
});

/** A stream with one text block of these deltas. */
function texts(deltas: string[], block_id = "b"): Event[] {
  const base = { reply_id: "r", block_id, created_at: "2026-01-01T00:00:00.000Z" };
  return [
    { type: "TEXT_BLOCK_START", ...base },
    ...deltas.map((delta): Event => ({ type: "TEXT_BLOCK_DELTA", ...base, delta })),
  ];
}

test("a message built without created_at takes it from the first event", () => {
  const msg = new AssistantMsg({ name: "friday", content: [], id: "r" });
  for (const event of texts(["Hel", "lo"])) msg.appendEvent(event);
  expect(msg.created_at).toBe("2026-01-01T00:00:00.000Z");
  expect(msg.getTextContent()).toBe("Hello");
  expect(msg.getContentBlocks("text")[0]!.text).toBe("Hello");
  expect(msg.hasContentBlocks("tool_call")).toBe(false);
});

test("a text becomes a block, and the role rules are checked", () => {
  expect(new UserMsg({ name: "alice", content: "hi" }).content).toEqual([
    { type: "text", text: "hi", finished_at: null },
  ]);
  expect(new SystemMsg({ name: "system", content: "You are Friday." }).role).toBe("system");
  const content = [{ type: "thinking", thinking: "hm" }] as const;
  expect(() => new UserMsg({ name: "alice", content })).toThrow(expect.objectContaining({ kind: "WrongRole" }));
  expect(new UserMsg({ name: "alice", content: "hi" }).getTextContent()).toBe("hi");
  expect(new AssistantMsg({ name: "friday", content: [] }).getTextContent()).toBe(null);
});

test("an event that does not fit is an error and changes nothing", () => {
  const msg = Msg.reply("r");
  msg.appendEvent(texts(["a"])[0]!);
  msg.appendEvent({ type: "DATA_BLOCK_START", reply_id: "r", block_id: "d" } as EventLike);
  const before = plain(msg);
  const misfits: [EventLike & Record<string, unknown>, string][] = [
    [{ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "x", delta: "?" }, "UnknownBlock"],
    [{ type: "TEXT_BLOCK_DELTA", reply_id: "other", block_id: "b", delta: "?" }, "WrongReply"],
    [{ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "b", delta: 7 }, "NotAnEvent"],
    [{ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "b" }, "NotAnEvent"],
    [{ type: "TEXT_BLOCK_DELTA", reply_id: "r", block_id: "b", delta: "x", seq: 0 }, "NotAnEvent"],
    [{ type: "TEXT_BLOCK_START", reply_id: "r", block_id: "b" }, "DuplicateBlock"],
    [{ type: "USER_CONFIRM_RESULT", reply_id: "r", confirm_results: [null] }, "NotAnEvent"],
    [{ type: "DATA_BLOCK_DELTA", reply_id: "r", block_id: "d", data: "YQ==", url: "x" }, "NotAnEvent"],
    [{ type: "DATA_BLOCK_DELTA", reply_id: "r", block_id: "d" }, "NotAnEvent"],
    [{ type: "HINT_BLOCK", reply_id: "r", block_id: "h", hint: 7 }, "NotAnEvent"],
    [{ type: "REPLY_START", reply_id: "r", role: "king" }, "NotAnEvent"],
    [{ type: "REQUIRE_USER_CONFIRM", reply_id: "r", tool_calls: [{ id: "c", type: "text" }] }, "NotAnEvent"],
  ];
  for (const [event, kind] of misfits) {
    expect(() => msg.appendEvent(event), JSON.stringify(event)).toThrow(expect.objectContaining({ kind }));
    expect(plain(msg)).toEqual(before);
    const problems: string[] = [];
    expect(msg.appendEventTolerant(event, (problem) => problems.push(problem.kind))).toBe("skipped");
    expect(problems).toEqual([kind]);
    expect(plain(msg)).toEqual(before);
  }
});

test("keys with a meaning in JavaScript are ordinary keys", () => {
  const msg = Msg.reply("r");
  const events = texts(["a"], "__proto__");
  const extra = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}');
  events.push({ type: "TEXT_BLOCK_END", reply_id: "r", block_id: "__proto__", extra });
  for (const event of events) msg.appendEvent(event);
  const block = msg.content[0] as unknown as Record<string, unknown>;
  expect(Object.getPrototypeOf(block)).toBe(Object.prototype);
  expect(JSON.stringify(block)).toContain('"__proto__":{"polluted":true}');
  expect(({} as Record<string, unknown>)["polluted"]).toBe(undefined);
  expect(msg.appendEvent({ type: "constructor" })).toBe("ignored");
  expect(() => Msg.from({ role: "constructor", content: [] })).toThrow("`role`");
});

test("a snapshot is the same until something happens, and so are its blocks", () => {
  const msg = Msg.reply("r");
  for (const event of [...texts(["one"], "a"), ...texts(["two"], "b")]) msg.appendEvent(event);
  const first = snapshot(msg);
  expect(snapshot(msg)).toBe(first);
  msg.appendEvent(texts(["!"], "b")[1]!);
  const second = snapshot(msg);
  expect(second).not.toBe(first);
  expect(second.content[0]).toBe(first.content[0]);
  expect(second.content[1]).not.toBe(first.content[1]);
  expect([first, second].map(({ content }) => (content[1] as { text: string }).text)).toEqual(["two", "two!"]);
});

test("a snapshot equals the message at any time", () => {
  for (const every of [1, 2, 3, 5]) {
    for (const { events } of vectors("replies")) {
      const folder = new Folder();
      (plain(events) as EventLike[]).forEach((event, at) => {
        folder.pushTolerant(event);
        if (at % every) return;
        for (const msg of folder.messages) expect(plain(snapshot(msg))).toEqual(plain(msg));
      });
    }
  }
});

test("every type of event has its name", () => {
  expect(EventType.REPLY_START).toBe("REPLY_START");
  expect(Object.keys(EventType)).toHaveLength(35);
});
