// The blocks processor beside the handler of the protocol's document, on the frames of the real server.

import { type BlockFrame, BlockStream } from "turnwire/blocks";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
// @ts-expect-error it is plain JavaScript
import { streamProcessor } from "../../../tests/peers/node/blocks/handler.mjs";
import { serve, until } from "./harness.js";

test.each(["weather", "approve", "parallel", "image", "team", "fail", "hello"])(
  "a turn that is asked for %s",
  async (word) => {
    const server = await serve();
    const frames: BlockFrame[] = [];
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/ws`);
    const send = (command: object) => socket.send(JSON.stringify({ session_id: "s", ...command }));
    const stream = new BlockStream();
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(String(data));
      frames.push(frame);
      stream.push(frame);
      const key = frame.content_block?.approval_key;
      if (key) setTimeout(send, 10, { type: "approval", approval_key: key, decisions: [{ type: "approve" }] });
    };
    await new Promise((resolve) => (socket.onopen = resolve));
    send({ type: "chat", message: word });
    await until(
      () =>
        frames.some(({ type }) => type === "message_stop") &&
        stream.turn.isStreaming === false &&
        stream.turn.messageId,
      "the turn does not end",
    );
    socket.close();
    const theirs = streamProcessor();
    for (const frame of frames) theirs.handleEvent(frame);
    const shown = theirs.blocks ?? theirs.state?.().blocks;
    const bare = (block: Record<string, unknown>) => {
      const { _parts, is_final, ...rest } = block;
      // What ends a turn has its extras in both cases.
      if (rest["type"] === "terminal_user_stopped") delete rest["extras"];
      return rest;
    };
    const inOrder = [...shown].map(bare).sort((a: any, b: any) => a.index - b.index);
    expect(JSON.parse(JSON.stringify(stream.turn.blocks.map(bare)))).toEqual(JSON.parse(JSON.stringify(inOrder)));
    expect(stream.turn.lastEventId).toMatch(/^\w+\.\d+$/);
  },
);

test("unchanged blocks stay the same objects, and an incomplete event does not count", () => {
  const stream = new BlockStream();
  const start = (index: number) => ({
    type: "content_block_start",
    index,
    content_block: { type: "text", text: "" },
    event_id: `e.${index}`,
  });
  stream.push({ type: "message_start", message_id: "m", event_id: "e.0" });
  stream.push(start(0));
  stream.push(start(1));
  const before = stream.turn;
  expect(stream.push({ type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "a" } })).toBe(false);
  expect(stream.turn).toBe(before);
  stream.lost();
  stream.push({ type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "ab" }, event_id: "e.3" });
  expect(stream.turn.blocks[1]!.text).toBe("ab");
  expect(stream.turn.blocks[0]).toBe(before.blocks[0]);
  stream.push({ type: "content_block_discard", index: 1, event_id: "e.4" });
  expect(stream.turn.blocks).toHaveLength(1);
});
