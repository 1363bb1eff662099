// CopilotKit: its runtime in front of Turnwire's AG-UI route, and its front end in a browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  browserTest,
  checkTravel,
  conversation,
  long,
  offered,
  onlySession,
  open,
  say,
  shown,
  shows,
  start,
  travel,
  until,
  withBrowser,
} from "../browser/harness.mjs";
import { checkExample, examples } from "../browser/snippets.mjs";
import { control, startRuntime, turnwire } from "./runtime.mjs";

withBrowser();

// The runtime keeps its threads in the memory of this process: each test has one of its own.

const folder = fileURLToPath(new URL(".", import.meta.url));
const code = () => readFileSync(`${folder}/page.jsx`, "utf8");
const ANY = /./;

test("turns with tools and approvals, and a new answer, are one session", browserTest, async (t) => {
  const place = await start(t, "copilotkit", { code, folder });
  const runtime = await startRuntime(place.inOrder, turnwire(`${place.server.url}/ag-ui/travel?history=client`));
  const page = await open(place, { runtime, thread: "tools" });
  // A text, its call and the result are messages of their own.
  const painted = await travel(page, (call, result) => [ANY, call, `tool: ${result}`]);
  await say(page, "[travel__book Oslo]");
  await shows(page, [...painted, ANY, ANY, /\[travel\/book Oslo\]$/]);
  await page.getByRole("button", { name: "Allow" }).click();
  // CopilotKit takes the answer of the user for the result of the call. The model gets the real one: see below.
  const booked = [
    ...painted,
    ANY,
    ANY,
    ANY,
    'tool: {"approved":true}',
    /^assistant: The results are booked a trip to Oslo\./,
  ];
  await shows(page, booked);
  await say(page, "thanks");
  await shows(page, [...booked, "user: thanks", /You said: thanks$/]);
  await page.getByRole("button", { name: "Again" }).click();
  await shows(page, [...booked, "user: thanks", /You said: thanks This is answer 2\.$/]);

  checkTravel(await place.provider.log());
  assert.equal(await onlySession(place.server), "tools");
});

test("the provider and the user see the same as with CopilotKit's own agent", browserTest, async (t) => {
  const seen = [];
  for (const kind of ["control", "turnwire"]) {
    const place = await start(t, "copilotkit", { code, folder });
    const agent = kind === "control" ? control(place.provider) : turnwire(`${place.server.url}/ag-ui/plain`);
    const runtime = await startRuntime(place.inOrder, agent);
    const page = await open(place, { runtime, thread: kind });
    for (const text of ["hello", "[paint red]", "thanks"]) {
      await say(page, text);
      await until(
        async () => (await shown(page)).at(-1)?.match(/^assistant: .*(hello|The results|thanks)/),
        "no answer",
      );
      await page.locator('[data-status="ready"]').waitFor();
    }
    const log = await place.provider.log();
    seen.push({ shown: joined(await shown(page)), said: log.map(conversation), tools: log.map(ownTools) });
    if (kind === "turnwire") assert.equal(await onlySession(place.server), kind);
  }
  assert.deepEqual(seen[1], seen[0]);
});

/** The tools of the page. CopilotKit's own agent adds some to send its state. */
const ownTools = (entry) => offered(entry).filter((name) => !name.startsWith("AGUI"));

/** The lines of a page, with a text and its calls in one line: agents may send them as one message or as two. */
const joined = (lines) => lines.join("\n").replaceAll(/\nassistant: \[/g, " [");

test("a page that is reloaded in the middle of a reply shows all of it", browserTest, async (t) => {
  const place = await start(t, "copilotkit", { code, folder, rate: 150 });
  const { server } = place;
  const runtime = await startRuntime(place.inOrder, turnwire(`${server.url}/ag-ui/demo?history=client`));
  const page = await open(place, { runtime, thread: "reloaded" }, { forgives: /ERR_|network error|Failed to fetch/ });
  await long(page);
  assert.equal((await server.session("reloaded")).status, "running");
  await page.reload();
  await server.idle("reloaded");
  const [, reply] = await server.messages("reloaded");
  await shows(page, ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
  await say(page, "weather");
  await shows(page, [ANY, ANY, "user: weather", ANY, /get_weather/, ANY, ANY]);
  assert.equal((await server.messages("reloaded")).length, 4);
});

test("the example of docs/clients.md", browserTest, async (t) => {
  const { mjs, jsx } = examples.get("CopilotKit");
  const port = await freePort();
  const code = () => jsx.replace("http://127.0.0.1:4748", `http://127.0.0.1:${port}`);
  const place = await start(t, "copilotkit-example", { code, folder });
  const runtime = mjs.replace("http://127.0.0.1:4747", place.server.url).replace("4748", port);
  const child = spawn(process.execPath, ["--input-type=module", "--eval", runtime], {
    cwd: folder,
    env: { ...process.env, COPILOTKIT_TELEMETRY_DISABLED: "true" },
    stdio: ["ignore", "ignore", "inherit"],
  });
  place.inOrder.after(() => child.kill());
  await until(
    async () => (await fetch(`http://127.0.0.1:${port}/copilotkit/info`).catch(() => null))?.ok,
    "no runtime",
  );
  // CopilotKit's inspector asks for news.
  await checkExample(place, { forgives: /ERR_NAME_NOT_RESOLVED|ERR_INTERNET_DISCONNECTED/ });
});

/** A port that nothing listens on. */
async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  return port;
}
