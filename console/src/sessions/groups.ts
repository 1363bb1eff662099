// The rows of the list: conversations below the day of their last change, pinned ones first.
import type { SessionInfo } from "turnwire";

export type ListRow =
  | { kind: "group"; key: string; name: string }
  | { kind: "session"; key: string; info: SessionInfo };

const DAY = 86_400_000;

const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });

/** The name of the group of a time; `today`: when the day began. */
function groupOf(at: number, today: number): string {
  const days = Math.ceil((today - at) / DAY);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "Last 7 days";
  if (days < 30) return "Last 30 days";
  return Number.isNaN(at) ? "" : MONTH.format(at);
}

export function rowsOf(sessions: readonly SessionInfo[], pinned: ReadonlySet<string>, now: number): ListRow[] {
  const rows: ListRow[] = [];
  const add = (name: string, infos: readonly SessionInfo[]) => {
    if (infos.length === 0) return;
    rows.push({ kind: "group", key: `group ${name}`, name });
    for (const info of infos) rows.push({ kind: "session", key: info.id, info });
  };
  add(
    "Pinned",
    sessions.filter(({ id }) => pinned.has(id)),
  );
  const today = new Date(now).setHours(0, 0, 0, 0);
  let name = "";
  let some: SessionInfo[] = [];
  for (const info of sessions) {
    if (pinned.has(info.id)) continue;
    const group = groupOf(Date.parse(info.updated_at), today);
    if (group !== name) {
      add(name, some);
      some = [];
      name = group;
    }
    some.push(info);
  }
  add(name, some);
  return rows;
}
