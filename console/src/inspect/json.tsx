// JSON to read and copy.
import { memo } from "react";
import { Copy } from "../ui/copy.tsx";

/** More is not displayed; copying takes everything. */
const LONG = 20_000;

const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function Coloured({ text }: { text: string }) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [token, string, colon] = match;
    parts.push(text.slice(from, match.index));
    const kind = string === undefined ? "value" : colon === undefined ? "string" : "key";
    parts.push(
      <span key={match.index} className={`json-${kind}`}>
        {string ?? token}
      </span>,
      colon,
    );
    from = match.index + token.length;
  }
  parts.push(text.slice(from));
  return <>{parts}</>;
}

/** A value as formatted JSON; text that is not JSON is shown as it is. */
export const Json = memo(function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? formatJson(value) : JSON.stringify(value, null, 2);
  return (
    <figure className="source" aria-label={label}>
      <figcaption>
        <span>{label}</span>
        <Copy text={text} label={`Copy ${label}`} />
      </figcaption>
      <pre tabIndex={0}>
        <Coloured text={text.slice(0, LONG)} />
        {text.length > LONG && <em>… {text.length - LONG} more characters, included when you copy</em>}
      </pre>
    </figure>
  );
});

function formatJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
