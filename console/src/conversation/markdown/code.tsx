// Code with its language, colours and a copy button; and math. Colours and math load when they are first needed.
import { memo, useEffect, useState } from "react";
import { Copy } from "../../ui/copy.tsx";

type Highlight = typeof import("./highlight.ts").highlight;
let highlight: Highlight | null = null;

/** Longer code gets its colours when it is complete. */
const LONG = 2000;

interface CodeProps {
  text: string;
  lang?: string;
  growing?: boolean;
}

export const Code = memo(function Code({ text, lang = "", growing = false }: CodeProps) {
  const name = lang.split(/\s/, 1)[0] ?? "";
  const [, setLoaded] = useState(highlight !== null);
  useEffect(() => {
    if (highlight !== null || name === "") return;
    let isGone = false;
    import("./highlight.ts").then(
      (found) => {
        highlight = found.highlight;
        if (!isGone) setLoaded(true);
      },
      () => {},
    );
    return () => void (isGone = true);
  }, [name]);
  const isPlain = name === "" || (growing && text.length > LONG);
  const pieces = isPlain ? null : (highlight?.(text, name) ?? null);
  return (
    <figure className="code">
      <figcaption>
        <span>{name || "text"}</span>
        <Copy text={text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} aria-label={name ? `Code, ${name}` : "Code"}>
        <code>
          {pieces === null
            ? text
            : pieces.map(({ text, kind }, at) =>
                kind === "" ? (
                  text
                ) : (
                  <span key={at} className={`hl-${kind}`}>
                    {text}
                  </span>
                ),
              )}
        </code>
      </pre>
    </figure>
  );
});

type TexComponent = typeof import("./tex.tsx").Tex;
let Tex: TexComponent | null = null;

/** Math, as it was written until it can be set. */
export function MathText({ text, block }: { text: string; block: boolean }) {
  const [, setLoaded] = useState(Tex !== null);
  useEffect(() => {
    if (Tex !== null) return;
    let isGone = false;
    import("./tex.tsx").then(
      (found) => {
        Tex = found.Tex;
        if (!isGone) setLoaded(true);
      },
      () => {},
    );
    return () => void (isGone = true);
  }, []);
  return Tex === null ? <code>{text}</code> : <Tex text={text} block={block} />;
}
