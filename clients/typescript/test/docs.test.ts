// Every snippet of docs/typescript.md runs.

import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { transform } from "esbuild";
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { afterAll, expect, test } from "vitest";
import { serve } from "./harness.js";

// Inside the package: there its own name leads to what `npm test` has built.
const folder = resolve(".snippets");
mkdirSync(folder, { recursive: true });
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const page = readFileSync("../../docs/typescript.md", "utf8");
const snippets = [...page.matchAll(/```(tsx?)\n([\s\S]*?)```/g)].map(([, loader, code], at) => ({
  at,
  loader: loader as "ts" | "tsx",
  code: code!,
}));

async function compiled(code: string, loader: "ts" | "tsx", at: number): Promise<string> {
  const file = join(folder, `${at}.mjs`);
  const { code: js } = await transform(code, { loader, jsx: "automatic", format: "esm", target: "es2022" });
  writeFileSync(file, js);
  return file;
}

test.each(snippets.filter(({ loader }) => loader === "ts"))("snippet $at runs", async ({ at, loader, code }) => {
  const { url } = await serve();
  const file = await compiled(code, loader, at);
  const { stdout } = await promisify(execFile)(process.execPath, [file], {
    env: { ...process.env, TURNWIRE_URL: url },
    timeout: 50_000,
  });
  expect(stdout.trim()).not.toBe("");
});

test.each(snippets.filter(({ loader }) => loader === "tsx"))("snippet $at renders", async ({ at, loader, code }) => {
  const { Chat } = await import(/* @vite-ignore */ await compiled(code, loader, at));
  expect(renderToString(createElement(Chat, { id: "s" }))).toContain("hello");
});

test("there are snippets", () => expect(snippets).toHaveLength(7));
