// Parts of the page that come after the first picture of it.
import { type ComponentType, type ReactNode, useEffect, useReducer } from "react";
import { Problem } from "./ui/state.tsx";

/** Until it is here: what stands in its place, with why it does not come, if so. */
interface Placeholder {
  children: (problem: ReactNode) => ReactNode;
}

export interface LazyComponent<P> {
  (props: P & Placeholder): ReactNode;
  /** Begins to load it. */
  load: () => Promise<void>;
}

/** A component that is loaded when it is needed, or wanted; from then on it is there at once. */
export function lazyComponent<P extends object>(get: () => Promise<ComponentType<P>>): LazyComponent<P> {
  let Loaded: ComponentType<P> | null = null;
  let failed: unknown = null;
  let loading: Promise<void> | null = null;
  const load = () =>
    (loading ??= get().then(
      (found) => void (Loaded = found),
      (error: unknown) => {
        failed = error;
        loading = null;
      },
    ));
  function LazyComponent({ children, ...props }: P & Placeholder) {
    const [, render] = useReducer((count: number) => count + 1, 0);
    useEffect(() => {
      if (Loaded === null) void load().then(render);
    }, []);
    if (Loaded !== null) return <Loaded {...(props as unknown as P)} />;
    return children(failed === null ? null : <Missing />);
  }
  return Object.assign(LazyComponent, { load });
}

/** The server has other files now, or is away. What was written here is kept over it. */
function Missing() {
  return (
    <Problem
      error={new Error("A part of this page could not be loaded: the server is unreachable, or newer than this page.")}
    >
      <div className="actions">
        <button type="button" className="button" onClick={() => window.location.reload()}>
          Reload the page
        </button>
      </div>
    </Problem>
  );
}
