// TanStack AI's client, which speaks AG-UI and reconnects by itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { startControl } from "./control-ag-ui.mjs";
import {
  answered,
  browserTest,
  checkTravel,
  compareWithControl,
  inOneMessage,
  long,
  onlySession,
  open,
  say,
  shown,
  shows,
  start,
  travel,
  until,
  withBrowser,
} from "./harness.mjs";

withBrowser();

const PAGE = "tanstack-ai";
const ANY = /./;

test("turns with tools and approvals, and a new answer, are one session", browserTest, async (t) => {
  const place = await start(t, PAGE);
  const page = await open(place, { api: `${place.server.url}/ag-ui/travel?history=client`, thread: "t" });
  const painted = await travel(page, inOneMessage);
  await say(page, "[travel__book Oslo]");
  await shows(page, [...painted, ANY, /\[travel\/book Oslo\]$/]);
  await page.getByRole("button", { name: "Allow" }).click();
  const booked = [...painted, ANY, /booked a trip to Oslo$/, /^assistant: The results are booked a trip to Oslo\./];
  await shows(page, booked);
  await say(page, "thanks");
  await shows(page, [...booked, "user: thanks", /You said: thanks$/]);
  await page.getByRole("button", { name: "Again" }).click();
  await shows(page, [...booked, "user: thanks", /You said: thanks This is answer 2\.$/]);

  checkTravel(await place.provider.log());
  assert.equal(await onlySession(place.server), "t");
});

test("the user and the provider see the same as with another server of AG-UI", browserTest, (t) =>
  compareWithControl(t, PAGE, startControl, async (page) => {
    await say(page, "thanks");
    await answered(page, /You said: thanks$/);
    await page.getByRole("button", { name: "Again" }).click();
    await answered(page, /This is answer 2\.$/);
  }),
);

test("a connection that is cut in the middle of a reply continues by itself", browserTest, async (t) => {
  const place = await start(t, PAGE, { rate: 150 });
  const { server, cutting } = place;
  const page = await open(place, { api: `${cutting.url}/ag-ui/demo`, thread: "t" }, { forgives: /network error|ERR_/ });
  await long(page);
  assert.equal((await server.session("t")).status, "running");
  cutting.cut();
  await server.idle("t");
  const [, reply] = await server.messages("t");
  await shows(page, ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
  assert.ok(
    cutting.requests.some((request) => /^last-event-id: /im.test(request)),
    "it has asked for the rest",
  );
  await say(page, "weather");
  await shows(page, [ANY, ANY, "user: weather", /get_weather/]);
  assert.equal((await server.messages("t")).length, 4);
});

test("a page that is reloaded finds its thread, in the middle of a reply and after it", browserTest, async (t) => {
  const place = await start(t, PAGE, { rate: 150 });
  const { server } = place;
  const query = { api: `${server.url}/ag-ui/demo?history=client`, thread: "t", keeps: "server" };
  const page = await open(place, query, { forgives: /network error|ERR_|Failed to fetch/ });
  await long(page);
  assert.equal((await server.session("t")).status, "running");
  await page.reload();
  await server.idle("t");
  const [, reply] = await server.messages("t");
  const whole = ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`];
  await shows(page, whole);
  await page.reload();
  await shows(page, whole);
  await say(page, "approve");
  await page.getByRole("button", { name: "Allow" }).waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Allow" }).click();
  await server.idle("t");
  const messages = await server.messages("t");
  assert.equal(messages.length, 4);
  await until(async () => (await shown(page)).at(-1)?.includes("Bought 100 ACME"), "no answer");
});
