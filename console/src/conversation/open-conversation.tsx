// One conversation, live or at an earlier event.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type Approval, type Sendable, TurnwireError } from "turnwire";
import type { MsgJson } from "turnwire/message";
import { type UseSession, useSession } from "turnwire/react";
import { client } from "../client.ts";
import { useStateAt } from "../inspect/state-at.ts";
import { useKeys } from "../keys.ts";
import { go, useRoute } from "../route.ts";
import { refreshSessions } from "../sessions/store.ts";
import { Problem } from "../ui/state.tsx";
import { Announcer } from "./announcer.tsx";
import { Composer } from "./composer.tsx";
import { groupBySubAgentCall, replaced } from "./content-items.ts";
import { type Answers, ConversationContext, type ConversationParts } from "./context.ts";
import { deny } from "./deny.ts";
import { DropFrame } from "./drop-frame.tsx";
import { useFiles } from "./files.ts";
import { Header } from "./header.tsx";
import { Message } from "./message.tsx";
import { Queue } from "./queue.tsx";
import { Thread } from "./thread.tsx";

export function OpenConversation({ session }: { session: string }) {
  // After an error the conversation is opened again.
  const [attempt, setAttempt] = useState(0);
  return <Live key={attempt} session={session} again={() => setAttempt(attempt + 1)} />;
}

function Live({ session, again }: { session: string; again: () => void }) {
  const { at } = useRoute();
  const [retried, setRetried] = useState(0);
  const live = useSession(client, session, {
    onevent: ({ type }) => type === "SUPERSEDE" && setRetried((n) => n + 1),
  });
  const old = useReplaced(session, live.ready, retried, live.messages);
  const files = useFiles();
  const answers = useAnswers(session, live);
  const pending = useMemo(() => new Map(live.pending.map((asking) => [asking.tool_call.id, asking])), [live.pending]);
  const nested = useMemo(() => groupBySubAgentCall(live.messages, live.agents), [live.messages, live.agents]);
  const inside = useMemo<ConversationParts>(() => ({ pending, nested, answers }), [pending, nested, answers]);
  const [problem, setProblem] = useState<unknown>(null);
  const attempt = (work: Promise<unknown>) => void work.then(refreshSessions, setProblem);

  const first = live.pending.find(({ kind }) => kind === "confirm");
  const isRunning = live.status !== "idle";
  const isPast = at !== null;
  useKeys({
    a: first && !isPast ? () => attempt(answers.allow(first, {})) : null,
    d: first && !isPast ? () => attempt(answers.deny(first, "")) : null,
    Escape: isRunning ? () => attempt(live.stop()) : isPast ? () => go({ at: null }) : null,
    i: () => document.getElementById("composer")?.focus(),
  });
  // Refresh the list now instead of at its next interval.
  useEffect(() => refreshSessions(), [live.status]);

  const last = live.messages.at(-1);
  const canRetry =
    last !== undefined &&
    live.status === "idle" &&
    live.queued.length === 0 &&
    live.session?.agent !== "external" &&
    last.finished_reason !== null;
  const retry = useCallback(() => last?.id !== undefined && attempt(live.retry(last.id)), [last?.id, live.retry]);
  const { send: say } = live;
  const send = useCallback(
    async (content: Sendable) => {
      await say(content);
      refreshSessions();
    },
    [say],
  );
  const agent = live.session?.agent ?? "the agent";

  return (
    <DropFrame files={files}>
      <Header
        session={session}
        info={live.session}
        status={live.status}
        isExternal={first === undefined}
        connection={live.connection}
      />
      {live.error !== null && (
        <Problem
          error={
            isGone(live.error) ? new Error("Conversation not found. It was deleted, or the link is wrong.") : live.error
          }
        >
          <div className="actions">
            <button type="button" className="button" onClick={again}>
              Try again
            </button>
            <button type="button" className="button" onClick={() => go({ session: null, at: null, pane: null })}>
              New conversation
            </button>
          </div>
        </Problem>
      )}
      {problem !== null && <Problem error={problem} onClose={() => setProblem(null)} />}
      {isPast ? (
        <Past session={session} at={at} />
      ) : (
        <ConversationContext value={inside}>
          <Thread
            messages={live.messages}
            replaced={old}
            hasMore={live.hasMore}
            loadMore={live.loadMore}
            retry={canRetry ? retry : null}
          >
            {!live.ready && live.error === null && <p className="dim center">loading</p>}
            {live.ready && live.messages.length === 0 && <p className="dim center">No messages yet.</p>}
            <UnassignedReplies replies={nested.get("")} />
            <Queue queued={live.queued} cancel={live.cancel} />
          </Thread>
        </ConversationContext>
      )}
      <Announcer live={live} />
      {!isPast && live.pending.length > 0 && <WaitingBar pending={live.pending} />}
      {!isPast && live.ready && live.error === null && (
        <Composer
          draft={session}
          agent={agent}
          files={files}
          isRunning={isRunning}
          isAsking={live.status === "waiting"}
          send={send}
          stop={live.stop}
        />
      )}
    </DropFrame>
  );
}

const isGone = (error: Error) => error instanceof TurnwireError && error.status === 404;

/** The decisions that can be made here. */
function useAnswers(session: string, { approve, result }: UseSession): Answers {
  return useMemo(() => {
    const then = async (work: Promise<void>) => {
      await work;
      refreshSessions();
    };
    return {
      allow: (asking, options) => then(approve(asking, options)),
      deny: (asking, reason) => then(deny(session, asking, reason)),
      give: (asking, output, state) => then(result(asking, { output, state })),
    };
  }, [session, approve, result]);
}

/** Replies that a retry replaced. The history does not contain them, so they are requested. */
function useReplaced(
  session: string,
  isReady: boolean,
  retried: number,
  messages: readonly MsgJson[],
): ReadonlyMap<string, MsgJson[]> {
  const [all, setAll] = useState<readonly MsgJson[]>([]);
  useEffect(() => {
    if (!isReady) return;
    const stop = new AbortController();
    client
      .session(session)
      .history({ superseded: true, limit: 100, signal: stop.signal })
      .then(
        ({ messages }) => setAll(messages),
        () => {},
      );
    return () => stop.abort();
  }, [session, isReady, retried]);
  const ids = messages.map(({ id }) => id).join(" ");
  return useMemo(() => {
    const known = new Set(all.map(({ id }) => id));
    const shown = new Set(messages.map(({ id }) => id));
    const last = messages.findLastIndex(({ id }) => known.has(id));
    if (last < 0) return new Map();
    // What stood before the first shown message belongs to a page that is not loaded.
    const from = Math.max(
      0,
      all.findIndex(({ id }) => id === messages[0]?.id),
    );
    const since = messages.slice(last + 1);
    return replaced(messages, [...all.slice(from).filter(isOver(shown)), ...since]);
    // Depends on which messages exist, not on their content.
  }, [all, ids]);
}

/** A reply that was open in the response and is gone now was not replaced, only not seen here yet. */
const isOver = (shown: ReadonlySet<string | undefined>) => (message: MsgJson) =>
  shown.has(message.id) || message.role === "assistant";

const NONE: MsgJson[] = [];

function Past({ session, at }: { session: string; at: number }) {
  const found = useStateAt(session, at);
  const messages = found?.messages ?? NONE;
  const inside = useMemo<ConversationParts>(
    () => ({ pending: new Map(), nested: groupBySubAgentCall(messages, found?.agents ?? []), answers: null }),
    [messages, found],
  );
  return (
    <>
      <div className="past" role="status">
        <span>
          state at event <b className="num">{at}</b>
        </span>
        <button type="button" className="link" onClick={() => go({ at: null })}>
          back to live
        </button>
      </div>
      <ConversationContext value={inside}>
        <Thread messages={messages} replaced={new Map()} hasMore={false} loadMore={async () => {}} retry={null}>
          {found === null && <p className="dim center">loading</p>}
        </Thread>
      </ConversationContext>
    </>
  );
}

/** Replies of sub-agents whose tool call is unknown. */
function UnassignedReplies({ replies }: { replies: MsgJson[] | undefined }) {
  if (!replies || replies.length === 0) return null;
  return (
    <details className="structured">
      <summary>{replies.length === 1 ? "1 reply of a sub-agent" : `${replies.length} replies of sub-agents`}</summary>
      {replies.map((message) => (
        <Message key={message.id} message={message} isNested />
      ))}
    </details>
  );
}

function WaitingBar({ pending }: { pending: readonly Approval[] }) {
  const next = useRef(0);
  const isForMe = pending.some(({ kind }) => kind === "confirm");
  const show = () => {
    const { tool_call } = pending[next.current++ % pending.length] ?? {};
    const card = document.querySelector<HTMLElement>(`[data-call="${CSS.escape(tool_call?.id ?? "")}"]`);
    card?.scrollIntoView({ block: "center" });
    card?.querySelector<HTMLElement>("button.main")?.focus();
  };
  return (
    <div className="waiting-bar">
      <span>
        {pending.length === 1
          ? `${pending[0]?.tool_call.name} waits for ${isForMe ? "you" : "a client"}`
          : `${pending.length} calls are waiting`}
      </span>
      <button type="button" className="link" onClick={show}>
        {pending.length === 1 ? "show" : "show next"}
      </button>
      {isForMe && (
        <span className="dim keys">
          <kbd>a</kbd> allow <kbd>d</kbd> deny
        </span>
      )}
    </div>
  );
}
