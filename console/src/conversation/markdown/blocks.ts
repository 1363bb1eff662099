// Markdown that grows. What has come is cut into blocks; a block that is over is never looked at again, so
// that a long reply costs what is new of it.
import { Lexer, type Token } from "marked";
import { MATH } from "./math.ts";

/** How many blocks at the end may still change: `-` behind a list may become one more item of it. */
const OPEN = 2;

export class Blocks {
  #text = "";
  #tokens: Token[] = [];
  /** How many of the tokens are over, and where in the text they end. */
  #done = 0;
  #offset = 0;
  #isWhole = true;
  /** How many milliseconds it takes, as it was lately. */
  cost = 0;

  /** The blocks of the text. `growing`: more of it may come; what is half written at its end is mended. */
  update(text: string, growing: boolean): readonly Token[] {
    if (text === this.#text && this.#isWhole === !growing) return this.#tokens;
    const began = performance.now();
    // The last time everything is read as one: what comes late may say where a link above leads.
    if (!growing || !text.startsWith(this.#text)) this.#offset = this.#done = 0;
    const tail = text.slice(this.#offset).replaceAll(/\r\n|\r/g, "\n");
    // To look for math, the rest of the text is read once more for each token.
    const extensions = /\$|\\[[(]/.test(tail) ? { extensions: MATH } : {};
    const tokens = Lexer.lex(growing ? closeOpenMarks(tail) : tail, { gfm: true, ...extensions });
    this.#tokens = [...this.#tokens.slice(0, this.#done), ...tokens];
    this.#text = text;
    this.#isWhole = !growing;
    if (growing && !text.includes("\r", this.#offset)) this.#settle(tail);
    this.cost += (performance.now() - began - this.cost) / 4;
    return this.#tokens;
  }

  /** Moves on past the blocks that are over: their raw text is what the reply has, letter by letter. */
  #settle(tail: string): void {
    let open = this.#tokens.length;
    for (let left = OPEN; left > 0 && open > this.#done; ) if (this.#tokens[--open]?.type !== "space") left -= 1;
    let raw = "";
    for (const token of this.#tokens.slice(this.#done, open)) raw += token.raw;
    if (raw === "" || !tail.startsWith(raw)) return;
    this.#done = open;
    this.#offset += raw.length;
  }
}

/** Closes what is half written at the end, so that it does not change its shape a moment later. */
export function closeOpenMarks(text: string): string {
  const cut = text.lastIndexOf("\n") + 1;
  const line = text.slice(cut);
  // A line that has only its mark so far: `-` would make a heading of the line above.
  if (/^[ \t>]*(?:[-=*+_#]+|\d{1,9}[.)]?|`{1,3}|~{1,3}|\|[-:| ]*)[ \t]*$/.test(line)) return text.slice(0, cut);
  if (inFence(text)) return text;
  const paragraph = text.slice(text.lastIndexOf("\n\n") + 1);
  // Code hides every other mark in it.
  const ticks = paragraph.replaceAll(/`+[^`]*`+/g, "");
  if (ticks.includes("`")) return `${text}\``;
  const link = /!?\[([^[\]]*)(?:\]\(?[^()\s]*)?$/.exec(line);
  if (link) return closeOpenMarks(text.slice(0, text.length - link[0].length) + link[1]);
  const plain = ticks.replaceAll(/\\./gs, "");
  let mended = text;
  // The inner one is closed first.
  const open = (mark: string) => plain.split(mark).length % 2 === 0;
  if (open("**")) mended = /\*\*$/.test(text) ? text.slice(0, -2) : `${text.replace(/(?<!\*)\*$/, "").trimEnd()}**`;
  else if (open("~~")) mended = /~~$/.test(text) ? text.slice(0, -2) : `${text.trimEnd()}~~`;
  return mended;
}

/** Whether the text ends inside a block of code. */
function inFence(text: string): boolean {
  let fence: string | null = null;
  for (const [, mark = ""] of text.matchAll(/^ {0,3}(`{3,}|~{3,})/gm)) {
    if (fence === null) fence = mark;
    else if (mark[0] === fence[0] && mark.length >= fence.length) fence = null;
  }
  return fence !== null;
}
