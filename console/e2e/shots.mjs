// Pictures of the main states at three widths, in light and, for the widest, in dark: for a person to look at.
//   make console-shots, or: node e2e/shots.mjs [STATE …]

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { serve } from "../../tests/peers/node/harness.mjs";
import { executablePath } from "../../tests/peers/node/skips.mjs";
import { below } from "./harness.mjs";
import { prepare, STATES } from "./states.mjs";

const WIDTHS = [390, 1000, 1440];
const folder = process.env.SCREENSHOTS ?? fileURLToPath(new URL("../../target/console-shots", import.meta.url));
const wanted = process.argv.slice(2);
const ends = [];
const t = { after: (end) => void ends.push(end) };
const server = await serve(t, { rate: 400 });
const url = process.env.CONSOLE_DIST ? await below(t, server, "", process.env.CONSOLE_DIST) : server.url;
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });
let count = 0;
try {
  mkdirSync(folder, { recursive: true });
  await prepare(server);
  for (const { name, hash, ready, act, shot } of STATES) {
    if (wanted.length > 0 ? !wanted.includes(name) : !shot) continue;
    for (const width of WIDTHS) await take(name, hash, ready, act, width);
    count += 1;
  }
  console.log(`${count} states at ${WIDTHS.join(", ")} pixels are in ${folder}`);
} finally {
  await browser.close();
  for (const end of ends.reverse()) await end();
}

async function take(name, hash, ready, act, width) {
  const isMobile = width < 500;
  const context = await browser.newContext({
    viewport: { width, height: isMobile ? 844 : 860 },
    isMobile,
    hasTouch: isMobile,
    colorScheme: width === 1440 && count % 2 === 1 ? "dark" : "light",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  await page.goto(`${url}/${hash}`);
  await ready(page).waitFor({ state: "attached" });
  await act?.(page);
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 300))));
  await page.screenshot({ path: join(folder, `${name}-${width}.png`) });
  await context.close();
}
