// A user's text, verbatim, with its code shown as code.
import { Code } from "./markdown/code.tsx";

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*\n([\s\S]*?)(?:\n {0,3}\1[`~]*[ \t]*(?=\n|$)|$(?![\s\S]))/gm;

type Part = { kind: "text" | "code"; text: string; lang: string };

/** The parts of a text: what is between fences is code. */
export function splitFences(text: string): Part[] {
  const found: Part[] = [];
  let from = 0;
  const plain = (to: number) => {
    const part = text.slice(from, to).replace(/^\n/, "").replace(/\n$/, "");
    if (part !== "") found.push({ kind: "text", text: part, lang: "" });
  };
  for (const match of text.matchAll(FENCE)) {
    plain(match.index);
    found.push({ kind: "code", text: match[3] ?? "", lang: match[2] ?? "" });
    from = match.index + match[0].length;
  }
  plain(text.length);
  return found;
}

export function UserText({ text }: { text: string }) {
  return splitFences(text).map(({ kind, text, lang }, at) =>
    kind === "code" ? (
      <Code key={at} text={text} lang={lang} />
    ) : (
      <p key={at} className="plain">
        {text.split(/(`[^`\n]+`)/).map((part, n) => (n % 2 === 1 ? <code key={n}>{part.slice(1, -1)}</code> : part))}
      </p>
    ),
  );
}
