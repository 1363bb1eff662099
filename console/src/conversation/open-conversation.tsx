// One conversation, live or at an earlier event.
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { type AgentMessage, type Approval, type Sendable, TurnwireError } from "turnwire";
import type { MsgJson } from "turnwire/message";
import { type UseSession, useSession } from "turnwire/react";
import { client } from "../client.ts";
import { useEscape } from "../escape.ts";
import { useStateAt } from "../inspect/state-at.ts";
import { useKeys } from "../keys.ts";
import { can, useAbout, useCan } from "../me.ts";
import { navigate, useRoute } from "../route.ts";
import { forkOf } from "../sessions/fork.ts";
import { refreshSessions } from "../sessions/store.ts";
import { Problem } from "../ui/state.tsx";
import { Announcer } from "./announcer.tsx";
import { Composer } from "./composer.tsx";
import { groupBySubAgentCall, groupReplaced } from "./content-items.ts";
import { type Answers, ConversationContext, type ConversationParts } from "./context.ts";
import { changesDecisions, type Decided, useDecisions } from "./decisions.ts";
import { DropFrame } from "./drop-frame.tsx";
import { Facts } from "./facts.tsx";
import { useFiles } from "./files.ts";
import { Header } from "./header.tsx";
import { visibleName } from "./json.ts";
import { LiveBar } from "./live-bar.tsx";
import { Message } from "./message.tsx";
import { post, setSender, useOutbox } from "./outbox.ts";
import { Outbox } from "./outbox.tsx";
import { Queue } from "./queue.tsx";
import { showCard } from "./review.ts";
import { Thread } from "./thread.tsx";

export function OpenConversation({ session }: { session: string }) {
  // After an error the conversation is opened again.
  const [attempt, setAttempt] = useState(0);
  return <Live key={attempt} session={session} reopen={() => setAttempt(attempt + 1)} />;
}

function Live({ session, reopen }: { session: string; reopen: () => void }) {
  const { at } = useRoute();
  const [retried, setRetried] = useState(0);
  const [decided, setDecided] = useState(0);
  const live = useSession(client, session, {
    onevent: (event) => {
      if (event.type === "SUPERSEDE") setRetried((n) => n + 1);
      if (changesDecisions(event)) setDecided((n) => n + 1);
    },
  });
  const decisions = useDecisions(session, live.ready, decided);
  const about = useAbout();
  const canChat = can(about, "chat");
  const replacedReplies = useReplaced(session, live.ready, retried, live.messages);
  const files = useFiles();
  const answers = useAnswers(live);
  const pending = useMemo(() => new Map(live.pending.map((asking) => [asking.tool_call.id, asking])), [live.pending]);
  const nested = useNested(live.messages, live.agents);
  const forkedAt = forkOf(live.session) === null ? undefined : live.session?.created_at;
  const [problem, setProblem] = useState<unknown>(null);
  const attempt = (work: Promise<unknown>) => void work.then(refreshSessions, setProblem);

  const first = live.pending.find(({ kind }) => kind === "confirm");
  const isRunning = live.status !== "idle";
  const isPast = at !== null;
  useKeys({
    Escape: isRunning && canChat && !isPast ? () => isHere() && attempt(live.stop()) : null,
    i: () => document.getElementById("composer")?.focus(),
  });
  useEscape(isPast, () => navigate({ at: null }));
  // Refresh the list now instead of at its next interval.
  useEffect(() => refreshSessions(), [live.status]);

  const last = live.messages.at(-1);
  const canRetry =
    last !== undefined &&
    live.status === "idle" &&
    canChat &&
    live.queued.length === 0 &&
    live.session?.agent !== "external" &&
    last.finished_reason !== null;
  const { retry } = live;
  const turns = useMemo(
    () =>
      canRetry
        ? {
            retry: (id: string) => attempt(retry(id)),
            edit: (id: string, text: string) => attempt(retry(id, text)),
          }
        : null,
    [canRetry, retry],
  );
  const inside = useMemo<ConversationParts>(
    () => ({ pending, nested, answers, decisions: decisions.byCall, turns, forkedAt }),
    [pending, nested, answers, decisions, turns, forkedAt],
  );
  const { send: sendMessage } = live;
  useEffect(
    () =>
      setSender(session, async (content, options) => {
        const sent = await sendMessage(content, options);
        refreshSessions();
        return sent;
      }),
    [session, sendMessage],
  );
  const send = useCallback((content: Sendable, text: string) => post(session, content, text), [session]);
  const known = useMemo(
    () => new Set([...live.messages.map(({ id }) => id), ...live.queued.map(({ message_id }) => message_id)]),
    [live.messages, live.queued],
  );
  const outgoing = useOutbox(session, known);
  const [refill, setRefill] = useState<{ text: string } | null>(null);
  const agent = live.session?.agent ?? "the agent";
  // A connection that is only lost keeps the page as it is, with all that is being edited.
  const isClosed = live.connection.state === "closed";
  const retryNow = useCallback(() => {
    refreshSessions();
    if (isClosed) reopen();
    else client.reconnect();
  }, [isClosed, reopen]);

  return (
    <DropFrame files={files}>
      <Header
        session={session}
        info={live.session}
        status={live.status}
        isExternal={first === undefined}
        connection={live.connection}
        at={at}
        retryNow={retryNow}
      />
      <Facts session={session} info={live.session} decided={decisions} />
      {live.error !== null && (
        <Problem
          error={
            isGone(live.error) ? new Error("Conversation not found. It was deleted, or the link is wrong.") : live.error
          }
        >
          <div className="actions">
            <button type="button" className="button" onClick={reopen}>
              Try again
            </button>
            <button type="button" className="button" onClick={() => navigate({ session: null, at: null, pane: null })}>
              New conversation
            </button>
          </div>
        </Problem>
      )}
      {problem !== null && <Problem error={problem} onClose={() => setProblem(null)} />}
      {isPast ? (
        <Past session={session} at={at} decided={decisions} />
      ) : (
        <ConversationContext value={inside}>
          <Thread messages={live.messages} replaced={replacedReplies} hasMore={live.hasMore} loadMore={live.loadMore}>
            {!live.ready && live.error === null && <p className="dim center">Loading</p>}
            {live.ready && live.messages.length === 0 && outgoing.length === 0 && (
              <p className="dim center">No messages yet.</p>
            )}
            <UnassignedReplies replies={nested.get("")} />
            <Queue queued={live.queued} cancel={canChat ? live.cancel : null} />
            <Outbox session={session} list={outgoing} edit={(text) => setRefill({ text })} />
          </Thread>
        </ConversationContext>
      )}
      <Announcer live={live} />
      {!isPast && live.pending.length > 0 && <WaitingBar pending={live.pending} />}
      {!isPast && live.streaming !== null && live.pending.length === 0 && (
        <LiveBar reply={live.streaming} pending={live.pending} stop={() => attempt(live.stop())} />
      )}
      {!isPast && live.ready && live.error === null && (
        <Composer
          refill={refill}
          closed={canChat ? null : READ_ONLY}
          draft={session}
          agent={agent}
          files={files}
          isRunning={isRunning}
          isAsking={live.status === "waiting"}
          send={send}
          {...(canChat && { stop: live.stop })}
        />
      )}
    </DropFrame>
  );
}

/** The messages of sub-agents by call; the same map while nothing in it changes, so that no message is rendered again. */
function useNested(messages: readonly MsgJson[], agents: readonly AgentMessage[]): ReadonlyMap<string, MsgJson[]> {
  const kept = useRef<ReadonlyMap<string, MsgJson[]>>(new Map());
  return useMemo(() => {
    if (agents.length > 0 || kept.current.size > 0) {
      const now = groupBySubAgentCall(messages, agents);
      if (!isEqual(now, kept.current)) kept.current = now;
    }
    return kept.current;
  }, [messages, agents]);
}

function isEqual(a: ReadonlyMap<string, MsgJson[]>, b: ReadonlyMap<string, MsgJson[]>): boolean {
  const isSame = (some: MsgJson[], others: MsgJson[] | undefined) =>
    some.length === others?.length && some.every((message, at) => message === others[at]);
  return a.size === b.size && [...a].every(([call, messages]) => isSame(messages, b.get(call)));
}

const READ_ONLY = "Your token can read, but not write";

/** Whether the focus is in the conversation, or nowhere: Escape in another pane stops no reply. */
function isHere(): boolean {
  const { activeElement } = document;
  return activeElement === null || activeElement === document.body || activeElement.closest(".conversation") !== null;
}

const isGone = (error: Error) => error instanceof TurnwireError && error.status === 404;

/** The decisions that can be made here. */
function useAnswers({ approve, deny, result }: UseSession): Answers {
  return useMemo(() => {
    const refreshAfter = async (work: Promise<void>) => {
      await work;
      refreshSessions();
    };
    return {
      allow: (asking, options) => refreshAfter(approve(asking, options)),
      deny: (asking, reason) => refreshAfter(deny(asking, reason)),
      sendResult: (asking, output, state) => refreshAfter(result(asking, { output, state })),
    };
  }, [approve, deny, result]);
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
    return groupReplaced(messages, [...all.slice(from).filter(isOver(shown)), ...since]);
    // Depends on which messages exist, not on their content.
  }, [all, ids]);
}

/** A reply that was open in the response and is gone now was not replaced, only not seen here yet. */
const isOver = (shown: ReadonlySet<string | undefined>) => (message: MsgJson) =>
  shown.has(message.id) || message.role === "assistant";

const NONE: MsgJson[] = [];

function Past({ session, at, decided }: { session: string; at: number; decided: Decided }) {
  const { state: found, last, error, retry } = useStateAt(session, at);
  const messages = found?.messages ?? NONE;
  const inside = useMemo<ConversationParts>(
    () => ({
      pending: new Map(),
      nested: groupBySubAgentCall(messages, found?.agents ?? []),
      answers: null,
      turns: null,
      decisions: new Map([...decided.byCall].filter(([, { seq }]) => seq <= at)),
    }),
    [messages, found, decided, at],
  );
  if (last !== null && at > last)
    return (
      <Problem error={new Error(`This conversation has ${last} events. There is no event ${at}.`)}>
        <div className="actions">
          <button type="button" className="button" onClick={() => navigate({ at: null })}>
            Show the latest
          </button>
        </div>
      </Problem>
    );
  return (
    <>
      <div className="past" role="status">
        <span>
          You are viewing the past: the conversation at event <b className="num">{at}</b>
        </span>
        <button type="button" className="link" onClick={() => navigate({ at: null })}>
          Back to live
        </button>
      </div>
      <ConversationContext value={inside}>
        <Thread messages={messages} replaced={new Map()} hasMore={false} loadMore={async () => {}}>
          {found === null && error === null && <p className="dim center">Loading</p>}
          {error !== null && (
            <Problem error={error}>
              <div className="actions">
                <button type="button" className="button" onClick={retry}>
                  Try again
                </button>
              </div>
            </Problem>
          )}
        </Thread>
      </ConversationContext>
      <div className="past past-end">
        <span>To send a message, go back to live.</span>
        <button type="button" className="button small" onClick={() => navigate({ at: null })}>
          Back to live
        </button>
      </div>
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
  const isQuestion = pending.some(({ kind }) => kind === "confirm");
  const canApprove = useCan("approve");
  const name = visibleName(pending[0]?.tool_call.name ?? "");
  const show = () => showCard(pending[next.current++ % pending.length]?.tool_call.id ?? "");
  return (
    <div className="waiting-bar">
      <span>
        {pending.length === 1 ? (
          <>
            <bdi>{name}</bdi> waits for {isQuestion ? (canApprove ? "you" : "a decision") : "a client"}
          </>
        ) : (
          `${pending.length} calls are waiting`
        )}
      </span>
      <button type="button" className="link" onClick={show}>
        {pending.length === 1 ? "Show" : "Show next"}
      </button>
    </div>
  );
}
