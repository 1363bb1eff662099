// What a running reply does at this moment: its step, how long it takes, how fast it writes.
import { useEffect, useRef, useState } from "react";
import type { Approval } from "turnwire";
import type { MsgJson } from "turnwire/message";
import { useCan } from "../me.ts";
import { duration, useNow } from "../time.ts";
import { Icon } from "../ui/icon.tsx";
import { Shape } from "../ui/state.tsx";
import { visible } from "./json.ts";

/** Letters of a token, about. */
const LETTERS = 4;
/** Over how many milliseconds the speed is measured. */
const WINDOW = 4000;

export function LiveBar({ reply, pending, stop }: { reply: MsgJson; pending: readonly Approval[]; stop: () => void }) {
  const now = useNow(1000);
  const speed = useSpeed(length(reply), now);
  const canStop = useCan("chat");
  const began = Date.parse(reply.created_at ?? "");
  const isWaiting = pending.length > 0;
  return (
    <div className="live-bar" role="group" aria-label="Running reply">
      <Shape tone={isWaiting ? "wait" : "run"} />
      <span className="live-step">{stepOf(reply, pending)}</span>
      {!Number.isNaN(began) && (
        <span className="num" title="Time since the reply began">
          {duration(Math.max(0, now - began))}
        </span>
      )}
      {!isWaiting && speed > 0 && (
        <span className="num" title="Estimated from the length of the text">
          About {speed} tokens/s
        </span>
      )}
      <span className="grow" />
      {canStop && (
        <button type="button" className="button small" aria-label="Stop the reply" onClick={stop}>
          Stop <Icon name="stop" size={12} />
        </button>
      )}
    </div>
  );
}

/** The current step, in words. */
export function stepOf({ content }: Pick<MsgJson, "content">, pending: readonly Approval[]): string {
  const asking = pending.find(({ kind }) => kind === "confirm") ?? pending[0];
  if (asking !== undefined)
    return `${visible(asking.tool_call.name)} waits for ${asking.kind === "confirm" ? "you" : "a client"}`;
  const running = content.findLast((block) => block.type === "tool_result" && block.finished_at == null);
  if (running?.type === "tool_result") return `Running ${visible(running.name)}`;
  const last = content.at(-1);
  if (last === undefined) return "Starting";
  if (last.type === "thinking") return "Thinking";
  if (last.type === "tool_call") return `Calling ${visible(last.name)}`;
  if (last.type === "text" && last.finished_at == null) return "Writing";
  return "Waiting for the model";
}

function length({ content }: MsgJson): number {
  return content.reduce((sum, block) => {
    if (block.type === "text") return sum + block.text.length;
    if (block.type === "thinking") return sum + block.thinking.length;
    return block.type === "tool_call" ? sum + block.input.length : sum;
  }, 0);
}

/** Tokens a second, about, over the last seconds. */
function useSpeed(letters: number, now: number): number {
  const samples = useRef<{ at: number; letters: number }[]>([]);
  const [speed, setSpeed] = useState(0);
  useEffect(() => {
    const list = samples.current;
    list.push({ at: now, letters });
    while (list.length > 2 && (list[0]?.at ?? 0) < now - WINDOW) list.shift();
    const first = list[0];
    const took = first === undefined ? 0 : now - first.at;
    setSpeed(took < 500 ? 0 : Math.round(((letters - (first?.letters ?? 0)) / LETTERS / took) * 1000));
    // Measured once a second.
  }, [now]);
  return speed;
}
