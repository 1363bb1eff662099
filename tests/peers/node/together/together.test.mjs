// One conversation, clients of three protocols at once: whoever asked, whoever answers, all of them end
// with what the server has, and so with the same.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Client as AgUi, same as sameInAgUi, warnings } from "../ag-ui/harness.mjs";
import {
  answer as answerInAiSdk,
  open as openAiSdk,
  reload as reloadAiSdk,
  same as sameInAiSdk,
} from "../ai-sdk/harness.mjs";
import { Client as Blocks, same as sameInBlocks } from "../blocks/client.mjs";
import { serve, until } from "../harness.mjs";

const WIRES = ["ag-ui", "ai-sdk", "blocks"];

/** What is said, and what is answered when the reply waits. */
const SCENES = [
  { says: "hello there" },
  { says: "what is the weather" },
  { says: "please approve", approved: true },
  { says: "please approve", approved: true, edited: { symbol: "VNM", quantity: 7 } },
  { says: "please approve", approved: false },
  { says: "parallel", approved: true },
  { says: "open the browser", result: "a page about tea" },
  { says: "an image" },
  { says: "ask the team" },
  { says: "as json" },
  { says: "please fail" },
  { says: "long 300" },
  { says: "long 100000", stopped: true },
];

/** Says something in a protocol; resolves when it is taken, not when it is answered. */
async function say(wire, place, words) {
  const { server, id, t } = place;
  const before = (await server.session(id)).last_seq;
  switch (wire) {
    case "ag-ui": {
      const client = new AgUi(server, id);
      await client.run();
      place.end(client.say(words));
      break;
    }
    case "ai-sdk": {
      const { chat } = openAiSdk(server, { id });
      place.end(chat.sendMessage({ text: words }));
      break;
    }
    default: {
      const client = await Blocks.open(t, server);
      await client.done({ type: "chat", session_id: id, message: words });
    }
  }
  await until(async () => (await server.session(id)).last_seq > before, "nothing was taken");
}

/** Answers in a protocol, as somebody who has just come. */
async function answer(wire, place, { approved, edited, result }) {
  const { server, id, t } = place;
  const [pending] = (await server.session(id)).pending;
  const call = pending.confirm[0] ?? pending.external[0];
  switch (wire) {
    case "ag-ui": {
      const client = new AgUi(server, id);
      const run = await client.run();
      if (result !== undefined) return void (await client.give(run.pending[0], result));
      assert.deepEqual(run.interrupts, [call.id]);
      const payload = { approved, ...(edited && { editedArgs: edited }) };
      const given = approved ? { status: "resolved", payload } : { status: "cancelled" };
      await client.resume({ [call.id]: given });
      break;
    }
    case "ai-sdk": {
      const opened = await reloadAiSdk(server, id);
      if (result !== undefined) {
        await opened.chat.addToolOutput({ tool: call.name, toolCallId: call.id, output: result });
      } else {
        await answerInAiSdk(opened, approved);
      }
      break;
    }
    default: {
      const client = await Blocks.open(t, server);
      if (result !== undefined) return void (await canonical(server, id, pending, call, result));
      await client.subscribe(id, undefined);
      const { approval_key } = await client.view(id).has("approval_request");
      const type = !approved ? "reject" : edited ? "edit" : "approve";
      const decision = { tool_use_id: call.id, type, ...(edited && { args: edited }) };
      await client.done({ type: "approval", session_id: id, approval_key, decisions: [decision] });
    }
  }
}

/** The blocks protocol has no command for the result of a client's tool. */
function canonical(server, id, { reply_id }, { id: call, name }, output) {
  const result = { type: "tool_result", id: call, name, output, state: "success" };
  const event = { type: "EXTERNAL_EXECUTION_RESULT", id: `given-${call}`, reply_id, execution_results: [result] };
  return server.ask("POST", `/v1/sessions/${id}/events`, [event]);
}

/** Somebody who watches in AG-UI: a run that ends at a question is begun anew when it is answered. */
async function watchInAgUi(place) {
  const { server, id } = place;
  let client;
  do {
    client = new AgUi(server, id);
    await client.run();
    await until(async () => (await server.session(id)).status !== "waiting", "it waits for ever");
  } while (!place.is_over || (await server.session(id)).status !== "idle");
  client = new AgUi(server, id);
  await client.run();
  return client;
}

describe("one conversation in three protocols", { concurrency: 4 }, () => {
  let server;
  const hooks = [];
  test.before(async () => {
    server = await serve({ after: (hook) => hooks.push(hook) }, { store: "sqlite:turnwire.db", rate: 2000 });
  });
  test.after(async () => {
    for (const hook of hooks.reverse()) await hook();
  });

  for (const [nth, scene] of SCENES.entries()) {
    const asking = WIRES[nth % WIRES.length];
    // What the AI SDK cannot say is said elsewhere.
    const able = scene.edited ? ["ag-ui", "blocks"] : WIRES.filter((wire) => wire !== asking);
    const answering = able[nth % able.length];
    const how = scene.approved === undefined && scene.result === undefined ? "" : `, answered on ${answering}`;
    test(`${scene.says}${scene.edited ? " (edited)" : scene.approved === false ? " (denied)" : ""}: said on ${asking}${how}`, async (t) => {
      const id = `together-${nth}`;
      const ends = [];
      const place = { server, id, t, is_over: false, end: (promise) => ends.push(promise.catch(() => {})) };
      await server.create(id);
      const blocks = await Blocks.open(t, server);
      await blocks.subscribe(id, undefined);
      const inAgUi = watchInAgUi(place);
      await say(asking, place, scene.says);
      if (scene.stopped) {
        await until(async () => (await server.session(id)).last_seq > 50, "it does not begin");
        if (asking === "blocks") await blocks.done({ type: "stop", session_id: id });
        else await server.ask("POST", `/${asking}/demo/${id}/stop`);
      }
      if (how) {
        await server.when(id, "waiting");
        await answer(answering, place, scene);
      }
      await server.idle(id);
      place.is_over = true;
      await Promise.all(ends);

      const messages = await server.messages(id);
      const reply = messages.at(-1);
      assert.equal(reply.role, "assistant");
      assert.ok(reply.finished_at, "it has ended");
      warnings.length = 0;
      await sameInAgUi(await inAgUi);
      await sameInAiSdk(server, await reloadAiSdk(server, id));
      await blocks.view(id).ended(reply.id);
      await sameInBlocks(server, id, reply.id, blocks.view(id).turns.get(reply.id));
    });
  }

  test("an answer counts once, whoever gives it", async (t) => {
    const id = "together-once";
    await server.create(id);
    const place = { server, id, t, end: (promise) => promise.catch(() => {}) };
    await say("blocks", place, "please approve");
    await server.when(id, "waiting");
    const given = await Promise.allSettled(WIRES.map((wire, nth) => answer(wire, place, { approved: nth === 0 })));
    assert.ok(given.some(({ status }) => status === "fulfilled"));
    await server.idle(id);
    const confirmed = (await server.log(id)).filter(({ type }) => type === "USER_CONFIRM_RESULT");
    assert.equal(confirmed.length, 1, JSON.stringify(given));
  });
});
