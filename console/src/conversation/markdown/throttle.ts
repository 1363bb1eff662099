import { useEffect, useReducer, useRef } from "react";

/** The value, updated at most once in so many milliseconds; the last value is never lost. 0: not throttled. */
export function useThrottled<T>(value: T, every: number): T {
  const [, render] = useReducer((count: number) => count + 1, 0);
  const shown = useRef({ value, at: 0 });
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const now = performance.now();
  if (now - shown.current.at >= every) shown.current = { value, at: now };
  useEffect(() => {
    if (timer.current !== undefined || Object.is(value, shown.current.value)) return;
    timer.current = setTimeout(
      () => {
        timer.current = undefined;
        render();
      },
      shown.current.at + every - performance.now(),
    );
  });
  useEffect(
    () => () => {
      clearTimeout(timer.current);
      timer.current = undefined;
    },
    [],
  );
  return shown.current.value;
}
