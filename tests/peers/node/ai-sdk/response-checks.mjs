// What the client accepts in silence, and what is wrong all the same.
import assert from "node:assert/strict";

// The frames of an SSE body.
export function frames(body) {
  return body
    .split("\n\n")
    .filter((frame) => frame !== "")
    .map((frame) =>
      frame
        .split("\n")
        .filter((line) => !line.startsWith("id: "))
        .map((line) => line.replace(/^data: /, ""))
        .join("\n"),
    );
}

// Checks one response. `known` are the calls that earlier responses of the same message have begun.
export function checkResponse(body, known = new Set()) {
  const all = frames(body);
  assert.equal(all.at(-1), "[DONE]", "the last word is [DONE]");
  const chunks = all.slice(0, -1).map((frame) => JSON.parse(frame));
  const types = chunks.map((chunk) => chunk.type);
  const count = (type) => types.filter((other) => other === type).length;
  assert.equal(types[0], "start", "the first chunk is start");
  assert.equal(types.at(-1), "finish", "the last chunk is finish");
  assert.equal(count("start"), 1, "one start");
  assert.equal(count("finish"), 1, "one finish");

  const open = new Set();
  const outputs = new Set();
  let inStep = false;
  for (const chunk of chunks) {
    switch (chunk.type) {
      case "start-step":
        assert.ok(!inStep, "a step begins where none is open");
        inStep = true;
        break;
      case "finish-step":
        assert.ok(inStep, "a step ends that is open");
        assert.deepEqual([...open], [], "nothing is open where a step ends");
        inStep = false;
        break;
      case "reset-step":
        open.clear();
        outputs.clear();
        break;
      case "text-start":
      case "reasoning-start":
      case "tool-input-start":
        open.add(chunk.id ?? chunk.toolCallId);
        known.add(chunk.toolCallId);
        break;
      case "text-end":
      case "reasoning-end":
        assert.ok(open.delete(chunk.id), `${chunk.id} ends that is open`);
        break;
      case "tool-input-available":
      case "tool-input-error":
        open.delete(chunk.toolCallId);
        known.add(chunk.toolCallId);
        break;
      case "tool-output-available":
      case "tool-output-error":
      case "tool-output-denied":
        assert.ok(known.has(chunk.toolCallId), `${chunk.toolCallId} is known`);
        assert.ok(!outputs.has(chunk.toolCallId), `${chunk.toolCallId} has no output yet`);
        if (!chunk.preliminary) outputs.add(chunk.toolCallId);
        break;
    }
  }
  assert.deepEqual([...open], [], "nothing is open at the end");
  assert.ok(!inStep, "no step is open at the end");
  return chunks;
}
