// Parts of the page that load after the first paint.
import { type ComponentType, type ReactNode, useEffect, useReducer } from "react";
import { Problem } from "./ui/state.tsx";

/** What is shown until the component is loaded, or the error if it cannot be. */
interface Placeholder {
  children: (problem: ReactNode) => ReactNode;
}

export interface LazyComponent<P> {
  (props: P & Placeholder): ReactNode;
  /** Starts loading. */
  load: () => Promise<void>;
}

/** A component that is loaded on first use, or before by `load`. */
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

/** The server has a newer build, or is unreachable. Drafts survive a reload. */
function Missing() {
  return (
    <Problem
      error={new Error("A part of this page could not be loaded. The server is unreachable, or it was updated.")}
    >
      <div className="actions">
        <button type="button" className="button" onClick={() => window.location.reload()}>
          Reload the page
        </button>
      </div>
    </Problem>
  );
}
