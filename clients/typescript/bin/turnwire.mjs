#!/usr/bin/env node
// `npx turnwire serve`: runs the program. This package is the client only; the program is in the package turnwire-cli, which
// npm fetches (it asks first) unless it is installed beside this one.

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const installed = new URL("../../turnwire-cli/bin/turnwire.mjs", import.meta.url);

if (existsSync(fileURLToPath(installed))) {
  await import(installed.href);
} else {
  const npm = process.env.npm_execpath;
  const command = ["exec", `--package=turnwire-cli@${version}`, "--", "turnwire", ...process.argv.slice(2)];
  // npx says where npm is; on Windows, only a shell would find it by its name.
  const { status, error } = npm
    ? spawnSync(process.execPath, [npm.replace(/npx-cli\.js$/, "npm-cli.js"), ...command], { stdio: "inherit" })
    : spawnSync("npm", command, { stdio: "inherit" });
  if (error) console.error(`turnwire: cannot run npm: ${error.message}. Install the program: npm install turnwire-cli`);
  process.exitCode = status ?? 1;
}
