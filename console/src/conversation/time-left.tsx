import { countdown, exactTime, useNow } from "../time.ts";

/** The time left for a decision. */
export function TimeLeft({ expires }: { expires: string | null }) {
  const now = useNow(expires === null ? null : 1000);
  if (expires === null) return null;
  const left = Date.parse(expires) - now;
  return (
    <time
      className="left"
      dateTime={expires}
      title={`Expires at ${exactTime(expires)}. After that the call does not run.`}
      data-soon={left < 30_000}
    >
      {left > 0 ? countdown(left) : "Expired"}
    </time>
  );
}
