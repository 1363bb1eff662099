// Syntax colours for code: words, strings, numbers and comments of the usual languages; lines of a diff. Loaded when code is shown.

export interface Piece {
  text: string;
  kind: "" | "comment" | "string" | "number" | "keyword" | "name" | "added" | "removed" | "place";
}

interface Language {
  words: ReadonlySet<string>;
  /** What a comment begins with, up to the end of the line. */
  line: RegExp | null;
  /** Between what and what other comments stand. */
  block: [string, string] | null;
  quotes: string;
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const C_WORDS =
  "break case catch class const continue default delete do else enum export extends false finally for function if implements import in instanceof interface let new null package private protected public return static super switch this throw true try typeof undefined var void while with yield async await of type readonly namespace abstract as from get set";
const SLASHES = { line: /\/\//y, block: ["/*", "*/"] as [string, string] };
const HASH = { line: /#/y, block: null };

const LANGUAGES: Record<string, Language> = {
  js: { words: words(C_WORDS), ...SLASHES, quotes: "\"'`" },
  rust: {
    words: words(
      "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    ),
    ...SLASHES,
    quotes: '"',
  },
  python: {
    words: words(
      "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case",
    ),
    ...HASH,
    quotes: "\"'",
  },
  go: {
    words: words(
      "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false",
    ),
    ...SLASHES,
    quotes: "\"`'",
  },
  c: {
    words: words(
      "auto break case char class const constexpr continue default delete do double else enum extern false final float for goto if inline int long namespace new nullptr operator private protected public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while bool string var override record sealed internal package import implements extends interface boolean",
    ),
    ...SLASHES,
    quotes: "\"'",
  },
  sql: {
    words: words(
      "select from where insert into values update set delete create table index drop alter join left right inner outer on group by order having limit offset as and or not null is in like between union all distinct case when then else end primary key foreign references default",
    ),
    line: /--/y,
    block: ["/*", "*/"],
    quotes: "'\"",
  },
  shell: {
    words: words(
      "if then else elif fi for in do done while until case esac function return export local echo cd exit set source sudo",
    ),
    ...HASH,
    quotes: "\"'",
  },
  data: { words: words("true false null yes no on off"), ...HASH, quotes: "\"'" },
  css: { words: words("important media supports import"), line: null, block: ["/*", "*/"], quotes: "\"'" },
  html: { words: words(""), line: null, block: ["<!--", "-->"], quotes: "\"'" },
};

const NAMES: Record<string, string> = {
  javascript: "js",
  jsx: "js",
  ts: "js",
  typescript: "js",
  tsx: "js",
  mjs: "js",
  rs: "rust",
  py: "python",
  golang: "go",
  cpp: "c",
  "c++": "c",
  h: "c",
  java: "c",
  kotlin: "c",
  swift: "c",
  cs: "c",
  csharp: "c",
  php: "c",
  sh: "shell",
  bash: "shell",
  zsh: "shell",
  console: "shell",
  json: "data",
  jsonc: "data",
  yaml: "data",
  yml: "data",
  toml: "data",
  ini: "data",
  xml: "html",
  svg: "html",
  scss: "css",
  rb: "python",
  ruby: "python",
};

/** More is shown without colours. */
const LONGEST = 100_000;

/** The pieces of code, in order. `null`: the language is not known. */
export function highlight(code: string, lang: string): Piece[] | null {
  const name = lang.toLowerCase();
  if (code.length > LONGEST) return null;
  if (name === "diff" || name === "patch") return diff(code);
  const language = LANGUAGES[NAMES[name] ?? name];
  return language === undefined ? null : pieces(code, language, name === "sql");
}

function diff(code: string): Piece[] {
  return code.split(/(?<=\n)/).map((text) => ({
    text,
    kind: /^(?:\+\+\+|---|@@|diff |index )/.test(text)
      ? "place"
      : text.startsWith("+")
        ? "added"
        : text.startsWith("-")
          ? "removed"
          : "",
  }));
}

const WORD = /[A-Za-z_$][\w$]*/y;
const NUMBER = /(?:0x[\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*/y;

function pieces(code: string, { words, line, block, quotes }: Language, anyCase: boolean): Piece[] {
  const found: Piece[] = [];
  const add = (text: string, kind: Piece["kind"]) => {
    const last = found.at(-1);
    if (last?.kind === kind) last.text += text;
    else found.push({ text, kind });
  };
  const sticky = (pattern: RegExp, at: number): string | null => {
    pattern.lastIndex = at;
    return pattern.exec(code)?.[0] ?? null;
  };
  for (let at = 0; at < code.length; ) {
    const sign = code[at] ?? "";
    let end = at + 1;
    if (block !== null && code.startsWith(block[0], at)) {
      const to = code.indexOf(block[1], at + block[0].length);
      end = to < 0 ? code.length : to + block[1].length;
      add(code.slice(at, end), "comment");
    } else if (line !== null && sticky(line, at) !== null) {
      const to = code.indexOf("\n", at);
      end = to < 0 ? code.length : to;
      add(code.slice(at, end), "comment");
    } else if (quotes.includes(sign)) {
      end = endOfString(code, at, sign);
      add(code.slice(at, end), "string");
    } else {
      const word = sticky(WORD, at);
      const number = word === null ? sticky(NUMBER, at) : null;
      end = at + Math.max(1, (word ?? number ?? "").length);
      const isWord = word !== null && words.has(anyCase ? word.toLowerCase() : word);
      const isName = word !== null && code[end] === "(";
      add(code.slice(at, end), isWord ? "keyword" : isName ? "name" : number !== null ? "number" : "");
    }
    at = end;
  }
  return found;
}

/** A string ends at its quote, or at the end of the line unless it may have several. */
function endOfString(code: string, from: number, quote: string): number {
  for (let at = from + 1; at < code.length; at++) {
    if (code[at] === "\\") at += 1;
    else if (code[at] === quote) return at + 1;
    else if (code[at] === "\n" && quote !== "`") return at;
  }
  return code.length;
}
