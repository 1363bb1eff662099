// The package as it is published: packed, installed into an empty project, and weighed.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";

const project = mkdtempSync(join(tmpdir(), "turnwire-package-"));
afterAll(() => rmSync(project, { recursive: true, force: true }));

const npm = (cwd: string, ...options: string[]) =>
  execFileSync("npm", [...options, "--silent", "--no-audit", "--no-fund"], { cwd, encoding: "utf8" });
const node = (file: string) => execFileSync(process.execPath, [file], { cwd: project, encoding: "utf8" });

beforeAll(() => {
  // `npm test` has built it.
  const packed = npm(resolve("."), "pack", "--ignore-scripts", "--pack-destination", project)
    .trim()
    .split("\n")
    .at(-1)!;
  writeFileSync(join(project, "package.json"), '{"name":"empty","version":"1.0.0","type":"module"}');
  npm(project, "install", "--offline", `./${packed}`);
});

/** The seed's example, as it stands there but for the package's name; `stream` is what it reads. */
const EXAMPLE = `
import { Msg, AssistantMsg, EventType } from "turnwire";

let msg: Msg | null = null;
for await (const event of stream) {
    if (event.type === EventType.REPLY_START) {
        msg = new AssistantMsg({
			name: event.name,
			content: [],
			id: event.reply_id
		});
    } else {
        msg?.appendEvent(event);
    }
}
`;

const STREAM = `
async function* events(): AsyncGenerator<Event> {
  const at = { reply_id: "r", created_at: "2026-01-01T00:00:00.000Z" };
  yield { type: "REPLY_START", ...at, session_id: "s", name: "friday", role: "assistant" };
  yield { type: "TEXT_BLOCK_START", ...at, block_id: "b" };
  yield { type: "TEXT_BLOCK_DELTA", ...at, block_id: "b", delta: "Hello" };
  yield { type: "REPLY_END", ...at, session_id: "s", finished_reason: "completed" };
}
const stream = events();
`;

test("it has no dependencies, and types for every entry", () => {
  const json = JSON.parse(readFileSync(join(project, "node_modules/turnwire/package.json"), "utf8"));
  expect(json.dependencies).toBe(undefined);
  expect(json.sideEffects).toBe(false);
  expect(readdirSync(join(project, "node_modules")).filter((name) => !name.startsWith("."))).toEqual(["turnwire"]);
  expect(readFileSync("package-lock.json", "utf8")).not.toMatch(
    /"resolved"|https?:\/\/(?!opencollective|github)[^"]*\.tgz/,
  );
});

test("the seed's example runs with only the package's name changed, and is typed", () => {
  const source = EXAMPLE.replace("\n\nlet", `\nimport type { Event } from "turnwire";\n${STREAM}\nlet`);
  writeFileSync(join(project, "example.ts"), `${source}\nconsole.log(JSON.stringify(msg));\n`);
  const flags = ["--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck", "--types", ""];
  execFileSync(resolve("node_modules/.bin/tsc"), [...flags, "example.ts"], { cwd: project, stdio: "inherit" });
  expect(JSON.parse(node("example.js"))).toMatchObject({
    id: "r",
    name: "friday",
    role: "assistant",
    content: [{ type: "text", text: "Hello" }],
    created_at: "2026-01-01T00:00:00.000Z",
    finished_reason: "completed",
  });
});

test("the entries work without React, and without a type checker", () => {
  writeFileSync(
    join(project, "all.js"),
    `
    import { connect, webSocket } from "turnwire";
    import { Folder } from "turnwire/message";
    import { SessionView } from "turnwire/view";
    import { BlockStream } from "turnwire/blocks";
    import * as all from "turnwire";
    console.log([connect, SessionView, webSocket, Folder, BlockStream].map((it) => typeof it).join());
    console.log(all.connect === connect, all.SessionView === SessionView, all.Folder === Folder, all.BlockStream === BlockStream);
  `,
  );
  expect(node("all.js").trim().split("\n")).toEqual([
    Array(5).fill("function").join(),
    Array(4).fill("true").join(" "),
  ]);
});

/** What a page loads for this, in bytes: bundled, minified, compressed. */
async function weigh(contents: string): Promise<number> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: project },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    external: ["react"],
    write: false,
  });
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length;
}

const KIB = 1024;

test("it is small", async () => {
  const limits: [string, string, number][] = [
    ["turnwire/message", 'export * from "turnwire/message"', 8 * KIB],
    ["turnwire/view", 'export * from "turnwire/view"', 8 * KIB],
    ["turnwire/blocks", 'export * from "turnwire/blocks"', 8 * KIB],
    ["connect, watch", 'export { connect } from "turnwire"', 3.375 * KIB],
    [
      "the client",
      'export { Client, connect, Session, sse, TurnwireError, Watch, webSocket } from "turnwire"',
      8 * KIB,
    ],
    ["connect, watch and fold", 'export { connect, AssistantMsg, EventType } from "turnwire"', 8 * KIB],
    ["connect and a view", 'export { connect, SessionView } from "turnwire"', 9.75 * KIB],
    ["useSession, without React", 'export { connect, useSession } from "turnwire/react"', 10.25 * KIB],
    ["all, without React", 'export * from "turnwire"', 11.75 * KIB],
  ];
  const weighed = await Promise.all(
    limits.map(async ([name, contents, limit]) => ({ name, limit, bytes: await weigh(contents) })),
  );
  console.log(weighed.map(({ name, bytes }) => `${name}: ${bytes} bytes gzipped`).join("\n"));
  expect(weighed.filter(({ bytes, limit }) => bytes >= limit)).toEqual([]);
});

test("a page that imports from one entry loads no more than one that imports from each", async () => {
  const cases: [together: string, apart: string][] = [
    ['export { textOf } from "turnwire"', 'export { textOf } from "turnwire/message"'],
    ['export { Folder } from "turnwire"', 'export { Folder } from "turnwire/message"'],
    ['export { BlockStream } from "turnwire"', 'export { BlockStream } from "turnwire/blocks"'],
    ['export { SessionView } from "turnwire"', 'export { SessionView } from "turnwire/view"'],
    ['export { connect } from "turnwire/react"', 'export { connect } from "turnwire"'],
    [
      'export { connect, AssistantMsg, EventType } from "turnwire"',
      'export { connect } from "turnwire"; export { AssistantMsg, EventType } from "turnwire/message"',
    ],
  ];
  for (const [together, apart] of cases) {
    // Names that the bundler chooses may differ.
    expect(await weigh(together), together).toBeLessThan((await weigh(apart)) + 32);
  }
});
