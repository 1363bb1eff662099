// assistant-ui with its AG-UI runtime. Its client is older than AG-UI 1.0.

import assert from "node:assert/strict";
import { test } from "node:test";
import { startControl } from "./control-ag-ui.mjs";
import {
  answered,
  browserTest,
  compareWithControl,
  conversation,
  edit,
  inOneMessage,
  long,
  offered,
  onlySession,
  open,
  say,
  sayAgain,
  shows,
  start,
  travel,
  withBrowser,
} from "./harness.mjs";

withBrowser();

const PAGE = "assistant-ui-ag-ui";
const ANY = /./;

test("turns with tools and approvals, edits and new answers are one session", browserTest, async (t) => {
  const place = await start(t, PAGE);
  const page = await open(place, { api: `${place.server.url}/ag-ui/travel?history=client`, thread: "t" });
  const painted = await travel(page, inOneMessage);
  await say(page, "[travel__book Oslo]");
  await shows(page, [...painted, ANY, /AllowDeny$/]);
  await page.getByRole("button", { name: "Allow" }).click();
  await shows(page, [...painted, ANY, /booked a trip to Oslo$/, /^assistant: The results are booked a trip to Oslo\./]);
  await edit(page, 3, "no trip");
  await shows(page, [...painted, "user: no trip", /You said: no trip$/]);
  await sayAgain(page, 5);
  await shows(page, [...painted, "user: no trip", /You said: no trip This is answer 2\.$/]);
  await edit(page, 0, "good morning");
  await shows(page, ["user: good morning", /You said: good morning$/]);

  const log = await place.provider.log();
  const said = log.map(conversation);
  for (const entry of log) assert.deepEqual(offered(entry), ["paint", "travel__book", "travel__weather"]);
  const before = [
    "user: hello",
    said[1][1],
    "user: [travel__weather Rome]",
    said[2][3],
    "travel__weather -> sunny in Rome",
    said[3][5],
    "user: [paint red]",
    said[4][7],
    'paint -> {"painted":"red"}',
    said[5][9],
  ];
  const booking = [...before, "user: [travel__book Oslo]", said[6][11], "travel__book -> booked a trip to Oslo"];
  assert.deepEqual(said, [
    before.slice(0, 1),
    before.slice(0, 3),
    before.slice(0, 5),
    before.slice(0, 7),
    before.slice(0, 9),
    booking.slice(0, 11),
    booking,
    [...before, "user: no trip"],
    [...before, "user: no trip"],
    ["user: good morning"],
  ]);
  assert.equal(await onlySession(place.server), "t");
});

test("the user and the provider see the same as with another server of AG-UI", browserTest, (t) =>
  compareWithControl(t, PAGE, startControl, async (page) => {
    await say(page, "thanks");
    await answered(page, /You said: thanks$/);
    await sayAgain(page, -1);
    await answered(page, /This is answer 2\.$/);
    await edit(page, 1, "another city");
    await answered(page, /You said: another city$/);
  }),
);

test("a denied call is not made", browserTest, async (t) => {
  const place = await start(t, PAGE);
  const page = await open(place, { api: `${place.server.url}/ag-ui/travel?history=client`, thread: "t" });
  await say(page, "[travel__book Oslo]");
  await shows(page, [ANY, /AllowDeny$/]);
  await page.getByRole("button", { name: "Deny" }).click();
  await shows(page, [ANY, /\[travel\/book Oslo\]/, /^assistant: The results are /]);
  await say(page, "bye");
  await shows(page, [ANY, ANY, ANY, "user: bye", /You said: bye$/]);
  const log = await place.provider.log();
  const results = conversation(log.at(-1)).filter((line) => line.startsWith("travel__book ->"));
  assert.equal(results.length, 1, "the call has one result");
  assert.ok(!JSON.stringify(log).includes("booked"), "nothing was booked");
  await onlySession(place.server);
});

for (const how of ["reloaded", "cut off and reloaded"]) {
  test(`a page that is ${how} in the middle of a reply shows all of it`, browserTest, async (t) => {
    const place = await start(t, PAGE, { rate: 150 });
    const { server, cutting } = place;
    const query = { api: `${cutting.url}/ag-ui/demo?history=client`, server: cutting.url, thread: "t" };
    const page = await open(place, query, { forgives: /404|network error|ERR_|Failed to fetch|^an error:\s*$/ });
    await long(page);
    if (how !== "reloaded") cutting.cut();
    assert.equal((await server.session("t")).status, "running");
    await page.reload();
    await server.idle("t");
    const [, reply] = await server.messages("t");
    await shows(page, ["user: long 300", `assistant: ${reply.content.at(-1).text.replace(/\s+/g, " ").trim()}`]);
    await say(page, "weather");
    await server.when("t", "idle");
    await shows(page, [ANY, ANY, "user: weather", /get_weather/]);
    assert.equal((await server.messages("t")).length, 4);
  });
}
