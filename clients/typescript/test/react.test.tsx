// The hook in the real React, against the real server.

import "./dom.js";
import { memo, StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { type Client, connect } from "turnwire";
import { type MsgJson, textOf } from "turnwire/message";
import { type UseSession, useSession } from "turnwire/react";
import { expect, test } from "vitest";
import { serve, until } from "./harness.js";

/** Replaces animation frames: the function that comes back runs the due ones and waits for a condition. */
function untilFrame() {
  let waiting: FrameRequestCallback[] = [];
  globalThis.requestAnimationFrame = (callback) => waiting.push(callback);
  return <T,>(condition: () => T, otherwise: string) =>
    until(() => {
      const due = waiting;
      waiting = [];
      for (const callback of due) callback(0);
      return condition();
    }, otherwise);
}

function show(client: Client, id: string | null) {
  let latest!: UseSession;
  const renders = { all: 0, messages: new Map<string, number>() };
  const Message = memo(function Message({ message }: { message: MsgJson }) {
    renders.messages.set(message.id!, (renders.messages.get(message.id!) ?? 0) + 1);
    return <p>{textOf(message)}</p>;
  });
  function Chat() {
    latest = useSession(client, id);
    renders.all += 1;
    return (
      <div>
        {latest.messages.map((message) => (
          <Message key={message.id} message={message} />
        ))}
      </div>
    );
  }
  const element = (
    <StrictMode>
      <Chat />
    </StrictMode>
  );
  return { element, renders, latest: () => latest };
}

test("it shows a conversation and continues after an approval, in strict mode", async () => {
  const untilRendered = untilFrame();
  const server = await serve();
  const client = connect({ url: server.url });
  const { id } = await client.create();
  const shown = show(client, id);
  const container = document.createElement("div");
  const root = createRoot(container);
  root.render(shown.element);
  const when = (what: string, condition: (state: UseSession) => unknown) =>
    untilRendered(() => condition(shown.latest()), `it never is ${what}: ${JSON.stringify(shown.latest())}`);
  await until(() => shown.latest(), "it never renders");
  await when("ready", ({ ready }) => ready);
  await shown.latest().send("please approve the trade");
  await when("asking", ({ pending, status }) => pending.length && status === "waiting");
  const [asking] = shown.latest().pending;
  await when("known until when", ({ pending }) => pending[0]?.expires_at);
  await shown.latest().approve(asking!);
  await when("over", ({ status, messages }) => status === "idle" && messages[1]?.finished_at);
  await until(() => container.querySelectorAll("p").length === 2, "it is not shown");
  const { messages } = await client.session(id).history();
  expect(shown.latest().messages).toEqual(messages);
  expect(container.querySelectorAll("p")[1]!.textContent).toBe(textOf(messages[1]!));
  expect(shown.latest().connection.state).toBe("live");
  root.unmount();
});

test("it renders also if the page is hidden before its next frame", async () => {
  globalThis.requestAnimationFrame = () => 1;
  const server = await serve();
  const client = connect({ url: server.url });
  const { id } = await client.create();
  const shown = show(client, id);
  const root = createRoot(document.createElement("div"));
  root.render(shown.element);
  await until(() => shown.latest()?.connection.state === "live", "it is not live");
  await shown.latest().send("one");
  await until(() => shown.latest().messages[1]?.finished_at, "it is not shown");
  root.unmount();
});

test("it renders at most once a frame, and only what changed", async () => {
  const untilRendered = untilFrame();
  const server = await serve();
  const client = connect({ url: server.url });
  const { id } = await client.create();
  const session = client.session(id);
  await session.send("one");
  await until(async () => (await session.get()).status === "idle", "it never ends");
  const shown = show(client, id);
  const root = createRoot(document.createElement("div"));
  root.render(shown.element);
  await untilRendered(() => shown.latest()?.messages.length === 2, "it is not loaded");
  await untilRendered(() => shown.latest().session && shown.latest().connection.state === "live", "it is not live");
  const first = shown.latest().messages[1]!;
  const before = { all: shown.renders.all, first: shown.renders.messages.get(first.id!) };
  // Hundreds of events, and no frame between them: as in a hidden page, it renders five times a second at most.
  const from = performance.now();
  await session.send("long 300");
  await until(async () => (await session.get()).status === "idle", "it never ends");
  const most = Math.ceil((performance.now() - from) / 200);
  // Strict mode renders twice.
  expect(shown.renders.all - before.all).toBeLessThanOrEqual(2 * most);
  await untilRendered(() => shown.latest().messages[3]?.finished_at, "it is not shown");
  // Strict mode renders twice.
  expect(shown.renders.all - before.all).toBeLessThan(20);
  expect(shown.latest().messages[1]).toBe(first);
  expect(shown.renders.messages.get(first.id!)).toBe(before.first);
  root.unmount();
});

test("a failed action rejects, and the error is in the state", async () => {
  const untilRendered = untilFrame();
  const server = await serve();
  const client = connect({ url: server.url });
  const shown = show(client, "nowhere");
  const root = createRoot(document.createElement("div"));
  root.render(shown.element);
  await untilRendered(() => shown.latest()?.error, "it never fails");
  expect(shown.latest()).toMatchObject({ error: { type: "not_found" }, connection: { state: "closed" }, messages: [] });
  await expect(shown.latest().send("hi")).rejects.toMatchObject({ type: "not_found" });
  root.unmount();
});

test("on a server it renders the empty state and sends nothing", () => {
  const client = connect({ url: "http://127.0.0.1:1", fetch: () => expect.unreachable() as never });
  expect(renderToString(show(client, "s").element)).toBe("<div></div>");
  expect(renderToString(show(client, null).element)).toBe("<div></div>");
});
