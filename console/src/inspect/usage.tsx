// The usage pane: tokens over time, and where the time of each reply went.
import { useMemo, useState } from "react";
import type { Usage as Tokens } from "turnwire/message";
import { explain } from "../client.ts";
import { finishLabel } from "../conversation/content-items.ts";
import { useAbout } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { navigate } from "../route.ts";
import { select } from "../selection.ts";
import { duration, exactTime, since, useNow } from "../time.ts";
import { Bars, SplitBar } from "./chart.tsx";
import type { Log } from "./log.ts";
import { costOf, flatten, type Reply, ReplyTimes, splitTime, tokens } from "./reply-times.ts";

/** How many replies are shown at first, and added by each click. */
const PAGE = 20;

export function UsagePane({ log, at }: { log: Log; at: number | null }) {
  const times = useMemo(() => new ReplyTimes(log), [log]);
  const { replies, calls } = times.sync();
  const [most, setMost] = useState(PAGE);
  const { currency } = useAbout();
  const running = replies.some(({ to }) => to === null);
  const now = Math.max(useNow(running ? 1000 : 30_000), log.times.at(-1) ?? 0);
  if (log.error !== null) {
    const { message, hint } = explain(log.error);
    return <p className="nothing">{[message, hint].filter(Boolean).join(". ")}</p>;
  }
  if (replies.length === 0) {
    return (
      <div className="nothing">
        <p>{log.ready ? "No reply yet." : "Loading events"}</p>
        {log.ready && <p>After the first reply this shows its tokens, and the time of model, tools and waiting.</p>}
      </div>
    );
  }
  // The session's total counts replies that have ended, as the list and the header do.
  const ended = replies.flatMap((reply) => flatten(reply)).filter(({ reply }) => reply.to !== null);
  const all = ended.map(({ reply }) => reply.usage).reduce(add, NOTHING);
  const cost = ended.reduce<number | null>(
    (sum, { reply }) => (reply.cost === null ? sum : (sum ?? 0) + reply.cost),
    null,
  );
  const latest = replies.slice(-most).reverse();
  const chosen = at === null ? replies.at(-1) : (replies.findLast(({ seq }) => seq <= at) ?? replies[0]);
  return (
    <div className="usage">
      <dl className="sums">
        <Sum
          name="Tokens in"
          value={count(all.input_tokens)}
          more={all.cache_input_tokens > 0 ? `${count(all.cache_input_tokens)} cached` : undefined}
        />
        <Sum name="Tokens out" value={count(all.output_tokens)} />
        <Sum name="Model calls" value={count(calls.length)} />
        <Sum name="Replies" value={count(replies.length)} />
        {cost !== null && (
          <Sum name="Cost" value={formatMoney(cost, currency)} more="As charged when each call ended" />
        )}
      </dl>
      <Bars calls={calls} choose={(seq) => navigate({ at: seq }, "replace")} />
      <h2>Where the time went</h2>
      <p className="legend" aria-hidden="true">
        <span className="doing-model">Model</span>
        <span className="doing-tool">Tools</span>
        <span className="doing-wait">Waiting</span>
      </p>
      <ol className="replies">
        {latest.map((reply) => (
          <ReplyItem key={reply.id} reply={reply} now={now} currency={currency} isChosen={reply === chosen} />
        ))}
      </ol>
      {replies.length > most && (
        <button type="button" onClick={() => setMost(most + PAGE)}>
          Show {Math.min(PAGE, replies.length - most)} earlier
        </button>
      )}
    </div>
  );
}

function Sum({ name, value, more }: { name: string; value: string; more?: string | undefined }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd title={more}>{value}</dd>
    </div>
  );
}

function ReplyItem({
  reply,
  now,
  currency,
  isChosen,
}: {
  reply: Reply;
  now: number;
  currency: string;
  isChosen: boolean;
}) {
  const elapsed = (reply.to ?? now) - reply.from;
  const sum = tokens(reply);
  const parts = splitTime(reply, now);
  const cost = costOf(reply);
  return (
    <li>
      <button
        type="button"
        className="reply-head"
        aria-current={isChosen}
        title="Show its steps in the trace"
        onClick={() => {
          select({ from: reply.seq, to: reply.last, reply: reply.id, call: "", by: "timeline" });
          navigate({ pane: "trace" }, "replace");
        }}
      >
        <b>{reply.name || "Reply"}</b>
        <time title={exactTime(new Date(reply.from).toISOString())}>{since(reply.from, now)}</time>
        <span>{reply.to === null ? `${duration(elapsed)} so far` : duration(elapsed)}</span>
        <span>
          {count(sum.input_tokens)} in, {count(sum.output_tokens)} out
        </span>
        {cost !== null && <span>{formatMoney(cost, currency)}</span>}
        {!["", "completed"].includes(reply.reason) && <span className="reason">{finishLabel(reply.reason)}</span>}
      </button>
      <SplitBar parts={parts} />
    </li>
  );
}

function add(a: Tokens, b: Tokens): Tokens {
  return {
    input_tokens: a.input_tokens + b.input_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    cache_input_tokens: a.cache_input_tokens + b.cache_input_tokens,
    cache_creation_input_tokens: a.cache_creation_input_tokens + b.cache_creation_input_tokens,
  };
}

const NOTHING: Tokens = { input_tokens: 0, output_tokens: 0, cache_input_tokens: 0, cache_creation_input_tokens: 0 };
