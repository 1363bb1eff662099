// The line below the header: the agent, tokens and cost as they were charged, where a fork comes from, accepted rules.
import type { SessionInfo } from "turnwire";
import { useAbout } from "../me.ts";
import { count, formatMoney } from "../money.ts";
import { formatRoute } from "../route.ts";
import { forkOf } from "../sessions/fork.ts";
import { exactTime } from "../time.ts";
import type { Decided } from "./decisions.ts";
import { Rules } from "./rules.tsx";

export function Facts({ session, info, decided }: { session: string; info: SessionInfo | null; decided: Decided }) {
  const { currency } = useAbout();
  const fork = forkOf(info);
  const tokens = info === null ? 0 : info.usage.input_tokens + info.usage.output_tokens;
  return (
    <div className="facts" role="group" aria-label="About this conversation">
      {info !== null && <bdi className="agent">{info.agent}</bdi>}
      {info !== null && tokens > 0 && (
        <span
          className="num"
          title={`${count(info.usage.input_tokens)} tokens in, ${count(info.usage.output_tokens)} out, sub-agents included`}
        >
          {count(tokens)} tokens
        </span>
      )}
      {info?.cost !== undefined && (
        <span className="num" title="As charged when each model call ended, sub-agents included">
          {formatMoney(info.cost, currency)}
        </span>
      )}
      {fork !== null && (
        <span title={`Forked ${exactTime(info?.created_at ?? "")}`}>
          Forked from{" "}
          <a href={formatRoute({ session: fork.session, at: fork.seq, pane: null })}>
            {fork.session.slice(0, 12)} at event {fork.seq}
          </a>
        </span>
      )}
      <Rules session={session} decided={decided} />
    </div>
  );
}
