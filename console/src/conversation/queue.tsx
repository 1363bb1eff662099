// Queued messages: sent while a reply runs.
import { useState } from "react";
import type { SessionState } from "turnwire";
import { explain } from "../client.ts";
import { State } from "../ui/state.tsx";

export function Queue({
  queued,
  cancel,
}: {
  queued: SessionState["queued"];
  cancel: ((id: string) => Promise<void>) | null;
}) {
  const [error, setError] = useState<unknown>(null);
  if (queued.length === 0) return null;
  return (
    <ul className="queue" aria-label="Queued messages">
      {queued.map(({ message_id, content }) => (
        <li key={message_id}>
          <State tone="wait">Queued</State>
          <span className="queue-text">{textOf(content)}</span>
          {cancel !== null && (
            <button type="button" className="link" onClick={() => void cancel(message_id).catch(setError)}>
              Remove
            </button>
          )}
        </li>
      ))}
      {error !== null && <li role="alert">{explain(error).message}</li>}
    </ul>
  );
}

function textOf(content: readonly { type: string }[]): string {
  return content
    .map((block: { type: string; text?: string; name?: string }) => block.text ?? block.name ?? block.type)
    .join(" ");
}
