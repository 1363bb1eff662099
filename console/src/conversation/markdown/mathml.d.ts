import type { Key, ReactNode } from "react";

interface MathElement {
  children?: ReactNode;
  key?: Key;
  display?: string;
  width?: string;
  linethickness?: string;
  "aria-label"?: string;
}

type MathNames =
  | "math"
  | "mrow"
  | "mi"
  | "mn"
  | "mo"
  | "mtext"
  | "mspace"
  | "mfrac"
  | "msqrt"
  | "msub"
  | "msup"
  | "msubsup"
  | "munder"
  | "mover"
  | "munderover"
  | "mtable"
  | "mtr"
  | "mtd";

declare module "react" {
  namespace JSX {
    interface IntrinsicElements extends Record<MathNames, MathElement> {}
  }
}
