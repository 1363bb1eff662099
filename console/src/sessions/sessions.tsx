// The left pane: pending approvals and all conversations.
import { memo, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Outcome, SessionInfo } from "turnwire";
import type { Compared } from "../conversation/compare.tsx";
import { useKeys } from "../keys.ts";
import { useAbout, useCan } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { setWaiting } from "../page-title.ts";
import { formatRoute, navigate, useRoute } from "../route.ts";
import { read, write } from "../storage.ts";
import { ago, exactTime, useNow } from "../time.ts";
import { Icon } from "../ui/icon.tsx";
import { LoadMore } from "../ui/load-more.tsx";
import { Menu } from "../ui/menu.tsx";
import { Problem, Shape } from "../ui/state.tsx";
import { CompareSessions, useSessionActions } from "./actions.tsx";
import { deleteLater, dismissError, undoDeletion, useDeletion } from "./deletion.ts";
import { useHit } from "./excerpts.ts";
import { Footer } from "./footer.tsx";
import { rowsOf } from "./groups.ts";
import { VirtualList } from "./list.tsx";
import "./sessions.css";
import { PendingApprovals } from "./pending-approvals.tsx";
import { togglePin, usePins } from "./pins.ts";
import { statusLabel } from "./status.ts";
import { filterByStatus, refreshSessions, search, showMore, useSessions } from "./store.ts";

interface Props {
  selected: string | null;
  /** Whether it is the only pane shown. */
  isMain: boolean;
  /** Null if these credentials may only read. */
  onNew: (() => void) | null;
}

export function Sessions({ selected, isMain, onNew }: Props) {
  const { sessions, waiting, hasMore, query, isLoaded, error, isLocked } = useSessions();
  const { agents } = useAbout();
  const now = useNow(30_000);
  const pins = usePins();
  const deletion = useDeletion();
  const [filter, setFilter] = useState<Filter>({ status: "", agent: "" });
  const [marked, setMarked] = useState<ReadonlySet<string> | null>(null);
  const [compared, setCompared] = useState<readonly [Compared, Compared] | null>(null);
  const canChat = useCan("chat");
  const rows = useMemo(() => {
    const { status, agent } = filter;
    const shown = sessions.filter(
      (info) =>
        !deletion.hidden.has(info.id) &&
        (agent === "" || info.agent === agent) &&
        (!isOutcome(status) || info.outcome === status),
    );
    return rowsOf(shown, query === "" ? pins : NO_PINS, now);
  }, [sessions, filter, deletion.hidden, pins, query, now]);
  const canApprove = useCan("approve");
  const count = canApprove ? waiting.reduce((sum, { confirm }) => sum + confirm.length, 0) : 0;
  useEffect(() => setWaiting(count), [count]);
  const mark = useCallback((id: string) => {
    setMarked((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  }, []);
  const change = (to: Filter) => {
    setFilter(to);
    if (to.status !== filter.status) filterByStatus(isOutcome(to.status) || to.status === "" ? null : to.status);
  };
  return (
    // A role instead of another element: React would rebuild it and lose the search words.
    <div className="sessions" role={isMain ? "main" : "complementary"} aria-label="Conversations">
      <div className="head">
        <h1 className="name">
          <a href={formatRoute({ session: null, at: null, pane: null })}>Turnwire</a>
        </h1>
        <span className="grow" />
        {onNew !== null && (
          <button
            type="button"
            className="icon-button"
            aria-label="New conversation"
            title="New conversation (n)"
            onClick={onNew}
          >
            <Icon name="plus" />
          </button>
        )}
      </div>
      <Search />
      <PendingApprovals waiting={waiting} />
      <div className="sessions-list">
        {/* An open conversation shows the state of its connection itself. */}
        {error !== null && !isLocked && selected === null && (
          <Problem error={error}>
            <div className="actions">
              <button type="button" className="button small" onClick={refreshSessions}>
                Retry now
              </button>
            </div>
          </Problem>
        )}
        {deletion.error !== null && <Problem error={deletion.error} onClose={dismissError} />}
        {(sessions.length > 0 || filter.status !== "") && (
          <div className="list-tools">
            <select
              aria-label="Status"
              value={filter.status}
              onChange={({ target }) => change({ ...filter, status: target.value as Filter["status"] })}
            >
              <option value="">All statuses</option>
              {STATUSES.map((status) => (
                <option key={status} value={status}>
                  {status.charAt(0).toUpperCase() + status.slice(1)}
                </option>
              ))}
            </select>
            {agents !== null && agents.length > 1 && (
              <select
                aria-label="Agent"
                value={filter.agent}
                onChange={({ target }) => change({ ...filter, agent: target.value })}
              >
                <option value="">All agents</option>
                {agents.map(({ name }) => (
                  <option key={name} value={name}>
                    {name}
                  </option>
                ))}
              </select>
            )}
            <span className="grow" />
            <button type="button" className="link" onClick={() => setMarked(marked === null ? new Set() : null)}>
              {marked === null ? "Select" : "Done"}
            </button>
          </div>
        )}
        {marked !== null && (
          <div className="list-tools">
            {canChat && (
              <button
                type="button"
                className="button small bad"
                disabled={marked.size === 0}
                onClick={() => {
                  if (selected !== null && marked.has(selected)) navigate({ session: null, at: null, pane: null });
                  deleteLater([...marked]);
                  setMarked(null);
                }}
              >
                Delete{marked.size > 0 && ` ${marked.size}`}
              </button>
            )}
            <button
              type="button"
              className="button small"
              disabled={marked.size !== 2}
              title="Select two conversations to compare them"
              onClick={() => {
                const [first, second] = [...marked].map((id) => ({
                  id,
                  title: sessions.find((info) => info.id === id)?.title || `Untitled, ${id.slice(0, 12)}`,
                }));
                if (first && second) setCompared([first, second]);
              }}
            >
              Compare
            </button>
          </div>
        )}
        <nav aria-label="All conversations">
          <VirtualList
            rows={rows}
            hasExcerpts={query !== ""}
            render={(info) => (
              <Row
                info={info}
                isSelected={info.id === selected}
                now={now}
                query={query}
                isPinned={pins.has(info.id)}
                isMarked={marked === null ? null : marked.has(info.id)}
                mark={mark}
              />
            )}
          />
        </nav>
        {isLoaded && rows.length === 0 && (
          <p className="dim center">
            {query !== ""
              ? `No conversation contains “${query}”.`
              : sessions.length > 0 || filter.status !== ""
                ? "No conversation matches these filters."
                : "No conversations yet."}
          </p>
        )}
        {hasMore && <LoadMore load={showMore} name="more conversations" className="center" inside=".sessions-list" />}
      </div>
      {deletion.undoable.size > 0 && (
        <div className="undo" role="status">
          <span>
            {deletion.undoable.size === 1
              ? "1 conversation deleted"
              : `${deletion.undoable.size} conversations deleted`}
          </span>
          <button type="button" className="link" onClick={undoDeletion}>
            Undo
          </button>
        </div>
      )}
      <Footer />
      <Resizer />
      {compared !== null && (
        <CompareSessions before={compared[0]} now={compared[1]} onClose={() => setCompared(null)}>
          {(problem) => problem}
        </CompareSessions>
      )}
    </div>
  );
}

const STATUSES = ["running", "waiting", "idle", "failed", "stopped", "expired"] as const;
interface Filter {
  status: (typeof STATUSES)[number] | "";
  agent: string;
}
const isOutcome = (status: Filter["status"]): status is Outcome => ["failed", "stopped", "expired"].includes(status);
const NO_PINS: ReadonlySet<string> = new Set();

function Search() {
  const [text, setText] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const isFirst = useRef(true);
  useKeys({ "/": () => field.current?.focus() });
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    const timer = setTimeout(() => search(text), 20);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div className="search" role="search">
      <Icon name="search" size={14} />
      <input
        ref={field}
        type="search"
        aria-label="Search conversations"
        placeholder="Search"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          event.stopPropagation();
          if (text === "") field.current?.blur();
          setText("");
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

interface RowProps {
  info: SessionInfo;
  isSelected: boolean;
  now: number;
  query: string;
  isPinned: boolean;
  /** Null while nothing can be marked. */
  isMarked: boolean | null;
  mark: (id: string) => void;
}

const Row = memo(function Row({ info, isSelected, now, query, isPinned, isMarked, mark }: RowProps) {
  const { pane } = useRoute();
  const { currency } = useAbout();
  const { entries, dialogs } = useSessionActions(info.id, info.title, info);
  const hit = useHit(info.id, info.last_seq, query);
  const isExternal = info.pending.length > 0 && info.pending.every(({ confirm }) => confirm.length === 0);
  const canApprove = useCan("approve");
  const { tone, word } = statusLabel(
    info.status,
    isExternal ? "client" : canApprove ? "you" : "decision",
    info.outcome,
  );
  const tokens = info.usage.input_tokens + info.usage.output_tokens;
  const at = info.updated_at;
  const to = { session: info.id, at: null, ...(hit !== null && { message: hit.message_id }) };
  return (
    <div className="row" data-selected={isSelected}>
      {isMarked !== null && (
        <input
          type="checkbox"
          checked={isMarked}
          aria-label={`Select ${info.title || info.id}`}
          onChange={() => mark(info.id)}
        />
      )}
      <a
        href={formatRoute({ pane, ...to })}
        aria-current={isSelected ? "page" : undefined}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          navigate(to);
        }}
      >
        <Shape tone={tone} />
        <span className="row-title">
          {isPinned && <Icon name="pin" size={12} />}
          {info.title || <span className="dim">Untitled · {info.id.slice(0, 8)}</span>}
        </span>
        <time dateTime={at} title={exactTime(at)}>
          {ago(at, now)}
        </time>
        <span className="row-about" data-tone={tone}>
          {word}
          {info.queued.length > 0 && ` · ${info.queued.length} queued`}
          {tokens > 0 && <span className="dim num"> · {count(tokens)} tokens</span>}
          {info.cost !== undefined && <span className="dim num"> · {formatMoney(info.cost, currency)}</span>}
          <span className="dim"> · {info.agent}</span>
        </span>
        {hit !== null && (
          <span className="row-hit" title={hit.excerpt}>
            <Excerpt text={hit.excerpt} query={query} />
          </span>
        )}
      </a>
      <Menu
        label={`Menu of ${info.title || "this conversation"}`}
        entries={[{ name: isPinned ? "Unpin" : "Pin", icon: "pin", run: () => togglePin(info.id) }, ...entries]}
      />
      {dialogs}
    </div>
  );
});

/** The excerpt with the words of the search marked. */
function Excerpt({ text, query }: { text: string; query: string }) {
  const words = query.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== "");
  if (words.length === 0) return text;
  const pattern = new RegExp(`(${words.map((word) => word.replaceAll(/[^\p{L}\p{N}]/gu, "")).join("|")})`, "giu");
  return text.split(pattern).map((part, at) => (at % 2 === 1 ? <mark key={at}>{part}</mark> : part));
}

const WIDTH = "turnwire.list-width";

/** The edge of the list: dragged, or moved with the arrow keys. */
function Resizer() {
  const [now, setNow] = useState(() => Number(read(WIDTH)) || 260);
  const set = (width: number) => {
    const to = Math.round(Math.min(520, Math.max(200, width)));
    setNow(to);
    document.documentElement.style.setProperty("--list", `${to}px`);
    write(WIDTH, String(to));
  };
  useEffect(() => {
    const kept = Number(read(WIDTH));
    if (kept > 0) document.documentElement.style.setProperty("--list", `${kept}px`);
  }, []);
  const width = () => document.querySelector(".sessions")?.getBoundingClientRect().width ?? 260;
  return (
    <div
      className="resizer"
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the list"
      aria-valuemin={200}
      aria-valuemax={520}
      aria-valuenow={now}
      aria-valuetext={`${now} pixels`}
      tabIndex={0}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && set(event.clientX)}
      onKeyDown={({ key }) => {
        if (key === "ArrowLeft") set(width() - 20);
        if (key === "ArrowRight") set(width() + 20);
      }}
    />
  );
}
