// Base64 that arrives in pieces of any length.
//
// The text of an open block is whole groups of four characters, of which only the last may be padded, and
// the one to three characters of a group that has begun. The end of the text is held apart: to look at the
// end of a long text that was just appended to would have the engine copy all of it.

import { bad } from "./error.js";

export interface Open {
  /** Whole groups without padding. */
  head: string;
  /** A padded group after them, or nothing. */
  padded: string;
  /** The characters of an incomplete group. */
  incomplete: string;
}

const DIGITS = /^[A-Za-z0-9+/]*$/;
const INCOMPLETE = /^[A-Za-z0-9+/]{1,2}([A-Za-z0-9+/]|=)?$/;
const notBase64 = () => bad("BadBase64", "the data is not base64, or ends inside a byte");
const completeLength = ({ length }: string) => length - (length % 4);

export function open(text: string): Open {
  const whole = completeLength(text);
  const kept = text[whole - 1] === "=" ? whole - 4 : whole;
  return { head: text.slice(0, kept), padded: text.slice(kept, whole), incomplete: text.slice(whole) };
}

export function text({ head, padded, incomplete }: Open): string {
  return padded || incomplete ? head + padded + incomplete : head;
}

/** The state after another piece; the old state stays valid. `closed`: this was the last piece. */
export function append({ head, padded, incomplete }: Open, piece: string, closed = false): Open {
  let rest = incomplete + piece;
  if (!padded && !closed && DIGITS.test(rest)) {
    // Complete groups stay the same when they are decoded and encoded again.
    const whole = completeLength(rest);
    return { head: head + rest.slice(0, whole), padded, incomplete: rest.slice(whole) };
  }
  rest = rest.replace(/[\t\n\f\r ]+/g, "");
  let bytes = decode(padded.replace(/==?$/, ""));
  for (let pad: number; (pad = rest.indexOf("=")) >= 0; ) {
    const end = pad - (pad % 4) + 4;
    if (pad % 4 < 2) throw notBase64();
    if (rest.length < end) break; // `ab=`: the second `=` is still to come.
    if (!/^=+$/.test(rest.slice(pad, end))) throw notBase64();
    bytes += decode(rest.slice(0, pad));
    rest = rest.slice(end);
  }
  const whole = completeLength(rest);
  bytes += decode(rest.slice(0, whole));
  incomplete = rest.slice(whole);
  if (incomplete && !INCOMPLETE.test(incomplete)) throw notBase64();
  if (closed) {
    bytes += decode(incomplete.replace("=", ""));
    incomplete = "";
  }
  const more = open(btoa(bytes));
  return { ...more, head: head + more.head, incomplete };
}

export function checkEnd({ incomplete }: Open): void {
  if (incomplete.length === 1 && DIGITS.test(incomplete)) throw notBase64();
}

/** An incomplete group is read as unpadded; bits that are not a whole byte are dropped. */
export function close(state: Open): Open {
  const { incomplete } = state;
  try {
    return INCOMPLETE.test(incomplete) ? append(incomplete[1] ? state : { ...state, incomplete: "" }, "", true) : state;
  } catch {
    return state;
  }
}

function decode(digits: string): string {
  if (!DIGITS.test(digits) || digits.length % 4 === 1) throw notBase64();
  return atob(digits);
}
