// States are shown by words, then shape, then colour.
import type { ReactNode } from "react";
import { type Explained, explain } from "../client.ts";
import { Copy } from "./copy.tsx";

export type Tone = "run" | "ok" | "bad" | "wait" | "idle";

const SHAPES: Record<Tone, string> = {
  run: "M8 2.5a5.5 5.5 0 015.5 5.5",
  ok: "M3.5 8.5l3 3 6-7",
  bad: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  wait: "M8 2.5L13.5 8 8 13.5 2.5 8z",
  idle: "M8 5.5a2.5 2.5 0 110 5 2.5 2.5 0 010-5z",
};

export function Shape({ tone }: { tone: Tone }) {
  return (
    <svg
      className="shape"
      data-tone={tone}
      width="12"
      height="12"
      viewBox="0 0 16 16"
      aria-hidden="true"
      focusable="false"
    >
      {tone === "run" && (
        <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" strokeWidth="2" opacity="0.3" />
      )}
      <path
        d={SHAPES[tone]}
        fill={tone === "wait" || tone === "idle" ? "currentColor" : "none"}
        stroke="currentColor"
        strokeWidth="2"
        strokeLinecap="round"
      />
    </svg>
  );
}

export function State({ tone, children }: { tone: Tone; children: string }) {
  return (
    <span className="state" data-tone={tone}>
      <Shape tone={tone} />
      {children}
    </span>
  );
}

/** An error, and what to do about it. */
export function Problem({ error, ...rest }: { error: unknown; onClose?: () => void; children?: ReactNode }) {
  return <ProblemBox {...explain(error)} {...rest} />;
}

export function ProblemBox({
  message,
  hint,
  detail,
  onClose,
  children,
}: Explained & { onClose?: () => void; children?: ReactNode }) {
  return (
    <div className="problem" role="alert">
      <Shape tone="bad" />
      <div>
        <strong>{message}</strong>
        {hint !== undefined && <span> {hint}</span>}
        {detail !== null && (
          <details>
            <summary>Technical details</summary>
            <div className="copied">
              <pre tabIndex={0} aria-label="Technical details">
                {detail}
              </pre>
              <Copy text={detail} label="Copy technical details" />
            </div>
          </details>
        )}
        {children}
      </div>
      {onClose && (
        <button type="button" className="icon-button" aria-label="Dismiss" onClick={onClose}>
          ×
        </button>
      )}
    </div>
  );
}
