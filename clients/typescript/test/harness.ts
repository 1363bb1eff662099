// A server of our own on a free port, and a proxy that cuts connections at any byte.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterEach } from "vitest";

export const program = process.env["TURNWIRE"] ?? resolve("../../target/debug/turnwire");

/** Numbers that are the same for the same seed; `TURNWIRE_SEED` gives one. */
export const seed = Number(process.env["TURNWIRE_SEED"] ?? Math.floor(Math.random() * 1e9));
console.log(`seed ${seed} (TURNWIRE_SEED runs it again)`);
let numbers = seed >>> 0;
export function random(below: number): number {
  numbers = (Math.imul(numbers, 1664525) + 1013904223) >>> 0;
  return Math.floor((numbers / 2 ** 32) * below);
}

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

export class Server {
  url = "";
  #child!: ChildProcess;
  #exit!: Promise<unknown>;

  constructor(
    readonly folder: string,
    readonly options: string[],
    public rate: number,
  ) {}

  async start(listen = "127.0.0.1:0"): Promise<void> {
    const env = { ...process.env, TURNWIRE_DEMO_RATE: String(this.rate) };
    const options = ["serve", "--listen", listen, "--log", "warn", ...this.options];
    this.#child = spawn(program, options, { cwd: this.folder, env, stdio: ["ignore", "pipe", "inherit"] });
    this.#exit = once(this.#child, "exit");
    const [banner] = await once(createInterface({ input: this.#child.stdout! }), "line");
    this.url = banner.match(/http:\/\/[0-9.:]+/)[0];
  }

  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    this.#child.kill(signal);
    await this.#exit;
  }
}

/** Starts a server that stops when the test ends. `rate` is how many deltas the demo gives a second, 0 as many as it can. */
export async function serve({ store = "memory:", rate = 0, settings = "" } = {}): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), "turnwire-client-"));
  writeFileSync(join(folder, "turnwire.toml"), settings);
  const server = new Server(folder, ["--store", store], rate);
  cleanups.push(async () => {
    await server.end();
    rmSync(folder, { recursive: true, force: true });
  });
  await server.start();
  return server;
}

/**
 * A proxy. `cutAfter()` says after how many bytes of an answer its connection is cut; `undefined` is never. With
 * `silently` it is not cut: it stays open, and nothing comes any more.
 */
export async function proxy(server: Server, cutAfter: () => number | undefined = () => undefined, silently = false) {
  const open = new Set<Socket>();
  const seen = { url: "", connections: 0, cuts: 0, requests: [] as string[], refuse: false, cut: () => {} };
  const listener = createServer((client) => {
    seen.connections += 1;
    if (seen.refuse) return void client.destroy();
    const target = new URL(server.url);
    const upstream = connect(Number(target.port), target.hostname);
    open.add(client);
    let left = cutAfter();
    const close = () => {
      open.delete(client);
      client.destroy();
      upstream.destroy();
    };
    client.on("error", close).on("close", close);
    upstream.on("error", close).on("close", () => client.end());
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
      if (silently) {
        client.write(bytes.subarray(0, left));
        left = 0;
        return;
      }
      client.write(bytes.subarray(0, left), () => client.destroy());
      upstream.destroy();
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  seen.url = `http://127.0.0.1:${(listener.address() as { port: number }).port}`;
  seen.cut = () => open.forEach((client) => client.destroy());
  cleanups.push(() => {
    seen.cut();
    listener.close();
  });
  return seen;
}

/** Waits for a condition. */
export async function until<T>(
  condition: () => T | Promise<T>,
  otherwise: string | (() => string),
): Promise<NonNullable<T>> {
  const end = Date.now() + 45_000;
  while (Date.now() < end) {
    const found = await condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(typeof otherwise === "string" ? otherwise : otherwise());
}

/** A signal that ends with the test. */
export function whileTesting(): AbortSignal {
  const stop = new AbortController();
  cleanups.push(() => stop.abort());
  return stop.signal;
}
