// The state of the connection.
import { useSyncExternalStore } from "react";
import type { Connection } from "turnwire";
import { explain } from "../client.ts";
import { duration, useNow } from "../time.ts";
import { State } from "../ui/state.tsx";

function useOnline(): boolean {
  return useSyncExternalStore(
    (changed) => {
      window.addEventListener("online", changed);
      window.addEventListener("offline", changed);
      return () => {
        window.removeEventListener("online", changed);
        window.removeEventListener("offline", changed);
      };
    },
    () => navigator.onLine,
  );
}

export function ConnectionState({ connection, retryNow }: { connection: Connection; retryNow: () => void }) {
  const isOnline = useOnline();
  const now = useNow(connection.state === "waiting" ? 250 : null);
  const { tone, text } = describe(connection, now, isOnline);
  return (
    <span className="connection">
      <span
        role="status"
        aria-label="Connection"
        title={"error" in connection && connection.error ? explain(connection.error).message : undefined}
      >
        <State tone={tone}>{text}</State>
      </span>
      {connection.state !== "live" && connection.state !== "connecting" && (
        <button type="button" className="link" onClick={retryNow}>
          Retry now
        </button>
      )}
    </span>
  );
}

export function describe(
  connection: Connection,
  now: number,
  isOnline: boolean,
): { tone: "ok" | "run" | "bad" | "wait"; text: string } {
  switch (connection.state) {
    case "live":
      return { tone: "ok", text: "live" };
    case "connecting":
      return { tone: "run", text: "connecting" };
    case "waiting": {
      if (!isOnline) return { tone: "bad", text: "offline" };
      const left = connection.retryAt - now;
      return {
        tone: "wait",
        text:
          left < 1000 ? "reconnecting" : `reconnecting in ${duration(Math.ceil(left / 1000) * 1000).replace(".0", "")}`,
      };
    }
    case "closed":
      return connection.error ? { tone: "bad", text: "error" } : { tone: "wait", text: "closed" };
  }
}
