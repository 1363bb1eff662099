// Parts of the page that come after the first picture of it.
import { type ComponentType, type ReactNode, useEffect, useReducer } from "react";
import { Problem } from "./ui/state.tsx";

/** Until it is here: what stands in its place, with why it does not come, if so. */
interface Instead {
  children: (problem: ReactNode) => ReactNode;
}

export interface Later<P> {
  (props: P & Instead): ReactNode;
  /** Begins to load it. */
  load: () => Promise<void>;
}

/** A component that is loaded when it is needed, or wanted; from then on it is there at once. */
export function later<P extends object>(get: () => Promise<ComponentType<P>>): Later<P> {
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
  function Later({ children, ...props }: P & Instead) {
    const [, render] = useReducer((count: number) => count + 1, 0);
    useEffect(() => {
      if (Loaded === null) void load().then(render);
    }, []);
    if (Loaded !== null) return <Loaded {...(props as unknown as P)} />;
    return children(failed === null ? null : <Missing />);
  }
  return Object.assign(Later, { load });
}

/** The server has other files now, or is away. What was written here is kept over it. */
function Missing() {
  return (
    <Problem
      error={new Error("A part of this page could not be loaded: the server is away, or is newer than the page.")}
    >
      <div className="actions">
        <button type="button" className="button" onClick={() => window.location.reload()}>
          Load the page again
        </button>
      </div>
    </Problem>
  );
}
