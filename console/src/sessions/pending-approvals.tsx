// Pending approvals of all conversations.
import { useState } from "react";
import { client } from "../client.ts";
import { deny } from "../conversation/deny.ts";
import { summary } from "../conversation/json.ts";
import { TimeLeft } from "../conversation/time-left.tsx";
import { go } from "../route.ts";
import { Problem, Shape } from "../ui/state.tsx";
import { type PendingReply, refreshSessions } from "./store.ts";

export function PendingApprovals({ waiting }: { waiting: readonly PendingReply[] }) {
  const asking = waiting.flatMap((one) => one.confirm.map((call) => ({ one, call })));
  if (asking.length === 0) return null;
  return (
    <section className="waiting" aria-label="Waiting for you">
      <h2>
        <Shape tone="wait" /> waiting for you <span className="count">{asking.length}</span>
      </h2>
      <ul>
        {asking.map(({ one, call }) => (
          <PendingApproval key={`${one.session_id} ${call.id}`} one={one} call={call} />
        ))}
      </ul>
    </section>
  );
}

function PendingApproval({ one, call }: { one: PendingReply; call: PendingReply["confirm"][number] }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const asking = { reply_id: one.reply_id, tool_call: call };
  const answer = async (work: Promise<void>) => {
    setBusy(true);
    setError(null);
    await work.catch(setError);
    setBusy(false);
    refreshSessions();
  };
  return (
    <li>
      <button type="button" className="open" onClick={() => go({ session: one.session_id, at: null })}>
        <span className="tool-name">{call.name}</span>
        <span className="dim"> in {one.title || "Untitled"}</span>
        <code>{summary(call.input)}</code>
      </button>
      <div className="actions">
        <button
          type="button"
          className="button small main"
          disabled={isBusy}
          onClick={() => void answer(client.session(one.session_id).approve(asking))}
        >
          Allow
        </button>
        <button
          type="button"
          className="button small"
          disabled={isBusy}
          onClick={() => void answer(deny(one.session_id, asking, ""))}
        >
          Deny
        </button>
        <TimeLeft expires={one.expires_at} />
      </div>
      {error !== null && <Problem error={error} />}
    </li>
  );
}
