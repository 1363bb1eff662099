// The reply for who does not see it: whole sentences, politely, as they are finished.
import { useEffect, useRef, useState } from "react";
import type { SessionState } from "turnwire";
import type { MsgJson } from "turnwire/message";

export function Announcer({
  live: { streaming, messages, pending },
}: {
  live: Pick<SessionState, "streaming" | "messages" | "pending">;
}) {
  const [said, setSaid] = useState("");
  const at = useRef<{ id: string | undefined; from: number; asked: number }>({ id: undefined, from: 0, asked: 0 });
  useEffect(() => {
    const { current } = at;
    if (pending.length > current.asked) setSaid(`${pending.at(-1)?.tool_call.name} waits for your answer`);
    current.asked = pending.length;
    if (streaming && streaming.id !== current.id) {
      at.current = { id: streaming.id, from: 0, asked: pending.length };
      setSaid(`${streaming.name || "The agent"} is replying`);
      return;
    }
    const message = streaming ?? messages.find(({ id }) => id !== undefined && id === current.id);
    if (!message) return;
    const next = sentences(text(message), current.from, streaming === null);
    if (next === null) return;
    current.from = next.to;
    setSaid(next.text);
  }, [streaming, messages, pending]);
  return (
    <div className="visually-hidden" role="status" aria-live="polite" aria-label="Reply">
      {said}
    </div>
  );
}

/** What is new and finished behind `from`: up to the last end of a sentence, or all of it at the end. */
export function sentences(text: string, from: number, isOver: boolean): { text: string; to: number } | null {
  const rest = text.slice(from);
  const end = isOver
    ? rest.length
    : Math.max(
        ...[". ", ".\n", "! ", "? ", ":\n", "\n\n"].map((mark) =>
          rest.lastIndexOf(mark) < 0 ? 0 : rest.lastIndexOf(mark) + mark.length,
        ),
      );
  const said = rest.slice(0, end).trim();
  return said === "" ? null : { text: said, to: from + end };
}

function text({ content }: MsgJson): string {
  return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
}
