// Tests that cannot run on this machine: counted and listed by `make test`, failures in CI.

import { appendFileSync, existsSync } from "node:fs";

/**
 * The `skip` option of a test that cannot run: the reason, which is also added to the file TURNWIRE_SKIPS. Throws with
 * TURNWIRE_REQUIRE_ALL=1, which CI sets.
 */
export function skip(what, why) {
  if (process.env.TURNWIRE_REQUIRE_ALL === "1")
    throw new Error(`TURNWIRE_REQUIRE_ALL=1, but ${what} cannot run: ${why}`);
  if (process.env.TURNWIRE_SKIPS) appendFileSync(process.env.TURNWIRE_SKIPS, `skipped: ${what}: ${why}\n`);
  return why;
}

/** The browser of the tests. */
export const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** The `skip` option of the tests of a file that need a browser. */
export const skipWithoutBrowser = (file) =>
  existsSync(executablePath)
    ? false
    : skip(
        file,
        `there is no Chromium at ${executablePath}: install it (\`apt-get install chromium\`) or set CHROMIUM`,
      );
