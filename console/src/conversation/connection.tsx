// The state of the connection: the only place that shows it while a conversation is open.
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
  const { tone, text, left } = describeConnection(connection, now, isOnline);
  return (
    <span className="connection">
      <span
        role="status"
        aria-label="Connection"
        title={"error" in connection && connection.error ? explain(connection.error).message : undefined}
      >
        <State tone={tone}>{text}</State>
      </span>
      {/* Outside of the status: a screen reader would read every second. */}
      {left !== undefined && (
        <span className="dim num" aria-hidden="true">
          in {left}
        </span>
      )}
      {connection.state !== "live" && connection.state !== "connecting" && (
        <button type="button" className="link" onClick={retryNow}>
          Retry now
        </button>
      )}
    </span>
  );
}

export function describeConnection(
  connection: Connection,
  now: number,
  isOnline: boolean,
): { tone: "ok" | "run" | "bad" | "wait"; text: string; left?: string } {
  switch (connection.state) {
    case "live":
      return { tone: "ok", text: "Connected" };
    case "connecting":
      return { tone: "run", text: "Connecting" };
    case "waiting": {
      if (!isOnline) return { tone: "bad", text: "Offline" };
      const left = connection.retryAt - now;
      const rounded = duration(Math.ceil(left / 1000) * 1000).replace(".0", "");
      return { tone: "wait", text: "Reconnecting", ...(left >= 1000 && { left: rounded }) };
    }
    case "closed":
      return connection.error ? { tone: "bad", text: "Not connected" } : { tone: "wait", text: "Not connected" };
  }
}
