// Plays a session: the scrubber moves by itself, at the pace of the events.
import { useEffect, useRef, useState } from "react";
import { navigate } from "../route.ts";
import { Icon } from "../ui/icon.tsx";
import type { Log } from "./log.ts";

const SPEEDS = ["1", "4", "real"] as const;
type Speed = (typeof SPEEDS)[number];
const NAMES: Record<Speed, string> = { "1": "1×", "4": "4×", real: "Real time" };
/** Longer pauses are shortened to this, unless it plays as it was. */
const PAUSE = 1000;
/** The address does not change more often. */
const FRAME = 60;

export function Play({ log, at }: { log: Log; at: number | null }) {
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>("1");
  const place = useRef(at);
  useEffect(() => void (place.current = at));
  useEffect(() => {
    if (!isPlaying) return;
    /** The position that was set last. Somebody who changes it stops the player. */
    let set: number | null = null;
    let index = place.current === null ? 0 : Math.max(0, log.indexOf(place.current));
    let timer: ReturnType<typeof setTimeout>;
    // Where it should be by now, in milliseconds after `index`.
    let owed = 0;
    let before = performance.now();
    const show = () => {
      const seq = log.seqs[index];
      if (seq === undefined) return;
      set = seq >= log.last ? null : seq;
      navigate({ at: set }, "replace");
    };
    const tick = () => {
      if (place.current !== set) return setPlaying(false);
      const now = performance.now();
      owed += (now - before) * (speed === "4" ? 4 : 1);
      before = now;
      const first = index;
      for (;;) {
        const gap = (log.times[index + 1] ?? 0) - (log.times[index] ?? 0);
        const wait = speed === "real" ? gap : Math.min(gap, PAUSE);
        if (index + 1 >= log.events.length || owed < wait) break;
        owed -= Math.max(0, wait);
        index += 1;
      }
      if (index !== first) show();
      if (index + 1 >= log.events.length) return setPlaying(false);
      timer = setTimeout(tick, FRAME);
    };
    show();
    timer = setTimeout(tick, FRAME);
    return () => clearTimeout(timer);
  }, [isPlaying, speed, log]);
  return (
    <span className="play" role="group" aria-label="Play">
      <button
        type="button"
        className="icon-button"
        aria-label={isPlaying ? "Pause" : "Play the session"}
        title={isPlaying ? "Pause" : "Play the session from here, or from the start"}
        disabled={log.events.length < 2}
        onClick={() => setPlaying(!isPlaying)}
      >
        <Icon name={isPlaying ? "pause" : "play"} />
      </button>
      <select aria-label="Speed" value={speed} onChange={({ target }) => setSpeed(target.value as Speed)}>
        {SPEEDS.map((each) => (
          <option key={each} value={each}>
            {NAMES[each]}
          </option>
        ))}
      </select>
    </span>
  );
}
