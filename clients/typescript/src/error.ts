/** Why an event was not folded, or a message not read. The names are those of `turnwire fold`. */
export type Problem =
  | "NotAnEvent"
  | "NotAMessage"
  | "WrongRole"
  | "WrongReply"
  | "UnknownBlock"
  | "DuplicateBlock"
  | "DuplicateMessage"
  | "AlreadyEnded"
  | "BadBase64"
  | "MixedSource"
  | "Overlap";

/** An event that does not fit, or an invalid message. The fold is unchanged. */
export class FoldError extends Error {
  declare readonly kind: Problem;
  constructor(kind: Problem, message: string) {
    super(message);
    Object.assign(this, { name: "FoldError", kind });
  }
}

/** An error of this kind. */
export function bad(kind: Problem, what: unknown): FoldError {
  return new FoldError(kind, `${kind}: ${what}`);
}
