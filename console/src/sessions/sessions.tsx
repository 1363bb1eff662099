// The left pane: pending approvals and all conversations.
import { memo, useEffect, useRef, useState } from "react";
import type { SessionInfo } from "turnwire";
import { useKeys } from "../keys.ts";
import { format, go, useRoute } from "../route.ts";
import { ago, exact, useNow } from "../time.ts";
import { Icon } from "../ui/icon.tsx";
import { LoadMore } from "../ui/load-more.tsx";
import { Menu } from "../ui/menu.tsx";
import { Problem, Shape } from "../ui/state.tsx";
import { useSessionActions } from "./actions.tsx";
import { Footer } from "./footer.tsx";
import "./sessions.css";
import { PendingApprovals } from "./pending-approvals.tsx";
import { SignIn } from "./sign-in.tsx";
import { statusLabel } from "./status.ts";
import { search, showMore, useSessions } from "./store.ts";

interface Props {
  selected: string | null;
  /** Whether it is the only pane shown. */
  isMain: boolean;
  onNew: () => void;
}

export function Sessions({ selected, isMain, onNew }: Props) {
  const { sessions, waiting, hasMore, query, isLoaded, error, isLocked } = useSessions();
  const now = useNow(30_000);
  return (
    // A role instead of another element: React would rebuild it and lose the search words.
    <div className="sessions" role={isMain ? "main" : "complementary"} aria-label="Conversations">
      <div className="head">
        <h1 className="name">
          <a href={format({ session: null, at: null, pane: null })}>Turnwire</a>
        </h1>
        <span className="grow" />
        <button
          type="button"
          className="icon-button"
          aria-label="New conversation"
          title="New conversation (n)"
          onClick={onNew}
        >
          <Icon name="plus" />
        </button>
      </div>
      {isLocked ? (
        <SignIn error={error} />
      ) : (
        <>
          <Search />
          <div className="sessions-list">
            {error !== null && <Problem error={error} />}
            <PendingApprovals waiting={waiting} />
            <nav aria-label="All conversations">
              <ul>
                {sessions.map((info) => (
                  <Row key={info.id} info={info} isSelected={info.id === selected} now={now} />
                ))}
              </ul>
            </nav>
            {isLoaded && sessions.length === 0 && (
              <p className="dim center">
                {query === "" ? "No conversations yet." : `No conversation contains “${query}”.`}
              </p>
            )}
            {hasMore && (
              <LoadMore load={showMore} name="more conversations" className="center" inside=".sessions-list" />
            )}
          </div>
        </>
      )}
      <Footer />
    </div>
  );
}

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
    const timer = setTimeout(() => search(text), 150);
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

/** When it last changed, where the server says so. */
function changed(info: SessionInfo): string {
  return info.updated_at;
}

const Row = memo(function Row({ info, isSelected, now }: { info: SessionInfo; isSelected: boolean; now: number }) {
  const { pane } = useRoute();
  const { entries, dialogs } = useSessionActions(info.id, info.title);
  const isExternal = info.pending.length > 0 && info.pending.every(({ confirm }) => confirm.length === 0);
  const { tone, word } = statusLabel(info.status, isExternal);
  const tokens = info.usage.input_tokens + info.usage.output_tokens;
  const at = changed(info);
  return (
    <li className="row" data-selected={isSelected}>
      <a
        href={format({ session: info.id, at: null, pane })}
        aria-current={isSelected ? "page" : undefined}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          go({ session: info.id, at: null });
        }}
      >
        <Shape tone={tone} />
        <span className="row-title">{info.title || <span className="dim">Untitled · {info.id.slice(0, 8)}</span>}</span>
        <time dateTime={at} title={exact(at)}>
          {ago(at, now)}
        </time>
        <span className="row-about" data-tone={tone}>
          {word}
          {info.queued.length > 0 && ` · ${info.queued.length} queued`}
          {tokens > 0 && <span className="dim num"> · {tokens.toLocaleString("en")} tokens</span>}
          <span className="dim"> · {info.agent}</span>
        </span>
      </a>
      <Menu label={`Menu of ${info.title || "this conversation"}`} entries={entries} />
      {dialogs}
    </li>
  );
});
