// Catches an error while a part of the page is rendered, so that the rest of the page still works.
import { Component, type ReactNode } from "react";
import { Problem } from "./state.tsx";

interface Props {
  /** What is inside, for the error: `This message`. */
  name: string;
  /** What is shown instead, as text. */
  raw?: string;
  /** With another value it is tried again. */
  of?: string | undefined;
  children: ReactNode;
}

interface State {
  error: unknown;
  of: string | undefined;
}

export class Boundary extends Component<Props, State> {
  override state: State = { error: null, of: this.props.of };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error: error ?? new Error("unknown error") };
  }

  static getDerivedStateFromProps({ of }: Props, state: State): State | null {
    return of === state.of ? null : { error: null, of };
  }

  override render(): ReactNode {
    const { name, raw, children } = this.props;
    const { error } = this.state;
    if (error === null) return children;
    const why = error instanceof Error ? error.message : String(error);
    return (
      <>
        <Problem error={new Error(`${name} could not be shown: ${why}`)}>
          <div className="actions">
            <button type="button" className="button small" onClick={() => window.location.reload()}>
              Reload
            </button>
          </div>
        </Problem>
        {raw !== undefined && <p className="plain raw">{raw}</p>}
      </>
    );
  }
}
