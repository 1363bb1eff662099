// @vitest-environment happy-dom
import { Lexer } from "marked";
import { act } from "react";
import { createRoot } from "react-dom/client";
import { describe, expect, test } from "vitest";
import { Blocks, closeOpenMarks } from "./blocks.ts";
import { Markdown } from "./markdown.tsx";
import { blobPath, decode, safeHref, shownSource } from "./safe-urls.ts";

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });

async function html(text: string): Promise<string> {
  const host = document.createElement("div");
  const root = createRoot(host);
  await act(async () => root.render(<Markdown text={text} />));
  const made = host.firstElementChild?.innerHTML ?? "";
  await act(async () => root.unmount());
  return made;
}

const DOCUMENT = `# One

A paragraph with **bold**, *thin*, \`code\` and a [link](https://example.com/a?b=1&c=2).
It goes on, -- and on.

- first
- second

  still second
- third
  1. inner
  2. other

> quoted
> twice

\`\`\`rust
fn main() {

    // - no list
}
\`\`\`

| a | b |
|---|--:|
| 1 | 2 |

Two
===

1. x

2. y

***

The [end][ref].

[ref]: https://example.com/end
`;

describe("markdown as elements", () => {
  test("what people write often", async () => {
    expect(await html("## Hi\n\nA **b** `c`")).toBe("<h3>Hi</h3><p>A <strong>b</strong> <code>c</code></p>");
    expect(await html("3. x\n4. y")).toBe('<ol start="3"><li>x</li><li>y</li></ol>');
    expect(await html("a &amp; b &lt;c&gt; `&lt;`")).toBe("<p>a &amp; b &lt;c&gt; <code>&amp;lt;</code></p>");
    expect(await html("x \\* y")).toBe("<p>x * y</p>");
    expect(await html("```js\nlet a\n```")).toContain("<code>let a</code>");
  });

  test("html stays text", async () => {
    for (const text of [
      "<script>alert(1)</script>",
      "a <img src=x onerror=alert(1)> b",
      '<b onclick="x">y</b>\n\n<div>z',
    ]) {
      const made = await html(text);
      expect(made).not.toMatch(/<(?:script|img|b|div)\b/);
      expect(made).toContain("&lt;");
    }
  });

  test("a link leads to a page, or nowhere", async () => {
    expect(await html("[x](https://example.com/)")).toContain('<a href="https://example.com/"');
    for (const href of [
      "javascript:alert(1)",
      "JaVaScRiPt:alert(1)",
      "data:text/html,x",
      "vbscript:x",
      "//example.com",
      "&#106;avascript:alert(1)",
      "blob:https://x/y",
      "file:///etc",
    ]) {
      expect(safeHref(href)).toBeNull();
      expect(await html(`[x](${href})`)).not.toContain("<a ");
    }
  });

  test("a picture is shown where nobody has to be asked for it", async () => {
    const id = "a".repeat(64);
    expect(await html("![p](https://example.com/p.png)")).not.toContain("<img");
    expect(await html(`![p](http://other:1/x/v1/blobs/${id})`)).toContain(`src="./v1/blobs/${id}"`);
    expect(shownSource("data:image/png;base64,AA")).toBe("data:image/png;base64,AA");
    expect(shownSource("data:image/svg+xml,<svg/>")).toBeNull();
    expect(shownSource("data:text/html,x")).toBeNull();
    expect(blobPath(`https://evil.example/?/v1/blobs/${id}`)).toBeNull();
    expect(blobPath(`/v1/blobs/${id}/../../x`)).toBeNull();
  });

  test("character references", () => {
    expect(decode("&amp;&#65;&#x42;&nosuch;&#0;&#xd800;&constructor;")).toBe("&AB&nosuch;\ufffd\ufffd&constructor;");
  });
});

describe("a text that grows", () => {
  test("ends as if it had come at once", () => {
    const blocks = new Blocks();
    for (let at = 0; at <= DOCUMENT.length; at += 1) blocks.update(DOCUMENT.slice(0, at), true);
    expect(strip(blocks.update(DOCUMENT, false))).toEqual(strip(Lexer.lex(DOCUMENT)));
  });

  test("reads as far as it has come, at any cut, as if that were all", () => {
    const blocks = new Blocks();
    for (let at = 0; at <= DOCUMENT.length; at += 1) {
      const grown = blocks.update(DOCUMENT.slice(0, at), true);
      const whole = Lexer.lex(closeOpenMarks(DOCUMENT.slice(0, at)));
      expect(grown.map(({ type }) => type).join(" "), DOCUMENT.slice(0, at)).toBe(
        whole.map(({ type }) => type).join(" "),
      );
    }
  });

  test("leaves the blocks that are over alone", () => {
    const blocks = new Blocks();
    const long = "word ".repeat(20);
    let text = "";
    for (let n = 0; n < 50; n += 1) blocks.update((text += `${long}\n\n`), true);
    const [first] = blocks.update(text, true);
    expect(blocks.update(`${text}more`, true)[0]).toBe(first);
  });

  test("another text is read anew", () => {
    const blocks = new Blocks();
    blocks.update("# a\n\nb\n\nc\n\nd", true);
    expect(strip(blocks.update("x", false))).toEqual(strip(Lexer.lex("x")));
    blocks.update("# a\n\nb\n\nc\n\nd", true);
    expect(
      blocks
        .update("other\n\ntext", true)
        .map(({ raw }) => raw)
        .join(""),
    ).toBe("other\n\ntext");
  });

  test("old line ends are line ends", () => {
    const blocks = new Blocks();
    const text = "a\r\n\r\nb\r\n\r\nc\r\n\r\nd";
    for (let at = 0; at <= text.length; at += 1) blocks.update(text.slice(0, at), true);
    expect(blocks.update(text, true).filter(({ type }) => type === "paragraph")).toHaveLength(4);
  });
});

describe("what is half written", () => {
  test.each([
    ["a **bo", "a **bo**"],
    ["a **", "a "],
    ["a **bo*", "a **bo**"],
    ["a `co", "a `co`"],
    ["see [the do", "see the do"],
    ["see [the docs](https://exa", "see the docs"],
    ["text\n-", "text\n"],
    ["text\n==", "text\n"],
    ["text\n12.", "text\n"],
    ["text\n``", "text\n"],
    ["```js\nlet **a", "```js\nlet **a"],
    ["whole `a` **b** [c](d) e", "whole `a` **b** [c](d) e"],
    ["- [", ""],
    ["", ""],
  ])("%j", (text, mended) => expect(closeOpenMarks(text)).toBe(mended));
});

function strip(tokens: readonly unknown[]): unknown {
  return JSON.parse(JSON.stringify(tokens));
}

test("a very long text is drawn in parts, and nothing of it is lost or changes while it grows", async () => {
  const text = "some words ".repeat(4000).trim();
  const made = await html(text);
  const parts = (made: string) => made.split(/<span class="md-part">|<\/span>/).filter((part) => part !== "");
  expect(parts(made).length).toBeGreaterThan(5);
  expect(made.replaceAll(/<[^>]*>/g, "")).toBe(text);
  const before = parts(await html(text.slice(0, 30_000)));
  expect(parts(made).slice(0, before.length - 1)).toEqual(before.slice(0, -1));
  // A text without spaces cannot be parted.
  expect(await html("x".repeat(20_000))).toBe(`<p>${"x".repeat(20_000)}</p>`);
});
