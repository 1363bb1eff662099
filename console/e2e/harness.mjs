// A page of the console in a real browser, out of a server of our own; what must never happen on it fails
// the test that opened it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { extname, join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";
import { proxy as proxied, serve as started, TIMEOUT } from "../../tests/peers/node/harness.mjs";
import { executablePath, skipWithoutBrowser } from "../../tests/peers/node/skips.mjs";

export { program, random, seed, TIMEOUT, until } from "../../tests/peers/node/harness.mjs";

const skip = skipWithoutBrowser("console/e2e");
/** The options of a test that needs a browser. */
export const browserTest = { timeout: TIMEOUT * 2, skip };

/** Where pictures of the main states are kept. */
const pictures = process.env.SCREENSHOTS ?? fileURLToPath(new URL("../../target/console-screenshots", import.meta.url));

/** A build of the console to look at without building the program again: `CONSOLE_DIST=dist`. */
const dist = process.env.CONSOLE_DIST;

let browser;

/** Starts a browser for the tests of a file. */
export function withBrowser() {
  before(async () => {
    // Whoever is root in a container has no other sandbox.
    const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    if (!skip) browser = await chromium.launch({ executablePath, args });
  });
  after(() => browser?.close());
}

const ends = new WeakMap();

/** What a test has opened last is closed first: a page is gone before its server is. */
function atEnd(t, end) {
  const known = ends.get(t);
  if (known) return void known.push(end);
  const stack = [end];
  ends.set(t, stack);
  t.after(async () => {
    let failed;
    while (stack.length) await Promise.resolve(stack.pop()()).catch((error) => (failed ??= error));
    if (failed) throw failed;
  });
}

const inOrder = (t) => ({ after: (end) => atEnd(t, async () => end()) });

/** A proxy in front of a server; `cutAfter()` says after how many bytes it cuts a connection. */
export const proxy = (t, server, cutAfter) => proxied(inOrder(t), server, cutAfter);

/** Starts a server; `rate` is how many deltas the demo gives a second, 0 as many as it can. */
export const serve = (t, options) => started(inOrder(t), options);

/**
 * Opens the console of a server, or at an address, at a hash such as `#/SESSION@12?pane=wire`. Fails the test for an error on the page, for
 * anything that the content security policy stops, and for a request to anybody but the server.
 * `forgives`: errors that the test itself brings about, such as those of a server that is away.
 */
export async function open(
  t,
  server,
  { hash = "", width = 1400, height = 860, dark = false, mobile = false, forgives } = {},
) {
  const url = typeof server === "string" ? server : dist ? await below(t, server, "", dist) : server.url;
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    hasTouch: mobile,
    isMobile: mobile,
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT / 2);
  const trouble = [];
  page.on("pageerror", (error) => void trouble.push(`an error: ${error.stack ?? error}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) trouble.push(`on the console: ${message.text()}`);
  });
  const { origin } = new URL(url);
  const outside = (address) => {
    const { protocol, origin: wanted } = new URL(address);
    if (!["data:", "blob:"].includes(protocol) && wanted.replace(/^ws/, "http") !== origin)
      trouble.push(`a request to ${address}`);
  };
  page.on("request", (request) => outside(request.url()));
  page.on("websocket", (socket) => outside(socket.url()));
  await page.exposeFunction("stoppedByPolicy", (what) => void trouble.push(`the policy stopped ${what}`));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.stoppedByPolicy(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
    });
  });
  atEnd(t, async () => {
    await context.close();
    const found = trouble.filter((what) => !forgives?.test(what));
    // A test that has failed for another reason says no more than that.
    for (const what of found) console.error(what);
    assert.deepEqual(found, []);
  });
  await page.goto(`${url}/${hash}`);
  return page;
}

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** A proxy in front of a server that puts it below a path, as others do; and that has the files of a folder, if any. */
export async function below(t, server, prefix, folder) {
  const { hostname, port } = new URL(server.url);
  let policy = (await fetch(`${server.url}/`)).headers.get("content-security-policy");
  if (folder) {
    // The page of the folder has another script and style in it than that of the program.
    const page = readFileSync(join(folder, "index.html"), "utf8");
    policy = policy.replaceAll(/ 'sha256-[^']*'/g, "").replaceAll(/(script|style)-src 'self'/g, (source, tag) => {
      const inline = [...page.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, "g"))];
      return source + inline.map(([, it]) => ` 'sha256-${createHash("sha256").update(it).digest("base64")}'`).join("");
    });
  }
  const files = new Map();
  const strip = (path) => (path.startsWith(prefix) ? path.slice(prefix.length) || "/" : null);
  const listener = createServer((incoming, response) => {
    const path = strip(incoming.url);
    if (path === null) return response.writeHead(404).end();
    const file = folder && join(folder, path === "/" ? "index.html" : path.split("?")[0]);
    if (file && /^\/(?:favicon\.svg|assets\/[^/]+)?$/.test(path) && existsSync(file)) {
      // As the program has them: compressed, and kept for ever where the name says what is in it.
      const kept = path.startsWith("/assets/") ? "public, max-age=31536000, immutable" : "no-cache";
      if (!files.has(file)) files.set(file, gzipSync(readFileSync(file), { level: 9 }));
      response.writeHead(200, {
        "content-type": TYPES[extname(file)],
        "content-encoding": "gzip",
        "content-length": files.get(file).length,
        "cache-control": kept,
        vary: "accept-encoding",
        ...(policy && { "content-security-policy": policy }),
      });
      return response.end(files.get(file));
    }
    const { method, headers } = incoming;
    const upstream = request({ hostname, port, path, method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response).on("error", () => answer.destroy());
      answer.on("error", () => response.destroy());
    });
    upstream.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    response.on("close", () => upstream.destroy());
    incoming.pipe(upstream);
  });
  const sockets = new Set();
  listener.on("connection", (socket) => void sockets.add(socket.on("close", () => sockets.delete(socket))));
  listener.on("upgrade", (incoming, socket, head) => {
    const upstream = connect(Number(port), hostname);
    const lines = incoming.rawHeaders.reduce((text, part, at) => text + part + (at % 2 ? "\r\n" : ": "), "");
    upstream.write(`GET ${strip(incoming.url) ?? "/"} HTTP/1.1\r\n${lines}\r\n`);
    upstream.write(head);
    upstream.pipe(socket).on("error", () => upstream.destroy());
    socket.pipe(upstream).on("error", () => socket.destroy());
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  atEnd(t, async () => {
    listener.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${listener.address().port}${prefix}`;
}

/** Nothing on the page keeps anybody out. */
export async function accessible(page) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const found = violations.map(
    ({ id, help, nodes }) =>
      `${id}: ${help}\n  ${nodes
        .slice(0, 3)
        .map(({ html, failureSummary }) => `${html}\n  ${failureSummary}`)
        .join("\n  ")}`,
  );
  assert.deepEqual(found, []);
}

/** Keeps a picture. */
export async function picture(page, name) {
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}
