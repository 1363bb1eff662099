import { useEffect, useRef, useState } from "react";

interface Props {
  load: () => Promise<void>;
  /** What is loaded, for the label: `earlier messages`, `more`. */
  name: string;
  className: string;
  /** Selector of the box that scrolls. */
  inside: string;
}

/** The button at an end of a list that loads the next page, by itself when it scrolls into view. */
export function LoadMore({ load, name, className, inside }: Props) {
  const [isLoading, setLoading] = useState(false);
  const [failed, setFailed] = useState(false);
  // An empty page may have a next page: then the button is still in view, and loading continues.
  const [loaded, setLoaded] = useState(0);
  const button = useRef<HTMLButtonElement>(null);
  const run = useRef(() => {});
  useEffect(() => {
    run.current = () => {
      if (isLoading) return;
      setLoading(true);
      load()
        .then(
          () => {
            setFailed(false);
            setLoaded((n) => n + 1);
          },
          () => setFailed(true),
        )
        .finally(() => setLoading(false));
    };
  });
  useEffect(() => {
    const { current } = button;
    if (!current || isLoading || failed) return;
    const near = new IntersectionObserver(([seen]) => seen?.isIntersecting && run.current(), {
      root: current.closest(inside),
      rootMargin: "300px 0px",
    });
    near.observe(current);
    return () => near.disconnect();
  }, [isLoading, failed, loaded, inside]);
  return (
    <button
      ref={button}
      type="button"
      className={`link ${className}`}
      disabled={isLoading}
      onClick={() => run.current()}
    >
      {isLoading ? `Loading ${name}` : failed ? `Could not load ${name}. Try again` : `Load ${name}`}
    </button>
  );
}
