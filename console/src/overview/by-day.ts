// Tokens and cost of sessions, by agent and by the day of their last change.
import type { SessionInfo } from "turnwire";

export interface Day {
  /** For example `2026-03-10`, where the browser is. */
  day: string;
  tokens: number;
  cost: number | null;
}

const DAYS = 14;

const nameOf = (at: Date): string =>
  `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`;

/** The last two weeks of each agent, oldest day first. */
export function byDay(sessions: readonly Pick<SessionInfo, "agent" | "updated_at" | "usage" | "cost">[], now: number) {
  const names = Array.from({ length: DAYS }, (_, at) => {
    const day = new Date(now);
    day.setDate(day.getDate() - (DAYS - 1 - at));
    return nameOf(day);
  });
  const found = new Map<string, Day[]>();
  for (const { agent, updated_at, usage, cost } of sessions) {
    const at = names.indexOf(nameOf(new Date(updated_at)));
    if (at < 0) continue;
    let days = found.get(agent);
    if (days === undefined) {
      days = names.map((day) => ({ day, tokens: 0, cost: null }));
      found.set(agent, days);
    }
    const day = days[at];
    if (day === undefined) continue;
    day.tokens += usage.input_tokens + usage.output_tokens;
    if (cost !== undefined) day.cost = (day.cost ?? 0) + cost;
  }
  return found;
}
