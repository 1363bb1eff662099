// TeX as MathML, which browsers set by themselves: what people and models write in messages. Loaded when there is math.
import type { ReactNode } from "react";

const GREEK =
  "alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ emptyset ∅ forall ∀ exists ∃ dots … ldots … cdots ⋯ vdots ⋮ prime ′ degree °";
const OPERATORS =
  "times × cdot ⋅ div ÷ pm ± mp ∓ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ equiv ≡ sim ∼ propto ∝ to → rightarrow → leftarrow ← Rightarrow ⇒ Leftarrow ⇐ iff ⇔ leftrightarrow ↔ mapsto ↦ in ∈ notin ∉ subset ⊂ subseteq ⊆ supset ⊃ cup ∪ cap ∩ setminus ∖ land ∧ wedge ∧ lor ∨ vee ∨ neg ¬ sum ∑ prod ∏ int ∫ oint ∮ ast ∗ star ⋆ circ ∘ oplus ⊕ otimes ⊗ mid ∣ parallel ∥ perp ⊥ angle ∠ ll ≪ gg ≫ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ langle ⟨ rangle ⟩ lbrace { rbrace } vert | Vert ‖";
const FUNCTIONS = new Set(
  "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp lim max min sup inf det dim gcd arg ker Pr mod".split(
    " ",
  ),
);
const pairs = (text: string): Map<string, string> => {
  const parts = text.split(" ");
  return new Map(parts.flatMap((name, at) => (at % 2 === 0 ? [[name, parts[at + 1] ?? ""]] : [])));
};
const LETTERS = pairs(GREEK);
const SIGNS = pairs(OPERATORS);
const BIG = new Set(["∑", "∏", "lim", "max", "min", "sup", "inf"]);
const ACCENTS: Record<string, string> = {
  hat: "^",
  bar: "¯",
  vec: "→",
  dot: "˙",
  ddot: "¨",
  tilde: "~",
  overline: "¯",
};
const FONTS: Record<string, string> = { mathbf: "bold", mathbb: "double-struck", mathcal: "script", mathrm: "normal" };
/** Deeper than anybody writes. */
const DEPTH = 40;

/** Set as math; what cannot be read is shown as it was written. */
export function Tex({ text, block }: { text: string; block: boolean }) {
  const parsed = new Parser(text).all();
  if (parsed === null) return <code>{text}</code>;
  return (
    <math display={block ? "block" : "inline"} aria-label={text}>
      <mrow>{parsed}</mrow>
    </math>
  );
}

class Parser {
  readonly #tokens: string[];
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#tokens = text.match(/\\(?:[a-zA-Z]+|.)|[{}^_&]|\d+(?:\.\d+)?|\s+|./gsu) ?? [];
  }

  all(): ReactNode[] | null {
    try {
      const found = this.#row(() => false);
      return this.#at < this.#tokens.length ? null : found;
    } catch {
      return null;
    }
  }

  #row(isEnd: (token: string) => boolean): ReactNode[] {
    const row: ReactNode[] = [];
    for (;;) {
      this.#space();
      const token = this.#tokens[this.#at];
      if (token === undefined || isEnd(token)) return row;
      if (token === "}") throw new Error("unbalanced");
      row.push(this.#scripted(row.length));
    }
  }

  #space(): void {
    while (/^\s+$/.test(this.#tokens[this.#at] ?? "")) this.#at += 1;
  }

  /** An atom with what stands below and above it. */
  #scripted(key: number): ReactNode {
    const name = this.#tokens[this.#at] ?? "";
    const base = this.#atom(key);
    let below: ReactNode = null;
    let above: ReactNode = null;
    for (;;) {
      this.#space();
      const mark = this.#tokens[this.#at];
      if (mark !== "_" && mark !== "^") break;
      this.#at += 1;
      const script = this.#argument();
      if (mark === "_") below = script;
      else above = script;
    }
    const isBig = BIG.has(SIGNS.get(name.slice(1)) ?? name.slice(1));
    if (below !== null && above !== null) {
      const Tag = isBig ? "munderover" : "msubsup";
      return (
        <Tag key={key}>
          {base}
          {below}
          {above}
        </Tag>
      );
    }
    if (below !== null) {
      const Tag = isBig ? "munder" : "msub";
      return (
        <Tag key={key}>
          {base}
          {below}
        </Tag>
      );
    }
    if (above === null) return base;
    const Tag = isBig ? "mover" : "msup";
    return (
      <Tag key={key}>
        {base}
        {above}
      </Tag>
    );
  }

  /** A group in braces, or one atom. */
  #argument(): ReactNode {
    this.#space();
    return this.#atom(0);
  }

  #group(): ReactNode[] {
    if (++this.#depth > DEPTH) throw new Error("too deep");
    this.#at += 1;
    const row = this.#row((token) => token === "}");
    if (this.#tokens[this.#at] !== "}") throw new Error("unbalanced");
    this.#at += 1;
    this.#depth -= 1;
    return row;
  }

  #text(): string {
    this.#space();
    if (this.#tokens[this.#at] !== "{") throw new Error("no text");
    const from = this.#at + 1;
    const to = this.#tokens.indexOf("}", from);
    if (to < 0) throw new Error("unbalanced");
    this.#at = to + 1;
    return this.#tokens.slice(from, to).join("");
  }

  #atom(key: number): ReactNode {
    const token = this.#tokens[this.#at];
    if (token === undefined || /^[}_^&]$/.test(token)) throw new Error("nothing here");
    if (token === "{") return <mrow key={key}>{this.#group()}</mrow>;
    this.#at += 1;
    if (/^\d/.test(token)) return <mn key={key}>{token}</mn>;
    if (/^\p{L}$/u.test(token)) return <mi key={key}>{token}</mi>;
    if (!token.startsWith("\\")) return <mo key={key}>{token}</mo>;
    return this.#command(token.slice(1), key);
  }

  #command(name: string, key: number): ReactNode {
    const letter = LETTERS.get(name);
    if (letter !== undefined) return <mi key={key}>{letter}</mi>;
    const sign = SIGNS.get(name);
    if (sign !== undefined) return <mo key={key}>{sign}</mo>;
    if (FUNCTIONS.has(name)) return <mi key={key}>{name}</mi>;
    if (/^[{}%$#&_|]$/.test(name)) return <mo key={key}>{name}</mo>;
    if (/^[,;:! ]$/.test(name) || name === "quad" || name === "qquad")
      return <mspace key={key} width={name.startsWith("q") ? "1em" : "0.2em"} />;
    const accent = ACCENTS[name];
    if (accent !== undefined)
      return (
        <mover key={key}>
          {this.#argument()}
          <mo>{accent}</mo>
        </mover>
      );
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
        return (
          <mfrac key={key}>
            {this.#argument()}
            {this.#argument()}
          </mfrac>
        );
      case "binom":
        return (
          <mrow key={key}>
            <mo>(</mo>
            <mfrac linethickness="0">
              {this.#argument()}
              {this.#argument()}
            </mfrac>
            <mo>)</mo>
          </mrow>
        );
      case "sqrt":
        return <msqrt key={key}>{this.#argument()}</msqrt>;
      case "text":
      case "mathrm":
      case "operatorname":
      case "textbf":
        return <mtext key={key}>{this.#text()}</mtext>;
      case "left":
      case "right": {
        this.#space();
        const mark = this.#tokens[this.#at++] ?? ".";
        return <mo key={key}>{mark === "." ? "" : (SIGNS.get(mark.slice(1)) ?? mark.replace("\\", ""))}</mo>;
      }
      case "begin":
        return this.#table(this.#text(), key);
    }
    if (FONTS[name] !== undefined) return <mrow key={key}>{this.#argument()}</mrow>;
    throw new Error(`unknown: ${name}`);
  }

  #table(name: string, key: number): ReactNode {
    if (!/^(?:[pbvB]?matrix|cases|aligned?\*?|array)$/.test(name)) throw new Error(`unknown: ${name}`);
    if (name === "array") this.#text();
    const rows: ReactNode[][] = [[]];
    for (;;) {
      const cell = this.#row((token) => token === "&" || token === "\\\\" || token === "\\end");
      rows.at(-1)?.push(<mtd key={rows.at(-1)?.length}>{cell}</mtd>);
      const mark = this.#tokens[this.#at++];
      if (mark === "\\\\") rows.push([]);
      else if (mark === "\\end") break;
      else if (mark === undefined) throw new Error("no end");
    }
    this.#text();
    const [open, close] = { p: ["(", ")"], b: ["[", "]"], v: ["|", "|"], B: ["{", "}"], c: ["{", ""] }[
      name[0] ?? ""
    ] ?? ["", ""];
    return (
      <mrow key={key}>
        {open && <mo>{open}</mo>}
        <mtable>
          {rows.map((row, at) => (
            <mtr key={at}>{row}</mtr>
          ))}
        </mtable>
        {close && <mo>{close}</mo>}
      </mrow>
    );
  }
}
