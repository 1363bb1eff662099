// Two answers, or two conversations with a common beginning, side by side with their differences marked.
import { useEffect, useMemo, useState } from "react";
import type { MsgJson } from "turnwire/message";
import { client } from "../client.ts";
import { between, duration } from "../time.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Problem } from "../ui/state.tsx";
import { pretty } from "./json.ts";
import { diff, type Part } from "./word-diff.ts";

/** All that a message says, as text. */
export function plainText({ content }: Pick<MsgJson, "content">): string {
  return content
    .map((block) => {
      switch (block.type) {
        case "text":
          return block.text;
        case "thinking":
          return "";
        case "tool_call":
          return `→ ${block.name} ${pretty(block.input)}`;
        case "tool_result":
          return typeof block.output === "string"
            ? `← ${block.output}`
            : `← ${block.output.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join(" ")}`;
        default:
          return `[${block.type}]`;
      }
    })
    .filter((text) => text !== "")
    .join("\n\n");
}

export function CompareReplies({ before, now, onClose }: { before: MsgJson; now: MsgJson; onClose: () => void }) {
  return (
    <Dialog title="Compare two replies" isLarge onClose={onClose}>
      {plainText(before) === plainText(now) && <p className="dim">There is no difference.</p>}
      <div className="compare" role="table" aria-label="Two replies">
        <div role="row">
          <strong role="columnheader">Earlier reply{durationOf(before)}</strong>
          <strong role="columnheader">This reply{durationOf(now)}</strong>
        </div>
        <Pair before={before} now={now} />
      </div>
    </Dialog>
  );
}

const durationOf = (message: MsgJson): string => {
  const ms = between(message.created_at, message.finished_at);
  return ms === null ? "" : `, ${duration(ms)}`;
};

function Pair({ before, now }: { before: MsgJson | undefined; now: MsgJson | undefined }) {
  const parts = useMemo(
    () => diff(before === undefined ? "" : plainText(before), now === undefined ? "" : plainText(now)),
    [before, now],
  );
  return (
    <div role="row">
      <Side parts={parts} skip="added" name={before?.name} />
      <Side parts={parts} skip="removed" name={now?.name} />
    </div>
  );
}

function Side({ parts, skip, name }: { parts: readonly Part[]; skip: Part["kind"]; name: string | undefined }) {
  return (
    <div role="cell" className="compare-cell">
      {name !== undefined && <bdi className="dim">{name}</bdi>}
      <p className="plain">
        {parts.map(({ text, kind }, at) =>
          kind === skip ? null : kind === "same" ? (
            text
          ) : kind === "added" ? (
            <ins key={at}>{text}</ins>
          ) : (
            <del key={at}>{text}</del>
          ),
        )}
      </p>
    </div>
  );
}

/** A conversation to compare, and the head of its column. */
export interface Compared {
  id: string;
  title: string;
}

/** The history of a session, loaded from its end. */
class Pages {
  messages: MsgJson[] = [];
  ids = new Set<string | undefined>();
  isWhole = false;
  #before: string | null = null;

  constructor(
    readonly session: string,
    readonly signal: AbortSignal,
  ) {}

  /** Loads the page before. */
  async load(): Promise<void> {
    if (this.isWhole) return;
    const { messages, next_before } = await client.session(this.session).history({
      limit: PAGE,
      signal: this.signal,
      ...(this.#before !== null && { before: this.#before }),
    });
    this.messages.unshift(...messages);
    for (const { id } of messages) this.ids.add(id);
    this.#before = next_before;
    this.isWhole = next_before === null;
  }
}

const PAGE = 200;

/** Both histories back to a message that is in both, or to their beginnings: from there on they can be aligned. */
async function loadBoth(first: string, second: string, signal: AbortSignal) {
  const [a, b] = [new Pages(first, signal), new Pages(second, signal)];
  for (;;) {
    await Promise.all([a.load(), b.load()]);
    const common = a.messages.findIndex(({ id }) => b.ids.has(id));
    const isWhole = a.isWhole && b.isWhole;
    if (common < 0 && !isWhole) continue;
    const from = common < 0 || isWhole ? 0 : b.messages.findIndex(({ id }) => id === a.messages[common]?.id);
    return { a: isWhole ? a.messages : a.messages.slice(common), b: b.messages.slice(from), isWhole };
  }
}

/** Two conversations: what they share is said in one line. */
export function CompareSessions({ before, now, onClose }: { before: Compared; now: Compared; onClose: () => void }) {
  const [found, setFound] = useState<Awaited<ReturnType<typeof loadBoth>> | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const stop = new AbortController();
    loadBoth(before.id, now.id, stop.signal).then(setFound, (why: unknown) => stop.signal.aborted || setError(why));
    return () => stop.abort();
  }, [before.id, now.id]);
  const pairs = useMemo(() => (found === null ? null : alignMessages(found.a, found.b)), [found]);
  return (
    <Dialog title="Compare two conversations" isLarge onClose={onClose}>
      {error !== null && <Problem error={error} />}
      {pairs === null ? (
        error === null && <p className="dim">Loading</p>
      ) : (
        <>
          <p className="dim">
            {found?.isWhole === false
              ? "The messages before these are the same in both."
              : `${pairs.shared === 1 ? "1 message is" : `${pairs.shared} messages are`} the same in both.`}
            {pairs.rows.length === 0 && " There is no difference."}
          </p>
          <div className="compare" role="table" aria-label="Two conversations">
            <div role="row">
              <strong role="columnheader">
                <bdi>{before.title}</bdi>
              </strong>
              <strong role="columnheader">
                <bdi>{now.title}</bdi>
              </strong>
            </div>
            {pairs.rows.map(([before, now], at) => (
              <Pair key={at} before={before} now={now} />
            ))}
          </div>
        </>
      )}
    </Dialog>
  );
}

/** The messages after the common beginning, by their order. */
export function alignMessages(
  a: readonly MsgJson[],
  b: readonly MsgJson[],
): { shared: number; rows: [MsgJson | undefined, MsgJson | undefined][] } {
  let shared = 0;
  while (shared < Math.min(a.length, b.length) && plainText(a[shared] as MsgJson) === plainText(b[shared] as MsgJson))
    shared += 1;
  const rows: [MsgJson | undefined, MsgJson | undefined][] = [];
  for (let at = shared; at < Math.max(a.length, b.length); at++) rows.push([a[at], b[at]]);
  return { shared, rows };
}
