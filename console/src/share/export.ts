// A conversation as a file: Markdown, one HTML page without anything outside, or its log. And a log as a conversation.
import { newId } from "turnwire";
import type { MsgJson } from "turnwire/message";
import { client } from "../client.ts";
import { plainText } from "../conversation/compare.tsx";
import { clock, dayOf } from "../time.ts";

export type Format = "md" | "html" | "ndjson";

/** Saves a text as a file. */
export function saveFile(text: string, type: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A file name made of a title. */
export function fileName(title: string, otherwise: string, ending: string): string {
  const name = title
    .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 60);
  return `${name || otherwise}.${ending}`;
}

/** All messages of the history, oldest first. */
async function messages(session: string): Promise<MsgJson[]> {
  const all: MsgJson[] = [];
  let before: string | null = null;
  do {
    const page: { messages: MsgJson[]; next_before: string | null } = await client
      .session(session)
      .history({ limit: 500, ...(before !== null && { before }) });
    all.unshift(...page.messages);
    before = page.next_before;
  } while (before !== null);
  return all;
}

const authorOf = ({ role, name }: MsgJson): string =>
  role === "user" ? (name === "user" || !name ? "You" : name) : name || role;

/** Longer than any run of backticks in the text. */
function fence(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  return "`".repeat(longest + 1);
}

export function toMarkdown(title: string, list: readonly MsgJson[]): string {
  const parts = [`# ${title.replaceAll(/\s+/g, " ")}`];
  for (const message of list) {
    parts.push(`## ${authorOf(message)}, ${dayOf(message.created_at ?? "")} ${clock(message.created_at ?? "")}`);
    for (const block of message.content) {
      if (block.type === "text") parts.push(block.text);
      else if (block.type !== "thinking") {
        const text = plainText({ content: [block] });
        if (text !== "") parts.push(`${fence(text)}text\n${text}\n${fence(text)}`);
      }
    }
  }
  return `${parts.join("\n\n")}\n`;
}

const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** One page that loads nothing and runs nothing: its policy forbids both. */
export function toHtml(title: string, list: readonly MsgJson[]): string {
  const articles = list.map((message) => {
    const blocks = message.content.flatMap((block) => {
      if (block.type === "thinking") return [];
      const text = plainText({ content: [block] });
      const tag = block.type === "text" ? "p" : "pre";
      return text === "" ? [] : [`<${tag} dir="auto">${escaped(text)}</${tag}>`];
    });
    return `<article class="${message.role === "user" ? "user" : "agent"}">
<header><b><bdi>${escaped(authorOf(message))}</bdi></b> <time>${escaped(`${dayOf(message.created_at ?? "")} ${clock(message.created_at ?? "")}`)}</time></header>
${blocks.join("\n")}
</article>`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}</title>
<style>
:root { color-scheme: light dark; font: 15px/1.6 system-ui, sans-serif; }
body { max-width: 780px; margin: 24px auto; padding: 0 16px; }
p, pre { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
pre { padding: 8px 12px; border: 1px solid #8886; border-radius: 8px; font-size: 13px; }
article { margin: 0 0 20px; }
.user p { padding: 8px 14px; border-radius: 12px; background: #0f766e22; }
time { color: #888; font-size: 13px; }
</style>
</head>
<body>
<h1>${escaped(title)}</h1>
${articles.join("\n")}
</body>
</html>
`;
}

export async function exportAs(session: string, title: string, format: Format): Promise<void> {
  const name = fileName(title, session, format);
  if (format === "ndjson") return saveFile(await client.session(session).export(), "application/x-ndjson", name);
  const list = await messages(session);
  if (format === "md") saveFile(toMarkdown(title, list), "text/markdown", name);
  else saveFile(toHtml(title, list), "text/html", name);
}

/** Events of a request, at most. */
const BATCH = 1000;

/**
 * A log as a new conversation, which nobody continues by itself: its agent is `external`. Decisions of people cannot be imported as
 * such: who imports them did not make them.
 */
export async function importLog(text: string, title: string): Promise<string> {
  const events = text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line, at) => {
      try {
        return JSON.parse(line) as { type?: string; id?: string; seq?: unknown };
      } catch {
        throw new Error(`Line ${at + 1} is not valid JSON.`);
      }
    })
    .filter(({ type }) => type !== "USER_CONFIRM_RESULT" && type !== "USER_INTERRUPT");
  if (events.length === 0) throw new Error("The file has no events.");
  const id = newId();
  await client.create({ id, agent: "external", title, metadata: { imported: true } });
  const { http } = client.session(id);
  const path = `/v1/sessions/${encodeURIComponent(id)}/events?tolerant=true`;
  for (let from = 0; from < events.length; from += BATCH) {
    const body = events
      .slice(from, from + BATCH)
      .map((event, at) => JSON.stringify({ ...event, id: event.id ?? `${id}-${from + at}`, seq: undefined }))
      .join("\n");
    await http.ask("POST", path, {
      body,
      headers: { "content-type": "application/x-ndjson", "turnwire-producer": "console-import.1" },
    });
  }
  return id;
}
