// The states of the console that people see: for the checks of accessibility and for the pictures.

import { publishMessages } from "./publish-messages.mjs";

const TABLE = "| city | today | tomorrow |\n|---|---|---|\n| Paris | 18 °C | 22 °C |\n| Reykjavík | 7 °C | 9 °C |";
const RICH = `## A plan

1. Look at the **numbers**
2. Decide

${TABLE}

\`\`\`python
def total(rows):  # all of them
    return sum(row["cost"] for row in rows)
\`\`\`

\`\`\`diff
-old line
+new line
\`\`\`

The mean is $\\bar{x} = \\frac{1}{n}\\sum_{i=1}^{n} x_i$.

> A quotation, with a [link](https://example.com/).`;

/** Sessions for all states. */
export async function prepare(server) {
  const say = async (id, title, texts, until = "idle") => {
    await server.ask("POST", "/v1/sessions", { id, title });
    for (const text of texts) {
      await server.say(id, text);
      await server.when(id, until);
    }
  };
  await say("weather", "The weather in Paris", ["weather"]);
  await say("team", "Ask the team", ["team", "json"]);
  await say("image", "A sunset", ["image"]);
  await say("failed", "Something fails", ["fail"]);
  await say("many", "Several things", ["hello", "weather", "team"]);
  await publishMessages(server, "rich", [
    { role: "user", text: "What do you suggest?\n```sh\nls -la # everything\n```", at: Date.now() - 90_000_000 },
    { role: "assistant", text: RICH },
  ]);
  await say("decided", "A trade that was decided", ["approve"], "waiting");
  const [pending] = (await server.session("decided")).pending;
  const tool_call = { id: pending.confirm[0].id, input: '{"symbol":"ACME","quantity":7}' };
  const rules = pending.confirm[0].suggested_rules.slice(0, 1);
  await server.ask("POST", "/v1/sessions/decided/events", {
    type: "USER_CONFIRM_RESULT",
    id: "yes",
    reply_id: pending.reply_id,
    confirm_results: [{ confirmed: true, tool_call, rules }],
    metadata: { client: "tests" },
  });
  await server.idle("decided");
  await server.ask("POST", "/v1/sessions/many/fork", { id: "fork", title: "Another way" });
  await server.say("fork", "hello again");
  await server.idle("fork");
  await say("retry", "Answered again", ["hello"]);
  const messages = await server.messages("retry");
  await server.ask("POST", `/v1/sessions/retry/messages/${messages[0].id}/retry`);
  await server.idle("retry");
  await say("running", "A long story", []);
  await server.say("running", "long 1000000");
  await say("trade", "Buy shares", ["approve"], "waiting");
  await say("browser", "A client's tool", ["browser"], "waiting");
}

const main = (page) => page.getByRole("main");
const menu = (page) => page.getByRole("button", { name: "Conversation menu" });

/** `shot`: it is one of the pictures. `act`: what somebody did to get there, and `shown` what appears then. */
export const STATES = [
  { name: "welcome", hash: "", shot: true, ready: (page) => page.getByText("Connect a real model") },
  { name: "conversation", hash: "#/weather", shot: true, ready: (page) => main(page).getByText("sunny").first() },
  { name: "rich-text", hash: "#/rich", shot: true, ready: (page) => main(page).locator("math").first() },
  {
    name: "running",
    hash: "#/running",
    shot: true,
    ready: (page) => page.getByRole("group", { name: "Running reply" }),
  },
  {
    name: "approval",
    hash: "#/trade",
    shot: true,
    ready: (page) => main(page).getByRole("button", { name: "Allow once" }),
  },
  {
    name: "approval-edit",
    hash: "#/trade",
    ready: (page) => main(page).getByRole("button", { name: "Edit", exact: true }).last(),
    act: async (page) => {
      await main(page).getByRole("group", { name: /^Tool/ }).getByRole("button", { name: "Edit" }).click();
      await main(page)
        .getByRole("textbox", { name: /^Tool input/ })
        .fill("{ not json");
    },
    shown: (page) => main(page).getByText("Invalid JSON"),
  },
  {
    name: "approval-deny",
    hash: "#/trade",
    ready: (page) => main(page).getByRole("button", { name: "Deny…" }),
    act: (page) => main(page).getByRole("button", { name: "Deny…" }).click(),
    shown: (page) => main(page).getByRole("textbox", { name: /^Reason/ }),
  },
  {
    name: "decision",
    hash: "#/decided",
    shot: true,
    ready: (page) => main(page).getByRole("group", { name: "Decision" }),
    act: (page) => main(page).getByRole("button", { name: "Input changed" }).click(),
    shown: (page) => main(page).getByLabel("Input after", { exact: true }),
  },
  {
    name: "rules",
    hash: "#/decided",
    ready: (page) => main(page).getByRole("button", { name: "1 rule" }),
    act: (page) => main(page).getByRole("button", { name: "1 rule" }).click(),
    shown: (page) => page.getByRole("dialog", { name: "Accepted rules" }),
  },
  { name: "client-tool", hash: "#/browser", ready: (page) => main(page).getByRole("button", { name: "Send result" }) },
  { name: "failed", hash: "#/failed", shot: true, ready: (page) => main(page).getByText("upstream").first() },
  { name: "image", hash: "#/image", ready: (page) => main(page).getByRole("img").first() },
  {
    name: "timeline",
    hash: "#/many?pane=timeline",
    shot: true,
    ready: (page) => page.getByRole("treegrid", { name: "Events" }),
  },
  { name: "past", hash: "#/many@12?pane=timeline", shot: true, ready: (page) => page.getByText("event 12 of").first() },
  {
    name: "trace",
    hash: "#/many?pane=trace",
    shot: true,
    ready: (page) => page.getByRole("treegrid", { name: "Trace" }),
  },
  { name: "wire", hash: "#/many?pane=wire", ready: (page) => page.getByRole("treegrid", { name: /^Frames/ }) },
  { name: "usage", hash: "#/many?pane=usage", shot: true, ready: (page) => page.getByText("Where the time went") },
  { name: "overview", hash: "#/?page=overview", shot: true, ready: (page) => main(page).getByRole("img").first() },
  { name: "fork", hash: "#/fork", ready: (page) => main(page).getByText("forked from") },
  {
    name: "earlier-reply",
    hash: "#/retry",
    ready: (page) => main(page).getByRole("button", { name: "compare" }),
    act: (page) => main(page).getByRole("button", { name: "compare" }).click(),
    shown: (page) => page.getByText("There is no difference."),
  },
  {
    name: "edit-message",
    hash: "#/weather",
    ready: (page) => main(page).getByRole("button", { name: "Edit", exact: true }).first(),
    act: (page) => main(page).getByRole("button", { name: "Edit", exact: true }).first().click(),
    shown: (page) => main(page).getByRole("form", { name: "Edit the message" }),
  },
  { name: "no-such-event", hash: "#/weather@99999", ready: (page) => main(page).getByText("there is no event") },
  { name: "no-such-session", hash: "#/nobody", ready: (page) => main(page).getByText("Conversation not found") },
  {
    name: "menu",
    hash: "#/weather",
    ready: menu,
    act: (page) => menu(page).click(),
    shown: (page) => page.getByRole("menuitem"),
  },
  {
    name: "palette",
    hash: "#/weather",
    ready: menu,
    act: async (page) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Conversation or command" }).fill("weather");
    },
    shown: (page) => page.getByRole("option", { name: /weather/i }),
  },
  {
    name: "keys",
    hash: "#/weather",
    ready: menu,
    act: (page) => page.evaluate(() => window.dispatchEvent(new Event("turnwire:keys"))),
    shown: (page) => page.getByRole("dialog").getByText("new conversation"),
  },
];
