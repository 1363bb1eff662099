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
  const at = useRef<Place>({ id: undefined, from: 0, seen: 0, asked: 0 });
  useEffect(() => {
    const { current } = at;
    if (pending.length > current.asked) setSaid(`${pending.at(-1)?.tool_call.name} waits for your answer`);
    current.asked = pending.length;
    if (streaming && streaming.id !== current.id) {
      at.current = { id: streaming.id, from: 0, seen: 0, asked: pending.length };
      setSaid(`${streaming.name || "The agent"} is replying`);
      return;
    }
    const message = streaming ?? messages.find(({ id }) => id !== undefined && id === current.id);
    if (!message) return;
    const all = text(message);
    const next = sentences(all, current.from, streaming === null, current.seen);
    current.seen = all.length;
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

interface Place {
  id: string | undefined;
  /** How much of the text was announced, and up to where no sentence ends. */
  from: number;
  seen: number;
  asked: number;
}

/** What is new and finished behind `from`: up to the last end of a sentence, or all of it at the end. No sentence ends in `from..seen`. */
export function sentences(
  text: string,
  from: number,
  isOver: boolean,
  seen = from,
): { text: string; to: number } | null {
  // The second character of a mark may be new.
  const start = Math.max(from, seen - 1);
  const fresh = text.slice(start);
  const ends = [". ", ".\n", "! ", "? ", ":\n", "\n\n"].map((mark) => fresh.lastIndexOf(mark));
  const last = Math.max(...ends);
  const end = isOver ? text.length : last < 0 ? from : start + last + 2;
  const said = text.slice(from, end).trim();
  return said === "" ? null : { text: said, to: end };
}

function text({ content }: MsgJson): string {
  return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
}
