// What is asked of a server, and what is made of its answers.

import { createHash } from "node:crypto";
import { type Connection, connect, type Options, webSocket } from "turnwire";
import type { Event } from "turnwire/message";
import { SessionView } from "turnwire/view";
import { afterEach, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import { pieces } from "../src/http.js";
import { Parser } from "../src/sse.js";
import { random, serve, until, whileTesting } from "./harness.js";

interface Asked {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: unknown;
}

/** A `fetch` that answers with these, one after the other; the last one again and again. */
function answering(...answers: ((signal: AbortSignal) => Response)[]) {
  const asked: Asked[] = [];
  const fetch = (async (url: string, { method, headers, body, signal }: RequestInit) => {
    asked.push({ method: method!, url, headers: headers as Record<string, string>, body });
    return answers[Math.min(asked.length, answers.length) - 1]!(signal!);
  }) as typeof globalThis.fetch;
  return { asked, fetch };
}

const json =
  (value: unknown, status = 200) =>
  () =>
    new Response(JSON.stringify(value), { status });
const lost = () => {
  throw new TypeError("fetch failed");
};
const error = (status: number, type: string) =>
  json({ error: { type, message: `it is ${type}`, hint: "wait" } }, status);
const frame = (seq: number, more = "") => `id: e.${seq}\ndata: {"type":"CUSTOM","name":"n","seq":${seq}${more}}\n\n`;

/** A stream of this text that then breaks off, or stays silent. */
function stream(text: string, end: "cut" | "silent" = "cut") {
  return (signal: AbortSignal) =>
    new Response(
      new ReadableStream({
        start(controller) {
          signal?.addEventListener("abort", () => controller.error(signal.reason));
          if (text) controller.enqueue(new TextEncoder().encode(text));
        },
        pull(controller) {
          if (end === "cut") controller.error(new TypeError("terminated"));
        },
      }),
    );
}

/** Has time pass, none of it real, until something is there. */
async function soon<T>(work: Promise<T>): Promise<T> {
  let over = false;
  const end = () => (over = true);
  work.then(end, end);
  while (!over) await vi.advanceTimersByTimeAsync(1000);
  return work;
}
afterEach(() => void vi.useRealTimers());

const quick = { url: "http://server", retry: { min: 1, max: 2 } };

async function events(options: Options, most: number, after?: string): Promise<number[]> {
  const seen: number[] = [];
  for await (const event of connect({ ...quick, ...options })
    .session("a b")
    .watch({ after })) {
    seen.push(event.type === "RESET" ? 0 : event.seq!);
    if (seen.length === most) break;
  }
  return seen;
}

test("a message is repeated with the same key and body until there is a response", async () => {
  const sent = { message_id: "m", reply_id: "r", last_event_id: "e.1" };
  const { asked, fetch } = answering(lost, error(503, "stopping"), json(sent, 202));
  expect(
    await connect({ ...quick, fetch, token: "secret" })
      .session("a b")
      .send("hi", { queue: true }),
  ).toEqual(sent);
  expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual(
    Array(3).fill("POST http://server/v1/sessions/a%20b/messages?queue=true"),
  );
  expect(new Set(asked.map(({ headers }) => headers["idempotency-key"])).size).toBe(1);
  expect(asked[0]!.headers["authorization"]).toBe("Bearer secret");
  expect(asked[2]!.body).toBe('{"content":"hi"}');
});

test("a refused request is an error with the server's message, and is not repeated", async () => {
  const { asked, fetch } = answering(error(409, "busy"));
  const refused = connect({ ...quick, fetch })
    .session("s")
    .send("hi");
  await expect(refused).rejects.toMatchObject({
    name: "TurnwireError",
    status: 409,
    type: "busy",
    message: "it is busy",
    hint: "wait",
  });
  expect(asked).toHaveLength(1);
});

test("repeating ends with patience or the signal, and a delete whose response was lost succeeds", async () => {
  const client = connect({ ...quick, fetch: answering(lost).fetch, patience: 5 });
  await expect(client.agents()).rejects.toMatchObject({
    type: "lost",
    status: 0,
    message: expect.stringContaining("cannot reach http://server"),
  });
  await expect(client.session("s").get({ signal: AbortSignal.abort() })).rejects.toMatchObject({ name: "AbortError" });
  await connect({ ...quick, fetch: answering(lost, error(404, "not_found")).fetch })
    .session("s")
    .delete();
});

test("answers are events with an id of their own", async () => {
  const { asked, fetch } = answering(json({ stored: 1 }));
  const session = connect({ ...quick, fetch, token: async () => "fresh" }).session("s");
  const rule = { tool_name: "t", behavior: "allow", source: "demo" };
  const asking = { reply_id: "r", tool_call: { id: "c", name: "t", suggested_rules: [rule] } };
  await session.approve(asking);
  await session.approve(asking, { input: { a: 1 }, always: true });
  await session.deny(asking);
  await session.result(asking, "done");
  await session.stop();
  const said = asked.map(({ body }) => JSON.parse(body as string)[0]);
  expect(new Set(said.map(({ id }) => id)).size).toBe(5);
  expect(said.map(({ id, created_at, ...event }) => event)).toEqual([
    { type: "USER_CONFIRM_RESULT", reply_id: "r", confirm_results: [{ confirmed: true, tool_call: { id: "c" } }] },
    {
      type: "USER_CONFIRM_RESULT",
      reply_id: "r",
      confirm_results: [{ confirmed: true, tool_call: { id: "c", input: '{"a":1}' }, rules: [rule] }],
    },
    { type: "USER_CONFIRM_RESULT", reply_id: "r", confirm_results: [{ confirmed: false, tool_call: { id: "c" } }] },
    {
      type: "EXTERNAL_EXECUTION_RESULT",
      reply_id: "r",
      execution_results: [{ type: "tool_result", id: "c", name: "t", output: "done", state: "success", metadata: {} }],
    },
    { type: "USER_INTERRUPT", reply_id: "" },
  ]);
  expect(asked[0]!.headers["authorization"]).toBe("Bearer fresh");
});

test("a broken stream continues after its last complete event, and repeats are skipped", async () => {
  const { asked, fetch } = answering(
    // The last frame is cut in the middle: it never came.
    stream(frame(5) + frame(6) + frame(7).slice(0, 20)),
    error(503, "stopping"),
    stream(`: hello\nretry: 1000\n\n${frame(6)}${frame(7)}`),
    stream(`data: {"type":"RESET","epoch":"f","reason":"restored"}\n\n${frame(1).replace("e.", "f.")}`),
    stream(frame(2).replace("e.", "f."), "silent"),
  );
  expect(await events({ fetch }, 6, "e.4")).toEqual([5, 6, 7, 0, 1, 2]);
  expect(asked.map(({ url }) => new URL(url).searchParams.get("after"))).toEqual(["e.4", "e.6", "e.6", "e.7", "f.1"]);
  expect(asked[0]!.url).toContain("/v1/sessions/a%20b/events?");
});

test("a silent connection counts as lost", async () => {
  vi.useFakeTimers();
  const { asked, fetch } = answering(stream(frame(1), "silent"), stream("", "silent"), stream(frame(2), "silent"));
  expect(await soon(events({ fetch }, 2))).toEqual([1, 2]);
  expect(asked).toHaveLength(3);
});

/** Never answers, and does not look at its signal either. */
const hangs = () => new Promise<never>(() => {});

test("silence is a timeout in every phase: token, response, rest of the response", async () => {
  vi.useFakeTimers();
  let tokens = 0;
  const token = () => (tokens++ ? "fresh" : hangs());
  const deaf = () =>
    new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode(frame(1))) }));
  const { asked, fetch } = answering(hangs as never, deaf, stream(frame(2), "silent"));
  expect(await soon(events({ fetch, token }, 2))).toEqual([1, 2]);
  expect(tokens).toBe(4);
  expect(asked.map(({ url }) => new URL(url).searchParams.get("after"))).toEqual([null, null, "e.1"]);
});

test("a request without a response is aborted and repeated", async () => {
  vi.useFakeTimers();
  const halfway = () =>
    new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode('{"age')) }));
  const { asked, fetch } = answering(hangs as never, halfway, json({ agents: [], default_agent: "a" }));
  expect(await soon(connect({ ...quick, fetch, patience: 300_000 }).agents())).toEqual({
    agents: [],
    default_agent: "a",
  });
  expect(asked).toHaveLength(3);
  // What is sent up may take its time.
  const slow = answering(
    (() => new Promise((resolve) => setTimeout(() => resolve(json({ id: "b" })()), 900_000))) as never,
  );
  expect(await soon(connect({ ...quick, fetch: slow.fetch }).upload("bytes"))).toEqual({ id: "b" });
  expect(slow.asked).toHaveLength(1);
});

test("a view whose first page does not arrive requests it again", async () => {
  vi.useFakeTimers();
  const page = {
    messages: [],
    cursors: {},
    agents: {},
    last_event_id: "e.0",
    has_more: false,
    pending: [],
    queued: [],
  };
  const { asked, fetch } = answering(hangs as never, json(page));
  const view = new SessionView(connect({ ...quick, fetch }).session("s"), { signal: whileTesting() });
  await soon(new Promise<void>((resolve) => view.subscribe(() => view.state.ready && resolve())));
  expect(asked[1]!.url).toBe(asked[0]!.url);
});

test("a slow reader is waited for without the connection counting as lost", async () => {
  vi.useFakeTimers();
  const { asked, fetch } = answering(stream(Array.from({ length: 600 }, (_, at) => frame(at + 1)).join(""), "silent"));
  const watch = connect({ ...quick, fetch })
    .session("s")
    .watch();
  await vi.advanceTimersByTimeAsync(600_000);
  expect(watch.connection.state).toBe("live");
  expect(asked).toHaveLength(1);
  for (let seq = 1; seq <= 600; seq++) expect((await watch.next()).value.seq).toBe(seq);
  watch.close();
});

test("an exception in onconnection ends the watch", async () => {
  const watch = connect({ ...quick, fetch: answering(lost).fetch })
    .session("s")
    .watch();
  watch.onconnection = () => {
    throw new Error("my own");
  };
  await expect(watch.next()).rejects.toThrow("my own");
});

/** A WebSocket of which each does what it is told to with the commands that it gets. */
function sockets(...answers: ((command: any, say: (frame: object | string) => void) => void)[]) {
  const made: { commands: any[]; closed: boolean }[] = [];
  class Fake {
    onopen = null as any;
    onmessage = null as any;
    onclose = null as any;
    onerror = null as any;
    commands: any[] = [];
    closed = false;
    #isOpen = false;
    #answer = answers[Math.min(made.length, answers.length - 1)]!;
    constructor() {
      made.push(this);
      // One that does nothing does not open either.
      if (this.#answer.length)
        queueMicrotask(() => {
          this.#isOpen = true;
          this.onopen?.({});
        });
    }
    send(text: string) {
      // As a real one does.
      if (!this.#isOpen) throw new Error("the socket is still connecting");
      const command = JSON.parse(text);
      this.commands.push(command);
      queueMicrotask(() =>
        this.#answer(command, (frame) =>
          this.onmessage?.({ data: typeof frame === "string" ? frame : JSON.stringify(frame) }),
        ),
      );
    }
    close() {
      this.closed = true;
    }
  }
  return { made, transport: webSocket(Fake) };
}

const pongs = ({ type }: any, say: (frame: object) => void) => type === "ping" && say({ type: "pong" });
const answers = (from: number) => (command: any, say: (frame: object) => void) => {
  pongs(command, say);
  const { type, id, session_id } = command;
  if (type !== "subscribe") return;
  say({ type: "subscribed", id, session_id });
  say({ type: "CUSTOM", name: "n", seq: from, session_id, event_id: `e.${from}` });
};

test("a socket that never opens, does not respond, falls silent or sends garbage is replaced", async () => {
  vi.useFakeTimers();
  const once =
    (then: (say: (frame: object | string) => void) => void) =>
    (command: any, say: (frame: object | string) => void) => {
      answers(1)({ ...command, type: command.type === "ping" ? "" : command.type }, say);
      if (command.type === "subscribe") then(say);
    };
  const { made, transport } = sockets(
    () => {},
    pongs,
    once(() => {}),
    once((say) => say("{")),
    answers(2),
  );
  expect(await soon(events({ transport }, 2))).toEqual([1, 2]);
  expect(made).toHaveLength(5);
  expect(made.slice(0, 4).map(({ closed }) => closed)).toEqual([true, true, true, true]);
  const subscribed = made.map(({ commands }) => commands.find(({ type }) => type === "subscribe")?.last_event_id);
  expect(subscribed).toEqual([undefined, undefined, undefined, "e.1", "e.1"]);
});

test("a socket with expired credentials reconnects with a new token, a refused one does not", async () => {
  vi.useFakeTimers();
  let asked = 0;
  const closing = (sockets: () => any[], reason: string) => (command: any, say: (frame: object | string) => void) => {
    answers(1)(command, say);
    if (command.type === "subscribe") queueMicrotask(() => sockets().at(-1).onclose({ code: 4401, reason }));
  };
  const { made, transport }: ReturnType<typeof sockets> = sockets(
    closing(() => made, "credentials expired"),
    answers(2),
  );
  const options = { transport, token: () => `t${++asked}` };
  expect(await soon(events(options, 2))).toEqual([1, 2]);
  expect(made.map(({ commands }) => commands[0].token)).toEqual(["t1", "t2"]);
  const { made: refused, transport: other }: ReturnType<typeof sockets> = sockets(
    closing(() => refused, "these are no credentials"),
  );
  await expect(soon(events({ transport: other }, 2))).rejects.toMatchObject({ status: 401 });
  expect(refused).toHaveLength(1);
});

test("a watch that ends before its socket opens sends nothing on it", async () => {
  const { made, transport } = sockets(() => {}, answers(1));
  const client = connect({ ...quick, transport });
  const stop = new AbortController();
  const watch = client.session("s").watch({ signal: stop.signal });
  await until(() => made.length === 1, "no socket is opened");
  stop.abort();
  await watch.next();
  expect(made[0]!.commands).toEqual([]);
});

test("a socket with heartbeats stays open while there are no events", async () => {
  vi.useFakeTimers();
  const { made, transport } = sockets(answers(1));
  const watch = connect({ ...quick, transport })
    .session("s")
    .watch({ signal: whileTesting() });
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(made).toHaveLength(1);
  expect(watch.connection.state).toBe("live");
});

test("a watch reports its connection, and ends with a permanent error", async () => {
  const { fetch } = answering(stream(frame(1)), error(404, "not_found"));
  const watch = connect({ ...quick, fetch })
    .session("s")
    .watch();
  const states: Connection[] = [];
  watch.onconnection = (connection) => states.push(connection);
  const seen: Event[] = [];
  await expect(async () => {
    for await (const event of watch) seen.push(event);
  }).rejects.toMatchObject({ type: "not_found" });
  expect(seen).toHaveLength(1);
  expect(states.map(({ state }) => state)).toEqual(
    ["connecting", "live", "waiting", "connecting", "closed"].slice(-states.length),
  );
  expect(states.at(-1)).toMatchObject({ error: { status: 404 } });
});

test("a signal ends a watch without an error, also while it waits", async () => {
  const stop = new AbortController();
  const watch = connect({ ...quick, fetch: answering(lost).fetch, retry: { min: 60_000, max: 60_000 } })
    .session("s")
    .watch({ signal: stop.signal });
  watch.onconnection = ({ state }) => state === "waiting" && stop.abort();
  for await (const _ of watch) expect.unreachable();
  expect(watch.connection).toEqual({ state: "closed", error: null });
});

test("reconnect() ends the pause of a lost connection", async () => {
  const { asked, fetch } = answering(lost, stream(frame(1)), error(404, "not_found"));
  const client = connect({ ...quick, fetch, retry: { min: 60_000, max: 60_000 } });
  const watch = client.session("s").watch({ signal: whileTesting() });
  watch.onconnection = ({ state }) => state === "waiting" && client.reconnect();
  const { value } = await watch.next();
  expect(value?.seq).toBe(1);
  expect(asked.length).toBeGreaterThan(1);
}, 5000);

test("an answer of 204 ends a watch until idle", async () => {
  const { asked, fetch } = answering(stream(frame(1)), () => new Response(null, { status: 204 }));
  const seen = [];
  for await (const event of connect({ ...quick, fetch })
    .session("s")
    .watch({ until: "idle" }))
    seen.push(event.seq);
  expect(seen).toEqual([1]);
  expect(asked[1]!.url).toContain("after=e.1&until=idle");
});

test("server-sent events are parsed from bytes cut anywhere", async () => {
  const text = `: hello\n\nid: e.1\ndata: {"a":"日本🙂"}\n\nid: e.2\r\ndata: one\r\ndata: two\r\n\r\ndata:x\n\nid: e.9\ndata: lost`;
  const expected = [
    { id: "e.1", data: '{"a":"日本🙂"}' },
    { id: "e.2", data: "one\ntwo" },
    { id: undefined, data: "x" },
  ];
  const bytes = new TextEncoder().encode(text);
  for (let round = 0; round < 200; round++) {
    const parser = new Parser();
    const frames = [];
    const cut = new ReadableStream({
      start(controller) {
        for (let at = 0, size = 0; at < bytes.length; at += size)
          controller.enqueue(bytes.subarray(at, at + (size = 1 + random(9))));
        controller.close();
      },
    });
    for await (const piece of pieces(new Response(cut), () => {})) frames.push(...parser.feed(piece));
    expect(frames).toEqual(expected);
  }
});

test("without a WebSocket the error says what to do", async () => {
  const had = globalThis.WebSocket;
  Object.assign(globalThis, { WebSocket: undefined });
  const watch = connect({ ...quick, transport: webSocket() })
    .session("s")
    .watch();
  await expect(watch.next()).rejects.toThrow("package ws");
  Object.assign(globalThis, { WebSocket: had });
});

test("with credentials a socket and a stream are accepted only with the token", async () => {
  const sha256 = createHash("sha256").update("letmein").digest("hex");
  const settings = `[[auth.tokens]]\ntenant = "main"\nsha256 = "${sha256}"\nscopes = ["read", "chat", "approve"]\n`;
  const server = await serve({ settings });
  for (const transport of [webSocket(WebSocket as never), undefined]) {
    const options = { url: server.url, retry: { min: 1, max: 5 }, ...(transport && { transport }) };
    const client = connect({ ...options, token: "letmein" });
    const { id } = await client.create();
    const view = new SessionView(client.session(id), { signal: whileTesting() });
    await view.send("hello");
    await until(() => view.state.status === "idle" && view.state.messages[1]?.finished_at, "it never ends");
    const watch = connect({ ...options, token: "wrong" })
      .session(id)
      .watch();
    await expect(watch.next()).rejects.toMatchObject({ status: 401 });
  }
});

test("the other requests of the client", async () => {
  const server = await serve({ rate: 200 });
  const client = connect({ url: server.url });
  const { id } = await client.create({ title: "first" });
  const session = client.session(id);
  expect((await session.rename("second")).title).toBe("second");
  const view = new SessionView(session, { signal: whileTesting(), limit: 2 });
  await until(() => view.state.connection.state === "live", "it is not live");
  await view.send("long 30");
  const waits = await view.send("weather");
  const queued = await until(() => view.state.queued[0], "it is not queued");
  expect(queued).toMatchObject({ message_id: waits.message_id, content: [{ type: "text", text: "weather" }] });
  await view.cancel(waits.message_id);
  await until(() => !view.state.queued.length, "it still waits");
  await view.session.stop();
  await until(() => view.state.messages[1]?.finished_reason === "interrupted", "it is not stopped");
  await session.retry(view.state.messages[0]!.id!);
  await until(() => view.state.messages[1]?.finished_reason === "completed", "it was not answered again");
  expect(view.state.messages).toHaveLength(2);
  await view.send("browser");
  const external = await until(() => view.state.pending[0], "it asks for nothing");
  expect(external).toMatchObject({ kind: "external", tool_call: { name: "open_page" } });
  expect(await client.approvals()).toMatchObject([{ session_id: id, external: [{ name: "open_page" }] }]);
  await session.result(external, "a page");
  await until(() => view.state.status === "idle" && view.state.messages[3]?.finished_at, "it does not go on");
  await view.send("team");
  await until(() => view.state.messages[5]?.finished_at, "the team is not done");
  expect(view.state.agents).toMatchObject([{ agent_path: "demo/researcher", message: { name: "researcher" } }]);
  expect(view.state.messages).toEqual((await session.history({ limit: 100 })).messages);

  const later = new SessionView(client.session(id), { signal: whileTesting(), limit: 2 });
  await until(() => later.state.ready, "it is not loaded");
  while (later.state.hasMore) await later.loadMore();
  expect(later.state.messages).toEqual(view.state.messages);
  // Also one that has only read it knows whose they are.
  expect(later.state.agents).toEqual(view.state.agents);

  const log = (await session.export()).trim().split("\n");
  expect(log).toHaveLength((await session.get()).last_seq);
  const message = view.state.messages[3]!;
  expect(await session.message(message.id!)).toEqual(message);
  expect((await session.message(message.id!, { at: log.length })).id).toBe(message.id);
  const fork = await session.fork({ at: 3, title: "fork" });
  expect(fork).toMatchObject({ title: "fork", agent: "demo" });
  expect(fork.last_seq).toBeLessThan(log.length);
  expect((await client.sessions({ q: "team" })).sessions.map(({ id }) => id)).toContain(id);
  expect((await client.agents()).default_agent).toBe("demo");
  expect(await client.upload(new TextEncoder().encode("hello"), "text/plain")).toMatchObject({
    size: 5,
    media_type: "text/plain",
  });
  expect(await client.ticket()).toMatchObject({ ticket: expect.any(String) });
  await session.delete();
  await expect(session.get()).rejects.toMatchObject({ type: "not_found" });
});
