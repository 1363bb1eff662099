// Math: TeX as marked finds it, for `tex.tsx` to set.
import type { TokenizerExtension, Tokens } from "marked";

/** More is shown as it was written. */
const LONGEST = 4000;

const token = (raw: string, text: string, block: boolean): Tokens.Generic | undefined =>
  raw.length > LONGEST ? undefined : { type: "math", raw, text: text.trim(), block };

const block: TokenizerExtension = {
  name: "math",
  level: "block",
  start: (src) => src.match(/(?:^|\n) {0,3}(?:\$\$|\\\[)/)?.index,
  tokenizer: (src) => {
    const found = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/.exec(src);
    return found ? token(found[0], found[1] ?? found[2] ?? "", true) : undefined;
  },
};

const inline: TokenizerExtension = {
  name: "math",
  level: "inline",
  start: (src) => src.match(/\$|\\\(/)?.index,
  tokenizer: (src) => {
    // Prices are no math: no space inside the marks, no digit behind them.
    const found =
      /^\$\$([^$\n]+?)\$\$/.exec(src) ??
      /^\$(?![\s$\d])((?:[^$\\\n]|\\.)*?[^\s\\$]|[^\s\\$])\$(?!\d)/.exec(src) ??
      /^\\\(([^\n]+?)\\\)/.exec(src);
    return found ? token(found[0], found[1] ?? "", false) : undefined;
  },
};

/** For the options of a lexer. */
export const MATH = {
  inline: [inline.tokenizer],
  block: [block.tokenizer],
  startInline: [inline.start],
  startBlock: [block.start],
  childTokens: {},
  renderers: {},
} as never;
