// The examples of `docs/clients.md` for pages.

import { readFileSync } from "node:fs";
import { onlySession, open, say, until } from "./harness.mjs";

const page = readFileSync(new URL("../../../../docs/clients.md", import.meta.url), "utf8");

/** The sections with an example for a page: their names, and their code by its language. */
export const examples = new Map(
  page
    .split("\n### ")
    .map((section) => [
      section.split("\n")[0],
      Object.fromEntries(
        [...section.matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(([, language, code]) => [language, code]),
      ),
    ])
    .filter(([, code]) => code.jsx),
);

/** Two turns on the page of an example are shown, and are one session. */
export async function checkExample(place, options) {
  const shown = await open(place, {}, options);
  for (const [turn, text] of ["What is the weather?", "Thank you."].entries()) {
    await say(shown, text);
    const is_answered = async () => {
      const { sessions } = await place.server.ask("GET", "/v1/sessions");
      if (sessions.length === 0) return false;
      const { id } = sessions[0];
      if ((await place.server.messages(id)).length < 2 * (turn + 1)) return false;
      // The reply has begun, so now idle means that it has ended.
      return (await place.server.session(id)).status === "idle" && (await place.server.messages(id));
    };
    const messages = await until(is_answered, "no answer");
    // Only the words: some pages show markdown as it is meant.
    const plain = (text) => text.match(/[\p{L}\d]+/gu).join(" ");
    const answer = plain(messages.at(-1).content.at(-1).text);
    await until(async () => plain(await shown.innerText("body")).includes(answer), `not shown: ${answer}`);
  }
  await onlySession(place.server);
}
