// Markdown as elements. Nothing in it can become markup of its own: HTML is shown as it was written, and
// nothing outside is loaded.
import type { Token, Tokens } from "marked";
import { Fragment, memo, type ReactNode, useRef } from "react";
import { Picture } from "../../ui/picture.tsx";
import { Blocks } from "./blocks.ts";
import { Code, MathText } from "./code.tsx";
import { decode, safeHref, shownSource } from "./safe-urls.ts";
import { useThrottled } from "./throttle.ts";

/** A text that may still grow. */
export const Markdown = memo(function Markdown({ text, growing = false }: { text: string; growing?: boolean }) {
  const blocks = useRef<Blocks>(null);
  blocks.current ??= new Blocks();
  // What it costs to read decides how often it is: a paragraph without an end must not take all the time, and to
  // lay it out takes longer still. What costs little is shown as it comes, as often as the socket's worker has it.
  const pause = 100 * blocks.current.cost;
  const shown = useThrottled(text, growing && pause > 50 ? Math.min(400, pause) : 0);
  const tokens = blocks.current.update(shown, growing);
  // Levels that a text leaves out are left out here, too: headings only go down by one.
  const levels = [
    ...new Set(tokens.flatMap((token) => (token.type === "heading" ? [Number((token as Tokens.Heading).depth)] : []))),
  ].sort((a, b) => a - b);
  return (
    <div className="md">
      {tokens.map((token, at) =>
        token.type === "space" || token.type === "def" ? null : (
          <Block key={at} token={token} levels={levels} growing={growing && at === tokens.length - 1} />
        ),
      )}
    </div>
  );
});

/** Equal text gives the same element. */
const Block = memo(
  function Block({ token, levels, growing }: { token: Token; levels: readonly number[]; growing: boolean }) {
    return block(token, 0, levels, growing);
  },
  (before, now) =>
    before.token.raw === now.token.raw &&
    before.growing === now.growing &&
    (now.token.type !== "heading" || before.levels.join() === now.levels.join()) &&
    before.token.type === now.token.type &&
    links(before.token) === links(now.token),
);

/** The target of a reference link may arrive later. */
function links(token: Token): number {
  return token.type === "paragraph" ? (token.tokens ?? []).filter(({ type }) => type === "link").length : 0;
}

function block(token: Token, at = 0, levels: readonly number[] = [], growing = false): ReactNode {
  const it = token as Tokens.Generic;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p key={at}>{inline(it.tokens)}</p>;
    case "heading": {
      // The page has its own h1, and each message an h2.
      const Tag = `h${Math.min(6, 3 + Math.max(0, levels.indexOf(it["depth"])))}` as "h3";
      return <Tag key={at}>{inline(it.tokens)}</Tag>;
    }
    case "code":
      return <Code key={at} text={it["text"]} lang={it["lang"] ?? ""} growing={growing} />;
    case "blockquote":
      return <blockquote key={at}>{(it.tokens ?? []).map((inner, n) => block(inner, n, levels))}</blockquote>;
    case "hr":
      return <hr key={at} />;
    case "list": {
      const entries = (it as Tokens.List).items.map((item, n) => (
        <li key={n} className={item.task ? "task" : undefined}>
          {item.tokens.map((inner, k) =>
            inner.type === "checkbox" ? (
              <input
                key={k}
                type="checkbox"
                checked={item.checked ?? false}
                readOnly
                disabled
                aria-label={item.checked ? "done" : "not done"}
              />
            ) : inner.type === "text" ? (
              <Fragment key={k}>{inline((inner as Tokens.Text).tokens ?? [inner])}</Fragment>
            ) : (
              block(inner, k, levels)
            ),
          )}
        </li>
      ));
      return it["ordered"] ? (
        <ol key={at} start={it["start"] || 1}>
          {entries}
        </ol>
      ) : (
        <ul key={at}>{entries}</ul>
      );
    }
    case "table":
      return <Table key={at} table={it as Tokens.Table} />;
    case "text":
      return <Fragment key={at}>{inline(it.tokens ?? [token])}</Fragment>;
    case "math":
      return (
        <p key={at}>
          <MathText text={it["text"]} block />
        </p>
      );
    default:
      return <p key={at}>{it.raw}</p>;
  }
}

function Table({ table }: { table: Tokens.Table }) {
  const align = (n: number) => ({ textAlign: table.align[n] ?? undefined });
  return (
    <div className="md-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {table.header.map((cell, n) => (
              <th key={n} style={align(n)} scope="col">
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, n) => (
            <tr key={n}>
              {row.map((cell, k) => (
                <td key={k} style={align(k)}>
                  {inline(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** How many characters of one text are laid out together. */
const PART_LENGTH = 4000;

/**
 * A very long text in parts. Those in the middle are blocks, so that the browser lays out only what is in sight; a part
 * ends where a line may end.
 */
function splitLongText(text: string): ReactNode {
  if (text.length < 3 * PART_LENGTH) return text;
  const found: string[] = [];
  let from = 0;
  while (text.length - from > 2 * PART_LENGTH) {
    const end = text.indexOf(" ", from + PART_LENGTH);
    if (end < 0) break;
    found.push(text.slice(from, end + 1));
    from = end + 1;
  }
  const [first, ...middle] = found;
  return (
    <>
      {first}
      {middle.map((part, at) => (
        <span key={at} className="md-part">
          {part}
        </span>
      ))}
      {text.slice(from)}
    </>
  );
}

function inline(tokens: readonly Token[] | undefined): ReactNode {
  return tokens?.map((token, at) => {
    const it = token as Tokens.Generic;
    switch (token.type) {
      case "text":
      case "escape":
        return (
          <Fragment key={at}>
            {it.tokens ? inline(it.tokens) : token.type === "text" ? splitLongText(decode(it["text"])) : it["text"]}
          </Fragment>
        );
      case "strong":
        return <strong key={at}>{inline(it.tokens)}</strong>;
      case "em":
        return <em key={at}>{inline(it.tokens)}</em>;
      case "del":
        return <del key={at}>{inline(it.tokens)}</del>;
      case "math":
        return <MathText key={at} text={it["text"]} block={it["block"]} />;
      case "codespan":
        return <code key={at}>{it["text"]}</code>;
      case "br":
        return <br key={at} />;
      case "link": {
        const href = safeHref(it["href"]);
        const name = it["autolink"] ? it["text"] : inline(it.tokens);
        return href === null ? (
          <Fragment key={at}>{name}</Fragment>
        ) : (
          <a key={at} href={href} title={it["title"] ?? href} target="_blank" rel="noopener noreferrer">
            {name}
          </a>
        );
      }
      case "image": {
        const source = shownSource(it["href"]);
        const href = safeHref(it["href"]);
        if (source !== null) return <Picture key={at} src={source} alt={it["text"] || "image"} />;
        return href === null ? (
          <Fragment key={at}>{it["text"]}</Fragment>
        ) : (
          <a key={at} href={href} title={href} target="_blank" rel="noopener noreferrer">
            image: {it["text"] || href}
          </a>
        );
      }
      default:
        return <Fragment key={at}>{it.raw}</Fragment>;
    }
  });
}
