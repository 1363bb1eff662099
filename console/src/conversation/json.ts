// The input of a tool as text: laid out for people, also while it is still coming. Its tokens stay as they
// were written: what somebody allows is what the tool gets, up to the last digit.

export interface Piece {
  kind: "key" | "string" | "value" | "mark";
  text: string;
}

const WIDTH = 72;
/** Deeper than anybody reads; what lies below is not moved in any more. */
const DEPTH = 40;

/** The tokens of JSON that may end anywhere. `null`: it is no JSON. */
export function tokens(json: string): Piece[] | null {
  const found: Piece[] = [];
  const pattern = /\s+|"(?:[^"\\]|\\.)*(?:"|\\?$)|[{}[\]:,]|[-+.\w]+/sy;
  for (let at = 0; at < json.length; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const text = pattern.exec(json)?.[0];
    if (text === undefined) return null;
    const first = text[0] ?? "";
    if (/\s/.test(first)) continue;
    if (first === ":") {
      const before = found.at(-1);
      if (before?.kind === "string") before.kind = "key";
    }
    found.push({ text: visible(text), kind: first === '"' ? "string" : /[{}[\]:,]/.test(first) ? "mark" : "value" });
  }
  return found;
}

/** Writes invisible characters, and those that change the direction of text, as JSON escapes. */
export function visible(text: string): string {
  return text.replaceAll(HIDDEN, (hidden) =>
    hidden
      .split("")
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
/** A name on one line. One of blanks alone says so, and so does one whose letters may look like others. */
export function visibleName(name: string): string {
  const shown = visible(name).replaceAll(/\s+/g, " ").trim() || "(a name of blanks)";
  return /\p{Script=Latin}/u.test(name) && LOOK_ALIKE.test(name) ? `${shown} (mixed alphabets)` : shown;
}
/** Alphabets with letters that look like Latin ones, and Latin letters in other forms. */
const LOOK_ALIKE =
  /[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}\p{Script=Coptic}\p{Script=Lisu}\uff21-\uff5a\u{1d400}-\u{1d7ff}]/u;
/** Line breaks, tabs and the parts of an emoji are no secret. U+2800 is a blank Braille pattern. */
const HIDDEN =
  /(?![\n\t]|(?<=\p{Extended_Pictographic})\ufe0f|(?<=\p{Extended_Pictographic}\ufe0f?)\u200d(?=\p{Extended_Pictographic}))[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cc}\p{Co}\p{Cs}\u2800\ufff9-\ufffb]/gu;

/** JSON laid out: on one line where it fits, otherwise one entry a line. Text that is no JSON is one piece. */
export function layout(json: string): Piece[] {
  const found = tokens(json);
  if (found === null) return [{ kind: "string", text: visible(json) }];
  const flat = arrange(found, false);
  return flat.reduce((sum, { text }) => sum + text.length, 0) <= WIDTH ? flat : arrange(found, true);
}

/** The same as one text. */
export function pretty(json: string): string {
  return layout(json)
    .map(({ text }) => text)
    .join("");
}

function arrange(found: Piece[], lines: boolean): Piece[] {
  const out: Piece[] = [];
  let depth = 0;
  const line = () => (lines ? `\n${"  ".repeat(Math.min(depth, DEPTH))}` : "");
  found.forEach((piece, at) => {
    const { text } = piece;
    const next = found[at + 1]?.text;
    if (text === "{" || text === "[") {
      depth += 1;
      const empty = next === "}" || next === "]";
      out.push({ kind: "mark", text: empty ? text : lines ? text + line() : text === "{" ? "{ " : "[" });
    } else if (text === "}" || text === "]") {
      depth = Math.max(0, depth - 1);
      const before = found[at - 1]?.text;
      const empty = before === "{" || before === "[";
      out.push({ kind: "mark", text: empty ? text : lines ? line() + text : text === "}" ? " }" : "]" });
    } else if (text === ",") {
      out.push({ kind: "mark", text: lines ? `,${line()}` : ", " });
    } else if (text === ":") {
      out.push({ kind: "mark", text: ": " });
    } else {
      out.push(piece);
    }
  });
  return out;
}

/** What is wrong with an input that a person wrote; `null`: it can be sent. */
export function wrongInput(text: string): string | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `Invalid JSON: ${error instanceof Error ? error.message.replace(/^JSON\.parse: /, "") : "it cannot be read"}`;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return "Tool input must be a JSON object: { … }";
  return null;
}

/** One line of it, for a list. */
export function summary(json: string): string {
  const found = tokens(json);
  const flat =
    found === null
      ? visible(json)
      : arrange(found, false)
          .map(({ text }) => text)
          .join("");
  return flat.length > 160 ? `${flat.slice(0, 159)}…` : flat;
}
