import { useEffect, useRef, useState } from 'react';

/** The value, changing at most once in so many milliseconds; the last one always comes. 0: as it is. */
export function useThrottled<T>(value: T, every: number): T {
  const [shown, setShown] = useState(value);
  const latest = useRef(value);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => {
    latest.current = value;
    if (every === 0 || timer.current !== null || Object.is(value, shown)) return;
    timer.current = setTimeout(() => {
      timer.current = null;
      setShown(latest.current);
    }, every);
  });
  useEffect(
    () => () => {
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = null;
    },
    [],
  );
  return every === 0 ? value : shown;
}
