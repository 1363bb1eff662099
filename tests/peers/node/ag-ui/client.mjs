// A tiny server with prepared answers, and the real client in front of it.

import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { HttpAgent } from "@ag-ui/client";

const here = fileURLToPath(new URL(".", import.meta.url));
const program = process.env.SCENARIOS ?? `${here}/../../../../target/debug/examples/ag_ui_scenarios`;

/** All turns, by name. */
export function scenarios() {
  const lines = execFileSync(program, { maxBuffer: 1 << 28, encoding: "utf8" });
  const all = lines
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  return Object.fromEntries(all.map((scenario) => [scenario.name, scenario]));
}

/** Random turns and messages. */
export function random(seed, count) {
  const words = ["random", `${seed}`, `${count}`];
  const lines = execFileSync(program, words, { maxBuffer: 1 << 28, encoding: "utf8" });
  return lines
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

/** What we read in a request. */
export function readRequest(input) {
  const read = execFileSync(program, ["read"], { input: JSON.stringify(input), encoding: "utf8" });
  return JSON.parse(read);
}

const user = { id: "u", role: "user", content: "hi" };

/**
 * Has the client run through the bodies, one request each, and answer what it is asked in between.
 * Returns all that it made of them.
 */
export async function play(bodies, { answers = {}, results = {}, url = "" } = {}) {
  const requests = [];
  let next = 0;
  const server = createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      requests.push(JSON.parse(Buffer.concat(parts).toString()));
      response.writeHead(200, { "content-type": "text/event-stream" });
      const body = Buffer.from(bodies[next++] ?? "");
      // Cut in the middle of everything.
      for (let at = 0; at < body.length; at += 97) response.write(body.subarray(at, at + 97));
      response.end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

  const warnings = [];
  const { warn, error } = console;
  console.warn = (...words) => warnings.push(words.join(" "));
  console.error = (...words) => warnings.push(words.join(" "));
  const agent = new HttpAgent({
    url: `http://127.0.0.1:${server.address().port}/${url}`,
    threadId: "t",
    initialMessages: [user],
  });
  const runs = [];
  const customs = [];
  try {
    for (let run = 0; run < bodies.length; run++) {
      const seen = { ends: [], steps: 0, subs: [], ids: [] };
      const resume = agent.pendingInterrupts.map(({ id }) => ({
        interruptId: id,
        ...(answers[id] ?? { status: "resolved", payload: { approved: true } }),
      }));
      await agent.runAgent(
        { runId: `run-of-client-${run}`, ...(resume.length > 0 && { resume }) },
        {
          onRunStartedEvent: ({ event }) => void seen.ids.push(event.runId),
          onRunFinishedEvent: (end) =>
            void seen.ends.push({
              outcome: end.outcome,
              result: end.result,
              interrupts: end.interrupts,
              pending: end.pendingToolCallIds,
              usage: end.event.usage,
              metadata: end.event.metadata,
              thread: end.event.threadId,
              run: end.event.runId,
            }),
          onRunErrorEvent: ({ event }) =>
            void seen.ends.push({ outcome: "error", message: event.message, code: event.code }),
          onStepStartedEvent: () => void seen.steps++,
          onStepFinishedEvent: () => void seen.steps--,
          onSubagentStartedEvent: ({ event }) => void seen.subs.push(event),
          onCustomEvent: ({ event }) => void customs.push({ name: event.name, value: event.value }),
        },
      );
      runs.push({ ...seen, pendingInterrupts: structuredClone(agent.pendingInterrupts) });
      for (const call of seen.ends.at(-1)?.pending ?? []) {
        if (results[call]) agent.addMessage(structuredClone(results[call]));
      }
    }
  } finally {
    console.warn = warn;
    console.error = error;
    server.close();
  }
  return { agent, runs, warnings, requests, customs, messages: agent.messages };
}
