#!/usr/bin/env node
// Runs the program, which is in a package of its own for each platform.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const platform = `${process.platform}-${process.arch}`;

function findProgram() {
  try {
    return createRequire(import.meta.url).resolve(`@turnwire/cli-${platform}/bin/turnwire`);
  } catch {
    console.error(
      `turnwire: the package @turnwire/cli-${platform} is not installed: either there is none for this platform, or npm was told to leave out optional packages.`,
    );
    process.exit(1);
  }
}

const child = spawn(findProgram(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to the program, too: passed on, it would count as the second one, which ends the server at once.
process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"));
for (const signal of ["SIGHUP", "SIGTERM"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`turnwire: cannot run ${child.spawnfile}: ${error.message}`);
  process.exit(1);
});
// As a shell says it.
child.on("exit", (status, signal) => process.exit(status ?? 128 + constants.signals[signal]));
