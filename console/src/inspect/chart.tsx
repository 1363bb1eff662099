// Small SVG charts. Each has a text alternative.
import { duration } from "../time.ts";
import type { Call, Split } from "./reply-times.ts";

/** More bars than this are combined. */
const BARS = 60;
const HEIGHT = 48;

/** The tokens of model calls, one bar each, in order. */
export function Bars({ calls, choose }: { calls: Call[]; choose: (seq: number) => void }) {
  if (calls.length === 0) return null;
  const each = Math.ceil(calls.length / BARS);
  const bars = [];
  for (let from = 0; from < calls.length; from += each) {
    const some = calls.slice(from, from + each);
    const last = some.at(-1);
    if (last === undefined) continue;
    bars.push({
      seq: last.seq,
      at: last.at,
      input: sum(some, "input"),
      output: sum(some, "output"),
      calls: some.length,
    });
  }
  const most = Math.max(1, ...bars.map(({ input, output }) => input + output));
  const width = 100 / Math.max(bars.length, 12);
  const label = `Tokens over time: ${calls.length} model calls, ${sum(calls, "input")} tokens in and ${sum(calls, "output")} out; the largest bar has ${most}.`;
  return (
    <figure className="bars">
      <figcaption>Tokens per model call: out (colour), in (grey)</figcaption>
      <svg role="img" aria-label={label} width="100%" height={HEIGHT}>
        {bars.map(({ seq, at, input, output, calls }, index) => {
          const [high, low] = [((input + output) / most) * HEIGHT, (output / most) * HEIGHT];
          const place = { x: `${(index * width).toFixed(3)}%`, width: `${(width * 0.8).toFixed(3)}%` };
          return (
            <g key={seq} onClick={() => choose(seq)}>
              <title>{`${input} in, ${output} out${calls > 1 ? ` (${calls} calls)` : ""}, ${new Date(at).toLocaleString("en-GB")}`}</title>
              <rect {...place} y="0" height={HEIGHT} className="bar-touch" />
              <rect {...place} y={HEIGHT - high} height={Math.max(1, high - low)} className="bar-in" />
              <rect {...place} y={HEIGHT - low} height={low} className="bar-out" />
            </g>
          );
        })}
      </svg>
    </figure>
  );
}

function sum(calls: Call[], key: "input" | "output"): number {
  return calls.reduce((total, call) => total + call[key], 0);
}

/** The time split in one bar. */
export function SplitBar({ parts }: { parts: Split }) {
  const total = parts.model + parts.tool + parts.wait + parts.other;
  const words = [
    `model ${duration(parts.model)}`,
    `tools ${duration(parts.tool)}`,
    `waiting ${duration(parts.wait)}`,
  ].join(", ");
  let from = 0;
  return (
    <svg className="split" role="img" aria-label={words} width="100%" height="8">
      <title>{words}</title>
      {(["model", "tool", "wait", "other"] as const).map((doing) => {
        const share = total === 0 ? 0 : (parts[doing] / total) * 100;
        from += share;
        return (
          <rect
            key={doing}
            className={`doing-${doing}`}
            x={`${(from - share).toFixed(3)}%`}
            width={`${share.toFixed(3)}%`}
            height="8"
          />
        );
      })}
    </svg>
  );
}
