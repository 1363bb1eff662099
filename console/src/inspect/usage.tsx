// The usage pane: tokens over time, and where the time of each reply went.
import { useEffect, useMemo, useState } from "react";
import type { Usage as Tokens } from "turnwire/message";
import { client, explain } from "../client.ts";
import { go } from "../route.ts";
import { ago, duration, exact, useNow } from "../time.ts";
import { Bars, SplitBar, Waterfall } from "./chart.tsx";
import type { Log } from "./log.ts";
import { cost, type Prices, type Reply, ReplyTimes, split, tokens } from "./reply-times.ts";

/** How many replies are shown at first, and added by each click. */
const SOME = 20;

interface Priced {
  prices: Prices;
  model: string;
}

/** The agent's token prices; null if the settings have none. */
function usePrices(agent: string | undefined): Priced | null {
  const [priced, setPriced] = useState<Priced | null>(null);
  useEffect(() => {
    let gone = false;
    if (agent === undefined) return;
    client.agents().then(
      ({ agents }) => {
        const found = agents.find(({ name }) => name === agent);
        if (!gone && found?.price_per_million)
          setPriced({ prices: found.price_per_million as Prices, model: found.model });
      },
      () => {},
    );
    return () => void (gone = true);
  }, [agent]);
  return priced;
}

export function UsagePane({ log, at }: { log: Log; at: number | null }) {
  const made = useMemo(() => new ReplyTimes(log), [log]);
  const { replies, calls } = made.sync();
  const [most, setMost] = useState(SOME);
  const priced = usePrices(log.info?.agent);
  const running = replies.some(({ to }) => to === null);
  const now = Math.max(useNow(running ? 1000 : 30_000), log.times.at(-1) ?? 0);
  if (log.error !== null) {
    const { message, hint } = explain(log.error);
    return <p className="nothing">{[message, hint].filter(Boolean).join(". ")}</p>;
  }
  if (replies.length === 0) {
    return (
      <div className="nothing">
        <p>{log.ready ? "No reply yet." : "Reading the log…"}</p>
        {log.ready && <p>After the first reply this shows its tokens, and the time of model, tools and waiting.</p>}
      </div>
    );
  }
  const all = replies.map(tokens).reduce(add);
  const latest = replies.slice(-most).reverse();
  const chosen = at === null ? replies.at(-1) : (replies.findLast(({ seq }) => seq <= at) ?? replies[0]);
  return (
    <div className="usage">
      <dl className="sums">
        <Sum
          name="tokens in"
          value={count(all.input_tokens)}
          more={all.cache_input_tokens > 0 ? `${count(all.cache_input_tokens)} cached` : undefined}
        />
        <Sum name="tokens out" value={count(all.output_tokens)} />
        <Sum name="model calls" value={count(calls.length)} />
        <Sum name="replies" value={count(replies.length)} />
        {priced !== null && <Sum name="cost" value={money(cost(all, priced.prices, priced.model))} />}
      </dl>
      <Bars calls={calls} choose={(seq) => go({ at: seq }, "replace")} />
      <h2>Where the time went</h2>
      <p className="legend" aria-hidden="true">
        <span className="doing-model">model</span>
        <span className="doing-tool">tools</span>
        <span className="doing-wait">waiting</span>
      </p>
      <ol className="replies">
        {latest.map((reply) => (
          <ReplyItem key={reply.id} reply={reply} now={now} priced={priced} open={reply === chosen} />
        ))}
      </ol>
      {replies.length > most && (
        <button type="button" onClick={() => setMost(most + SOME)}>
          {replies.length - most} earlier
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

function ReplyItem({ reply, now, priced, open }: { reply: Reply; now: number; priced: Priced | null; open: boolean }) {
  const took = (reply.to ?? now) - reply.from;
  const sum = tokens(reply);
  const parts = split(reply, now);
  const [wanted, setWanted] = useState<boolean | null>(null);
  const shown = wanted ?? open;
  return (
    <li>
      <button type="button" className="reply-head" aria-expanded={shown} onClick={() => setWanted(!shown)}>
        <b>{reply.name || "reply"}</b>
        <time title={exact(new Date(reply.from).toISOString())}>{ago(reply.from, now)}</time>
        <span>{reply.to === null ? `${duration(took)} so far` : duration(took)}</span>
        <span>
          {count(sum.input_tokens)} in, {count(sum.output_tokens)} out
        </span>
        {priced !== null && <span>{money(cost(sum, priced.prices, priced.model))}</span>}
        {!["", "completed"].includes(reply.reason) && <span className="reason">{reply.reason}</span>}
      </button>
      <SplitBar parts={parts} />
      {shown && <Waterfall reply={reply} now={now} choose={(seq) => go({ at: seq }, "replace")} />}
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

const count = (number: number): string => number.toLocaleString("en");
/** In the currency of the settings, whatever it is. */
const money = (amount: number): string =>
  amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: amount < 1 ? 5 : 2 });
