// The real server, through a proxy that cuts connections at any byte: nothing is lost, doubled or reordered.

import { type Client, connect, sse, webSocket } from "turnwire";
import { type Event, Folder } from "turnwire/message";
import { type SessionState, SessionView } from "turnwire/view";
import { describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { proxy, random, serve, until, whileTesting } from "./harness.js";

const retry = { min: 1, max: 20 };
/** So that a connection that falls silent is noticed long before a test gives up. */
const settings = '[limits]\nheartbeat = "1s"\n';
const WORDS = ["weather", "image", "team", "json", "long 60", "fail", "hello"];
const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

function client(url: string, transport: "sse" | "websocket", silence = 8000): Client {
  return connect({ url, retry, silence, transport: transport === "sse" ? sse : webSocket(WebSocket as never) });
}

/** Each event of the log once and in order; deltas may have come merged. */
function checkWhole(events: Event[], log: Event[]) {
  let last = 0;
  for (const event of events) {
    expect(event.seq_from ?? event.seq).toBe(last + 1);
    last = event.seq!;
  }
  expect(last).toBe(log.length);
}

async function when(
  view: SessionView,
  what: string,
  condition: (state: SessionState) => unknown,
): Promise<SessionState> {
  await until(
    () => condition(view.state),
    () => `it never is ${what}: ${JSON.stringify(view.state).slice(0, 2000)}`,
  );
  return view.state;
}

describe.each(["sse", "websocket"] as const)("over %s", (transport) => {
  test("a watch that is cut at random bytes delivers every event once, and folds into the server's messages", async () => {
    const server = await serve({ settings });
    const calm = connect({ url: server.url });
    // Sometimes inside the head of an answer, mostly inside a frame.
    // Now and then late enough for the largest frame.
    let connections = 0;
    const cutting = await proxy(server, () => 200 + random(connections++ < 4 || random(6) ? 2500 : 60_000));
    const { id } = await calm.create();
    const session = calm.session(id);
    const events: Event[] = [];
    const watch = client(cutting.url, transport).session(id).watch({ signal: whileTesting() });
    const watching = (async () => {
      for await (const event of watch) events.push(event);
    })();
    for (let turn = 0; turn < 6; turn++) {
      await session.send(WORDS[random(WORDS.length)]!);
      await until(async () => (await session.get()).status === "idle", "it never ends");
    }
    const log: Event[] = (await session.export())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    await until(
      () => events.at(-1)?.seq === log.length,
      () =>
        `it stays at ${events.at(-1)?.seq} of ${log.length}, ${JSON.stringify(watch.connection)}, ${cutting.connections} connections, ${cutting.cuts} cuts`,
    );
    watch.close();
    await watching;
    checkWhole(events, log);
    const folder = new Folder();
    for (const event of events) folder.push(event);
    const { messages } = await session.history({ limit: 500, agents: "all" });
    const byId = (list: { id?: string }[]) => Object.fromEntries(list.map((msg) => [msg.id, msg]));
    expect(byId(plain(folder.messages))).toEqual(byId(messages));
    expect(cutting.cuts).toBeGreaterThan(2);
  });

  test("a view whose connections and requests are cut answers an approval and shows the server's messages", async () => {
    const server = await serve({ settings, rate: 400 });
    let connections = 0;
    const cutting = await proxy(server, () =>
      connections++ < 3 ? 50 + random(1000) : random(3) ? 300 + random(5000) : undefined,
    );
    const { id } = await connect({ url: server.url }).create();
    const session = client(cutting.url, transport).session(id);
    const view = new SessionView(session, { signal: whileTesting() });
    await view.send("please approve the trade");
    const { pending } = await when(view, "asking", ({ pending }) => pending.length);
    expect(view.state.status).toBe("waiting");
    await session.approve(pending[0]!, { input: { symbol: "ACME", quantity: 7 } });
    await when(view, "answered", ({ status, messages }) => status === "idle" && messages[1]?.finished_at);
    await view.send("long 40");
    await view.send("weather");
    const state = await when(
      view,
      "done",
      ({ status, messages }) => status === "idle" && messages.length === 6 && messages[5]!.finished_at,
    );
    const { messages } = await connect({ url: server.url }).session(id).history();
    expect(state.messages).toEqual(messages);
    expect(messages[1]!.content.find(({ type }) => type === "tool_call")).toMatchObject({
      input: '{"symbol":"ACME","quantity":7}',
    });
    expect(state.problem).toBe(null);
    expect(cutting.cuts).toBeGreaterThan(0);
  });

  test("a watch whose connections fall silent delivers every event once", async () => {
    const server = await serve({ settings: settings.replace("1s", "100ms") });
    const calm = connect({ url: server.url });
    await calm.create({ id: "s" });
    await calm.session("s").send("image");
    await until(async () => (await calm.session("s").get()).status === "idle", "it never ends");
    const after = [0, 100, 1500];
    const silent = await proxy(server, () => after.shift(), true);
    const events: Event[] = [];
    const watch = client(silent.url, transport, 1000).session("s").watch({ signal: whileTesting() });
    const { last_seq } = await calm.session("s").get();
    for await (const event of watch) if (events.push(event) && event.seq === last_seq) break;
    checkWhole(events, Array(last_seq).fill(0));
    expect(silent.connections).toBeGreaterThan(3);
  });

  test("a watch continues after the server was killed in the middle of a reply and restarted", async () => {
    const server = await serve({ settings, store: "sqlite:turnwire.db", rate: 100 });
    const { id } = await connect({ url: server.url }).create();
    const session = client(server.url, transport).session(id);
    const view = new SessionView(session, { signal: whileTesting() });
    // So long that however slow this is, it is killed in the middle.
    await view.send("long 1000");
    await when(view, "streaming", ({ streaming }) => streaming && JSON.stringify(streaming).length > 700);
    await server.end("SIGKILL");
    const { connection } = await when(view, "waiting", ({ connection }) => connection.state === "waiting");
    expect(connection).toMatchObject({ error: { type: "lost" }, retryAt: expect.any(Number) });
    server.rate = 0;
    await server.start(new URL(server.url).host);
    const state = await when(view, "ended", ({ messages, status }) => status === "idle" && messages[1]?.finished_at);
    const { messages } = await session.history();
    expect(state.messages).toEqual(messages);
    expect(state.connection.state).toBe("live");
  });

  test("a session that was created again starts with a reset and all its events", async () => {
    const server = await serve();
    const calm = connect({ url: server.url });
    await calm.create({ id: "s" });
    await calm.session("s").send("one");
    const passing = await proxy(server);
    const view = new SessionView(client(passing.url, transport).session("s"), { signal: whileTesting() });
    await when(view, "there", ({ messages, status }) => status === "idle" && messages.length === 2);
    passing.refuse = true;
    passing.cut();
    await calm.session("s").delete();
    await calm.create({ id: "s" });
    await calm.session("s").send("two");
    await until(async () => (await calm.session("s").get()).status === "idle", "it never ends");
    passing.refuse = false;
    const state = await when(
      view,
      "new",
      ({ messages }) => messages[0] && JSON.stringify(messages[0]).includes("two") && messages[1]?.finished_at,
    );
    expect(state.messages).toEqual((await calm.session("s").history()).messages);
  });

  test("deleting a session ends its watches with a reason", async () => {
    const server = await serve();
    const calm = connect({ url: server.url });
    await calm.create({ id: "s" });
    const view = new SessionView(client(server.url, transport).session("s"), { signal: whileTesting() });
    await when(view, "live", ({ connection }) => connection.state === "live");
    await calm.session("s").delete();
    const { error } = await when(view, "closed", ({ connection }) => connection.state === "closed");
    expect(error).toMatchObject({ name: "TurnwireError", type: "not_found", status: 404 });
  });
});

test("many sessions share one socket", async () => {
  const server = await serve();
  const passing = await proxy(server);
  const over = client(passing.url, "websocket");
  const calm = connect({ url: server.url });
  const ids = ["a", "b", "c", "d", "e"];
  for (const id of ids) await calm.create({ id });
  const seen = new Map(ids.map((id) => [id, [] as Event[]]));
  const watches = ids.map((id) => over.session(id).watch({ signal: whileTesting() }));
  watches.forEach(async (watch, at) => {
    for await (const event of watch) seen.get(ids[at]!)!.push(event);
  });
  await Promise.all(ids.map((id) => calm.session(id).send(`long 20 ${id}`)));
  for (const id of ids) {
    await until(async () => (await calm.session(id).get()).status === "idle", "it never ends");
    const log = (await calm.session(id).export())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    await until(() => seen.get(id)!.at(-1)?.seq === log.length, `${id} stays behind`);
    checkWhole(seen.get(id)!, log);
  }
  expect(passing.connections).toBe(1);
  watches.forEach((watch) => watch.close());
});
