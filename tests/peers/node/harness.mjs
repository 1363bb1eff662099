// A server of our own on a free port, a proxy that cuts connections, and a fold to compare.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
export const program = process.env.TURNWIRE ?? `${here}/../../../target/debug/turnwire`;

/** What takes longer than this hangs. */
export const TIMEOUT = 60_000;

/** Where sessions are kept. */
export const STORES = ["memory:", "sqlite:turnwire.db"];

/** Numbers that are the same for the same seed. */
export const seed = Number(process.env.TURNWIRE_SEED ?? Math.floor(Math.random() * 1e9));
let state = seed;
export function random(below) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
}

/**
 * Starts a server; it stops when the test `t` ends.
 * `rate` is how many deltas the demo gives a second, 0 as many as it can.
 */
export async function serve(t, { store = "memory:", settings = "", rate = 0, options = [] } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "turnwire-peer-"));
  writeFileSync(join(folder, "turnwire.toml"), settings);
  const server = new Server(folder, ["--store", store, "--log", "warn", ...options], rate);
  t.after(async () => {
    await server.end();
    rmSync(folder, { recursive: true, force: true });
  });
  await server.start("127.0.0.1:0");
  return server;
}

export class Server {
  constructor(folder, options, rate) {
    this.folder = folder;
    this.options = options;
    this.env = { ...process.env, TURNWIRE_DEMO_RATE: String(rate) };
    this.headers = {};
  }

  async start(listen) {
    const { folder: cwd, env } = this;
    const stdio = ["ignore", "pipe", "inherit"];
    this.child = spawn(program, ["serve", "--listen", listen, ...this.options], { cwd, env, stdio });
    this.ended = once(this.child, "exit");
    const [banner] = await once(createInterface({ input: this.child.stdout }), "line");
    this.url = banner.match(/http:\/\/[0-9.:]+/)[0];
  }

  async end() {
    this.child.kill("SIGTERM");
    const [code] = await this.ended;
    assert.equal(code, 0, "it stops in order");
  }

  /** Another process on the same address. */
  async restart() {
    await this.end();
    await this.start(new URL(this.url).host);
  }

  /** Another process on the same address, after the first was killed: in the middle of whatever it did. */
  async crash() {
    this.child.kill("SIGKILL");
    await this.ended;
    await this.start(new URL(this.url).host);
  }

  async ask(method, path, body, headers = {}) {
    const response = await fetch(`${this.url}${path}`, {
      method,
      body: body && JSON.stringify(body),
      headers: { ...this.headers, ...headers },
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  session(id) {
    return this.ask("GET", `/v1/sessions/${id}`);
  }

  create(id) {
    return this.ask("POST", "/v1/sessions", { id });
  }

  say(id, content) {
    return this.ask("POST", `/v1/sessions/${id}/messages`, { content });
  }

  /** The session when nothing runs any more. */
  idle(id) {
    return this.when(id, "idle");
  }

  /** The session when it is `idle`, `running` or `waiting`. */
  when(id, status) {
    return until(async () => {
      const session = await this.session(id);
      return session.status === status && session;
    }, `${id} does not become ${status}`);
  }

  /** The messages as the server has them, oldest first. */
  async messages(id, query = "") {
    return (await this.ask("GET", `/v1/sessions/${id}/messages?limit=500${query}`)).messages;
  }

  /** The log as it was written. */
  async log(id) {
    const response = await fetch(`${this.url}/v1/sessions/${id}/events`, {
      headers: { ...this.headers, accept: "application/x-ndjson" },
    });
    const lines = (await response.text()).split("\n");
    return lines.filter((line) => line).map((line) => JSON.parse(line));
  }
}

/** Waits for a condition. */
export async function until(condition, otherwise) {
  const end = Date.now() + TIMEOUT;
  while (Date.now() < end) {
    const found = await condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(otherwise);
}

/**
 * A proxy in front of a server. `cutAfter()` says after how many bytes of the answer a connection is
 * cut; `undefined` is never.
 */
export async function proxy(t, server, cutAfter = () => undefined) {
  const target = new URL(server.url);
  const open = new Set();
  const seen = { connections: 0, cuts: 0, requests: [] };
  const listener = createServer((client) => {
    seen.connections += 1;
    const upstream = connect(Number(target.port), target.hostname);
    open.add(client);
    let left = cutAfter();
    const close = () => {
      open.delete(client);
      client.destroy();
      upstream.destroy();
    };
    client.on("error", close).on("close", close);
    upstream.on("error", close).on("close", close);
    client.on("data", (bytes) => {
      seen.requests.push(bytes.toString());
      upstream.write(bytes);
    });
    upstream.on("data", (bytes) => {
      if (left === undefined || bytes.length < left) {
        if (left !== undefined) left -= bytes.length;
        client.write(bytes);
        return;
      }
      // What was sent before the cut arrives, and nothing behind it.
      seen.cuts += 1;
      client.write(bytes.subarray(0, left), () => client.destroy());
      upstream.destroy();
      left = 0;
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => {
    for (const client of open) client.destroy();
    listener.close();
  });
  seen.url = `http://127.0.0.1:${listener.address().port}`;
  seen.cut = () => {
    for (const client of open) client.destroy();
  };
  seen.open = open;
  return seen;
}

/**
 * What a client that was cut off many times has to have: each event of the log once and in order.
 * Deltas may have come merged, then `seq_from` says what one stands for.
 */
export function checkWhole(frames, log) {
  let last = 0;
  for (const frame of frames) {
    assert.equal(frame.seq_from ?? frame.seq, last + 1, "nothing is lost, doubled or reordered");
    last = frame.seq;
  }
  assert.equal(last, log.length);
  assert.deepEqual(texts(frames), texts(log));
}

/** The text of each block. */
export function texts(frames) {
  const found = {};
  for (const { block_id: id, tool_call_id: call, delta } of frames) {
    if (delta !== undefined) found[id ?? call] = (found[id ?? call] ?? "") + delta;
  }
  return found;
}
