// Follows `docs/tutorial.md` from its first line to its last: types its commands into two real terminals, writes its files,
// does in a real browser what it says, and compares what appears with what it shows.
//
// | on the page | here |
// |---|---|
// | ```` ```sh ```` | runs in the second terminal; the `text` block after it must be all that it prints |
// | ```` ```sh first ````, ```` ```sh second ```` | is typed into that terminal, and may keep running |
// | ```` ```sh install ```` | does not run: the program TURNWIRE is in the PATH instead |
// | ```` ```sh debian ```` | runs like ```` ```sh ```` where Debian's Postgres is |
// | ```` ```text ```` | must appear where something was done last; ```` ```text first ```` and the like: in that place |
// | any other block with a name | is written to that file |
// | Open <URL>, Reload the page, send `TEXT` | is done in the browser |
// | Write `TEXT`, press `KEY` | is typed into the terminal of the block before |
// | Press Ctrl-C, Ctrl-Z | is typed into the first terminal |
//
// In a `text` block `…` is any text of a line; in a line of its own, any lines. The numbers that the demo agent counts must be
// whole. Other than on the page are the ports, the address of the provider, and the speed of the demo agent.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { chromium } from "../eventsource/node_modules/playwright-core/index.mjs";
import { program, random, until } from "../harness.mjs";
import { executablePath, skip, skipWithoutBrowser } from "../skips.mjs";
import { startProvider } from "./provider.mjs";

const HERE = "tests/peers/node/tutorial";
const PAGE = readFileSync(new URL("../../../../docs/tutorial.md", import.meta.url), "utf8");
const PORTS = ["4747", "4748", "4749", "5433", "8000"];
const PROVIDER = "https://api.openai.com";
const RATE = "400";
const DEBIAN_POSTGRES = "/usr/lib/postgresql";
const isRoot = process.getuid() === 0;
const AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];

const STEP =
  /^```(?<language>\w+)(?: (?<where>\S+))?\n(?<text>[\s\S]*?)^```$|Open <(?<url>[^>]+)>|(?<reload>Reload) the page|[Ss]end `(?<send>[^`]+)`|Write `(?<write>[^`]+)`|[Pp]ress (?:`(?<key>.)`|Ctrl-(?<control>[A-Z]))/gm;

/** What to do in a section, in its order. */
const stepsOf = (section) => [...section.matchAll(STEP)].map(({ groups }) => groups);

/** A pattern for a `text` block. */
function patternOf(text, end = "") {
  const literal = (part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const lines = text.trimEnd().split("\n");
  const last = lines.length - 1;
  const patterns = lines.map((line, at) => {
    if (line === "…") return "(?:.*\n)*?";
    return line.split("…").map(literal).join(".*") + (at === last ? "" : "\n");
  });
  return new RegExp(`^${patterns.join("")}${end}`);
}

/** A shell in a terminal. What is typed is not echoed, and there is no prompt. */
class Terminal {
  constructor(folder, env) {
    const shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
    const pty = ["-c", "import pty, sys; pty.spawn(sys.argv[1:])", ...shell];
    this.process = spawn("python3", pty, { cwd: folder, env });
    this.ended = once(this.process, "exit");
    this.output = "";
    this.typedAt = 0;
    for (const stream of [this.process.stdout, this.process.stderr])
      stream.setEncoding("utf8").on("data", (text) => (this.output += text));
  }

  type(text) {
    this.typedAt = this.output.length;
    this.process.stdin.write(text);
  }

  /** What has appeared since something was typed last. */
  shown() {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences of the terminal
    return this.output.slice(this.typedAt).replaceAll(/\r|\x1b\[[\d;?]*[A-Za-z]/g, "");
  }

  /** Types commands that may keep running. What they kill has ended then, as for a reader, who is slower. */
  async start(commands) {
    this.type(commands);
    for (const [job] of commands.matchAll(/(?<=%)\d/g)) {
      const hasEnded = new RegExp(`^\\[${job}\\].*(Killed|Done)`, "m");
      await until(() => hasEnded.test(this.shown()), `job ${job} has not ended after ${commands}`);
    }
  }

  /** Runs commands to their end, and returns what they print. A command that fails says so. */
  async run(commands) {
    this.type(`{\n${commands}}; echo "end:$?"\n`);
    const end = () => this.shown().match(/^([\s\S]*)^end:(\d+)$/m);
    const found = await until(end, "").catch(() => assert.fail(`no end of ${commands}${this.shown()}`));
    assert.equal(found[2], "0", `${commands}${found[1]}`);
    return found[1];
  }

  /** Hangs up: the shell ends, and what it has started. */
  async close() {
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/** A reader of the page: two terminals in a folder, and a browser. */
class Reader {
  constructor(folder, env, browser) {
    this.folder = folder;
    this.browser = browser;
    this.count = 0;
    this.first = new Terminal(folder, env);
    this.second = new Terminal(folder, env);
  }

  async start() {
    this.page = await this.browser.newPage();
    for (const terminal of [this.first, this.second]) {
      // Bash reports the end of a job at once, and writes no history when it ends.
      terminal.type(
        "set -o notify; unset HISTFILE; PS1= PS2=; stty -echo cols 100; trap 'echo failed: $BASH_COMMAND' ERR; echo; echo ready\n",
      );
      await until(() => /^ready$/m.test(terminal.shown()), "no shell");
    }
  }

  async close() {
    await Promise.all([this.first.close(), this.second.close()]);
  }

  async do(step, next) {
    const { language, where, text, url, reload, send, write, key, control } = step;
    this.count = Number(JSON.stringify(step).match(/long (\d+)/)?.[1] ?? this.count);
    if (language === "sh") await this.run(text, where, next);
    else if (language === "text") await this.see(step);
    else if (language) writeFileSync(join(this.folder, where), text);
    else if (url || reload) await this.open(url);
    else if (send) await this.send(send);
    else if (control) this.first.type(String.fromCharCode(control.charCodeAt(0) - 64));
    else this[this.place].type(write ? `${write}\n` : key);
    if (url || reload || send) this.place = "page";
  }

  async run(commands, where, next) {
    if (where === "install" || (where === "debian" && !existsSync(DEBIAN_POSTGRES))) return;
    if (commands.startsWith("kill -9"))
      assert.ok(!(await this.shown()).includes(this.lastNumber()), "the agent has counted to the end before");
    const isTyped = where === "first" || where === "second";
    this.place = isTyped ? where : "second";
    if (isTyped) return this[where].start(commands);
    const printed = await this.second.run(commands);
    const isShown = next?.language === "text" && !next.where;
    assert.match(printed, isShown ? patternOf(next.text, "\n*$") : /^$/, commands);
    if (isShown) next.isSeen = true;
  }

  /** Opens a page, or the same one again. Its web server may still be starting. */
  async open(url) {
    if (url) await until(() => isOpen(new URL(url).port), `nothing listens at ${url}`);
    // It can send when it follows its session.
    const isReady = this.page.waitForResponse((response) => response.url().endsWith("/events"));
    await Promise.all([isReady, url ? this.page.goto(url) : this.page.reload()]);
  }

  async send(text) {
    await this.page.locator("input").fill(text);
    await this.page.keyboard.press("Enter");
  }

  /** What stands in the place that is watched. */
  async shown() {
    if (this.place === "page") return (await this.page.innerText("#log")).trim();
    return this[this.place].shown();
  }

  async see({ text, where, isSeen }) {
    if (isSeen) return;
    this.place = where ?? this.place;
    const pattern = patternOf(text);
    await until(async () => pattern.test(await this.shown()), "").catch(async () =>
      assert.match(await this.shown(), pattern),
    );
    if (!text.includes(this.lastNumber())) return;
    const counted = (await this.shown()).match(/\b\d{7}\b/g);
    assert.deepEqual(
      counted.map(Number),
      Array.from({ length: this.count }, (_, at) => at + 1),
    );
  }

  /** The last number that the demo agent counts to. */
  lastNumber() {
    return String(this.count).padStart(7, "0");
  }
}

const isOpen = (port) =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.on("connect", () => resolve(true) || socket.destroy()).on("error", () => resolve(false));
  });

/** A free port that the system gives to no outgoing connection meanwhile. */
async function freePort() {
  const port = 20_000 + random(12_000);
  const listener = createServer();
  const isFree = await new Promise((resolve) => {
    listener.on("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
  });
  listener.close();
  return isFree ? port : freePort();
}

/** A free port for each that the page uses. */
async function freePorts() {
  const ports = new Set();
  while (ports.size < PORTS.length) ports.add(await freePort());
  return [...ports];
}

/** The folder of Postgres' programs: one of the PATH, or Debian's. */
function postgresFolder() {
  const versions = existsSync(DEBIAN_POSTGRES) ? readdirSync(DEBIAN_POSTGRES).sort((a, b) => b - a) : [];
  const folders = [...process.env.PATH.split(":"), ...versions.map((version) => `${DEBIAN_POSTGRES}/${version}/bin`)];
  return folders.find((folder) => existsSync(join(folder, "initdb")));
}

/** Why Postgres cannot run here, as the `skip` option of a test. */
function skipWithoutPostgres() {
  if (!postgresFolder()) return skip(HERE, "Postgres is not installed (Debian package postgresql)");
  if (!isRoot) return false;
  try {
    execFileSync(AS_POSTGRES[0], [...AS_POSTGRES.slice(1), "true"], { stdio: "ignore" });
    return false;
  } catch {
    return skip(HERE, "Postgres does not run as root, and there is no user postgres, or no setpriv");
  }
}

/** Makes a folder with the programs of the reader. Postgres refuses to run as root: then another user runs its programs. */
function installPrograms(folder) {
  mkdirSync(folder);
  symlinkSync(resolve(program), join(folder, "turnwire"));
  const postgres = postgresFolder();
  if (!isRoot || !postgres) return;
  for (const name of ["initdb", "pg_ctl"]) {
    const script = `#!/bin/sh\nexec ${AS_POSTGRES.join(" ")} ${join(postgres, name)} "$@"\n`;
    writeFileSync(join(folder, name), script, { mode: 0o755 });
  }
}

test("docs/tutorial.md", { timeout: 180_000, skip: skipWithoutBrowser(HERE) }, async (t) => {
  const base = mkdtempSync(join(tmpdir(), "turnwire-tutorial-"));
  const folder = join(base, "tutorial");
  mkdirSync(folder);
  // The user that runs Postgres creates its folder here.
  if (isRoot) for (const path of [base, folder]) chmodSync(path, 0o777);
  installPrograms(join(base, "bin"));

  let text = PAGE.replaceAll(PROVIDER, await startProvider(t, "YOUR_KEY", "gpt-5-mini"));
  const ports = await freePorts();
  for (const [at, port] of PORTS.entries()) text = text.replaceAll(new RegExp(`\\b${port}\\b`, "g"), ports[at]);
  const others = Object.entries(process.env).filter(([name]) => !/^(TURNWIRE|XDG|NODE)|proxy$/i.test(name));
  const env = {
    ...Object.fromEntries(others),
    PATH: `${base}/bin:${process.env.PATH}`,
    HOME: base,
    TERM: "dumb",
    TURNWIRE_LISTEN: `127.0.0.1:${ports[0]}`,
    TURNWIRE_DEMO_RATE: RATE,
  };
  // Whoever is root in a container has no other sandbox.
  const args = isRoot ? ["--no-sandbox"] : [];
  const reader = new Reader(folder, env, await chromium.launch({ executablePath, args }));
  t.after(async () => {
    await reader.browser.close();
    await reader.close();
    try {
      process.kill(Number(readFileSync(join(folder, "postgres/postmaster.pid"), "utf8").split("\n")[0]), "SIGINT");
    } catch {} // It is stopped, as the page says.
    for (const port of ports) await until(async () => !(await isOpen(port)), `something listens on ${port}`);
    rmSync(base, { recursive: true, force: true, maxRetries: 50 });
  });
  await reader.start();

  let hasFailed = false;
  for (const section of text.split(/^(?=## )/m)) {
    const [title] = section.split("\n");
    const steps = stepsOf(section);
    if (steps.length === 0 || hasFailed) continue;
    const missing = section.includes("initdb") && skipWithoutPostgres();
    await t.test(title.replace("## ", ""), { skip: missing }, async () => {
      hasFailed = true;
      for (const [at, step] of steps.entries()) await reader.do(step, steps[at + 1]);
      hasFailed = false;
    });
  }
});

test("every block of the page is a step", () => {
  const blocks = stepsOf(PAGE).filter(({ language }) => language);
  assert.equal(blocks.length * 2, PAGE.match(/```/g).length);
});

test("its front end has 20 lines", () => {
  const page = stepsOf(PAGE).find(({ language }) => language === "html");
  assert.equal(page.text.trimEnd().split("\n").length, 20);
});
