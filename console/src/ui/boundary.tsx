// Catches an error while a part of the page is rendered, so that the rest of the page still works.
import { Component, type ReactNode } from "react";
import { technicalDetail } from "../client.ts";
import { ProblemBox } from "./state.tsx";

interface Props {
  /** What is inside, for the error: `This message`. */
  name: string;
  /** What is shown instead, as text. */
  raw?: string;
  /** With another value it is tried again. */
  resetKey?: string | undefined;
  children: ReactNode;
}

interface State {
  error: unknown;
  resetKey: string | undefined;
}

export class Boundary extends Component<Props, State> {
  override state: State = { error: null, resetKey: this.props.resetKey };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error: error ?? new Error("unknown error") };
  }

  static getDerivedStateFromProps({ resetKey }: Props, state: State): State | null {
    return resetKey === state.resetKey ? null : { error: null, resetKey };
  }

  override render(): ReactNode {
    const { name, raw, children } = this.props;
    const { error } = this.state;
    if (error === null) return children;
    return (
      <>
        <ProblemBox
          message={`${name} could not be shown.`}
          hint={`${raw === undefined ? "" : "Its text is below, as it was written. "}Reload the page. If it happens again, report it with the technical details.`}
          detail={technicalDetail(error)}
        >
          <div className="actions">
            <button type="button" className="button small" onClick={() => window.location.reload()}>
              Reload the page
            </button>
          </div>
        </ProblemBox>
        {raw !== undefined && (
          <p className="plain raw" tabIndex={0} role="group" aria-label="Text as it was written">
            {raw}
          </p>
        )}
      </>
    );
  }
}
