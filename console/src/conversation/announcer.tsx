// The reply for who does not see it: whole sentences, politely, as they are finished.
import { useEffect, useRef, useState } from "react";
import type { SessionState } from "turnwire";
import type { MsgJson } from "turnwire/message";

export function Announcer({
  live: { streaming, messages, pending },
}: {
  live: Pick<SessionState, "streaming" | "messages" | "pending">;
}) {
  const [announcement, setAnnouncement] = useState("");
  const at = useRef<Place>({ id: undefined, from: 0, seen: 0, pendingCount: 0 });
  useEffect(() => {
    const { current } = at;
    if (pending.length > current.pendingCount)
      setAnnouncement(`${pending.at(-1)?.tool_call.name} waits for your answer`);
    current.pendingCount = pending.length;
    if (streaming && streaming.id !== current.id) {
      at.current = { id: streaming.id, from: 0, seen: 0, pendingCount: pending.length };
      setAnnouncement(`${streaming.name || "The agent"} is replying`);
      return;
    }
    const message = streaming ?? messages.find(({ id }) => id !== undefined && id === current.id);
    if (!message) return;
    const all = textOf(message);
    const next = sentences(all, current.from, streaming === null, current.seen);
    current.seen = all.length;
    if (next === null) return;
    current.from = next.to;
    setAnnouncement(next.text);
  }, [streaming, messages, pending]);
  return (
    <div className="visually-hidden" role="status" aria-live="polite" aria-label="Reply">
      {announcement}
    </div>
  );
}

interface Place {
  id: string | undefined;
  /** How much of the text was announced, and up to where no sentence ends. */
  from: number;
  seen: number;
  pendingCount: number;
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
  const sentence = text.slice(from, end).trim();
  return sentence === "" ? null : { text: sentence, to: end };
}

function textOf({ content }: MsgJson): string {
  return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
}
