// Terminal colours: the codes of ANSI become styles, all other control sequences are removed.
export interface AnsiPiece {
  text: string;
  /** Class names: `ansi-1` to `ansi-7` are colours, `ansi-bold`, `ansi-dim`, `ansi-under`. */
  className: string;
}

const ESC = "\u001b";
// biome-ignore lint/suspicious/noControlCharactersInRegex: control sequences are what is looked for.
const SEQUENCE = /\u001b(?:\[([\d;:]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

export const hasAnsi = (text: string): boolean => text.includes(ESC);

export function ansi(text: string): AnsiPiece[] {
  const found: AnsiPiece[] = [];
  let [colour, isBold, isDim, isUnder] = [0, false, false, false];
  const add = (part: string) => {
    if (part === "") return;
    const names = [
      colour > 0 && `ansi-${colour}`,
      isBold && "ansi-bold",
      isDim && "ansi-dim",
      isUnder && "ansi-under",
    ].filter(Boolean);
    found.push({ text: part, className: names.join(" ") });
  };
  let from = 0;
  for (const match of text.matchAll(SEQUENCE)) {
    add(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] !== "m") continue;
    const codes = (match[1] || "0").split(/[;:]/).map(Number);
    for (let at = 0; at < codes.length; at++) {
      const code = codes[at] ?? 0;
      if (code === 0) [colour, isBold, isDim, isUnder] = [0, false, false, false];
      else if (code === 1) isBold = true;
      else if (code === 2) isDim = true;
      else if (code === 4) isUnder = true;
      else if (code === 22) [isBold, isDim] = [false, false];
      else if (code === 24) isUnder = false;
      else if (code === 39) colour = 0;
      else if (code >= 31 && code <= 37) colour = code - 30;
      else if (code >= 91 && code <= 97) colour = code - 90;
      // Colours of a palette, and backgrounds, are left out: text stays readable in both themes.
      else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4;
    }
  }
  add(text.slice(from));
  return found;
}
