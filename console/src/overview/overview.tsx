// All sessions at a glance: what runs, what waits, what failed, and what was spent by whom and when.
import { useEffect, useMemo, useState } from "react";
import type { Agent, SessionInfo } from "turnwire";
import { client } from "../client.ts";
import { visibleName } from "../conversation/json.ts";
import { useAbout } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { setPageTitle } from "../page-title.ts";
import { formatRoute } from "../route.ts";
import { BackToList } from "../sessions/back-to-list.tsx";
import { useSessions } from "../sessions/store.ts";
import { duration, exactTime, since, useNow } from "../time.ts";
import { Problem, Shape } from "../ui/state.tsx";
import { byDay, type Day } from "./by-day.ts";
import "./overview.css";

const HOURS = 24;
const PAGES = 5;
const REFRESH = 10_000;

/** The latest sessions, up to a thousand; refreshed now and then. */
function useLatest(): { list: readonly SessionInfo[] | null; isAll: boolean; error: unknown } {
  const [found, setFound] = useState<{ list: SessionInfo[]; isAll: boolean } | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      // A hidden page is refreshed when somebody looks at it again.
      if (document.hidden) return;
      clearTimeout(timer);
      timer = setTimeout(() => void load(), REFRESH);
      const list: SessionInfo[] = [];
      let cursor: string | null = null;
      try {
        for (let page = 0; page < PAGES; page++) {
          const { sessions, next_cursor }: { sessions: SessionInfo[]; next_cursor: string | null } =
            await client.sessions({ limit: 200, signal: stop.signal, ...(cursor !== null && { cursor }) });
          list.push(...sessions);
          cursor = next_cursor;
          if (cursor === null) break;
        }
        setFound({ list, isAll: cursor === null });
        setError(null);
      } catch (why) {
        if (stop.signal.aborted) return;
        setError(why);
      }
    };
    const onVisible = () => void load();
    void load();
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, []);
  return { list: found?.list ?? null, isAll: found?.isAll ?? true, error };
}

export function Overview() {
  const { list, isAll, error } = useLatest();
  const { waiting, error: listError } = useSessions();
  const { currency } = useAbout();
  const now = useNow(5000);
  const [agents, setAgents] = useState<readonly Agent[]>([]);
  useEffect(() => setPageTitle("Overview"), []);
  useEffect(() => {
    client.agents({ usage: true }).then(
      ({ agents }) => setAgents(agents),
      () => {},
    );
  }, []);
  const running = list?.filter(({ status }) => status === "running") ?? [];
  const failed =
    list?.filter(
      ({ outcome, updated_at }) => outcome === "failed" && now - Date.parse(updated_at) < HOURS * 3_600_000,
    ) ?? [];
  const days = useMemo(() => byDay(list ?? [], now), [list, now]);
  return (
    <main className="conversation overview">
      <header className="head">
        <BackToList />
        <h1>Overview</h1>
      </header>
      <div className="overview-in" tabIndex={0} role="region" aria-label="Overview">
        {/* The list shows that the server is away. */}
        {error !== null && listError === null && <Problem error={error} />}
        {list === null && error === null && <p className="dim">Loading</p>}
        <section aria-labelledby="waits">
          <h2 id="waits">
            <Shape tone="wait" /> Waiting ({waiting.length})
          </h2>
          {waiting.length === 0 && <p className="dim">Nothing is waiting.</p>}
          <ul>
            {waiting.map((one) => (
              <li key={`${one.session_id} ${one.reply_id}`}>
                <a href={formatRoute({ session: one.session_id, at: null, pane: null })}>
                  <bdi>{one.title || "Untitled"}</bdi>
                </a>
                <span className="dim">
                  <bdi>
                    {(one.confirm.length > 0 ? one.confirm : one.external)
                      .map(({ name }) => visibleName(name))
                      .join(", ")}
                  </bdi>
                  {one.confirm.length > 0 ? " waits for a person, " : " waits for a client, "}
                  <time dateTime={one.since} title={exactTime(one.since)}>
                    {duration(Math.max(0, now - Date.parse(one.since)))}
                  </time>
                </span>
              </li>
            ))}
          </ul>
        </section>
        <Sessions title="Running" tone="run" list={running} now={now} none="No reply is running." />
        <Sessions title={`Failed in the last ${HOURS} hours`} tone="bad" list={failed} now={now} none="No failures." />
        <section aria-labelledby="agents">
          <h2 id="agents">Agents</h2>
          <div className="overview-table" tabIndex={0} role="region" aria-label="Usage by agent">
            <table>
              <thead>
                <tr>
                  <th scope="col">Agent</th>
                  <th scope="col">Tokens in</th>
                  <th scope="col">Tokens out</th>
                  <th scope="col">Cost</th>
                </tr>
              </thead>
              <tbody>
                {agents.map(({ name, usage, cost }) => (
                  <tr key={name}>
                    <th scope="row">
                      <bdi>{name}</bdi>
                    </th>
                    <td>{count(usage?.input_tokens ?? 0)}</td>
                    <td>{count(usage?.output_tokens ?? 0)}</td>
                    <td>{cost === undefined ? "–" : formatMoney(cost, currency)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
        <section aria-labelledby="days">
          <h2 id="days">Tokens by day and agent</h2>
          <p className="dim">
            A conversation counts on the day of its last change{isAll ? "" : "; the latest 1,000 conversations"}.
          </p>
          <Days days={days} currency={currency} />
        </section>
      </div>
    </main>
  );
}

function Sessions({
  title,
  tone,
  list,
  now,
  none,
}: {
  title: string;
  tone: "run" | "bad";
  list: readonly SessionInfo[];
  now: number;
  none: string;
}) {
  const id = `overview-${tone}`;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>
        <Shape tone={tone} /> {title} ({list.length})
      </h2>
      {list.length === 0 && <p className="dim">{none}</p>}
      <ul>
        {list.slice(0, 50).map(({ id, title, agent, updated_at }) => (
          <li key={id}>
            <a href={formatRoute({ session: id, at: null, pane: null })}>
              <bdi>{title || "Untitled"}</bdi>
            </a>
            <span className="dim">
              <bdi>{agent}</bdi>,{" "}
              <time dateTime={updated_at} title={exactTime(updated_at)}>
                {since(updated_at, now)}
              </time>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** One small plot an agent: a bar a day. */
function Days({ days, currency }: { days: Map<string, Day[]>; currency: string }) {
  const most = Math.max(1, ...[...days.values()].flat().map(({ tokens }) => tokens));
  return (
    <div className="day-plots">
      {[...days].map(([agent, list]) => {
        const sum = list.reduce((sum, { tokens }) => sum + tokens, 0);
        const cost = list.reduce<number | null>((sum, { cost }) => (cost === null ? sum : (sum ?? 0) + cost), null);
        const text = `${count(sum)} tokens${cost === null ? "" : `, ${formatMoney(cost, currency)}`} in ${list.length} days`;
        return (
          <figure key={agent}>
            <figcaption>
              <bdi>{agent}</bdi> <span className="dim">{text}</span>
            </figcaption>
            <svg role="img" aria-label={`${agent}: ${text}`} width="100%" height="48">
              {list.map(({ day, tokens, cost }, at) => (
                <g key={day}>
                  <title>{`${day}: ${count(tokens)} tokens${cost === null ? "" : `, ${formatMoney(cost, currency)}`}`}</title>
                  <rect
                    className="bar-touch"
                    x={`${(at * 100) / list.length}%`}
                    width={`${80 / list.length}%`}
                    height="48"
                  />
                  <rect
                    className="bar"
                    x={`${(at * 100) / list.length}%`}
                    width={`${80 / list.length}%`}
                    y={48 - Math.max(tokens > 0 ? 1 : 0, (tokens / most) * 46)}
                    height={Math.max(tokens > 0 ? 1 : 0, (tokens / most) * 46)}
                  />
                </g>
              ))}
            </svg>
          </figure>
        );
      })}
    </div>
  );
}
