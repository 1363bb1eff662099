// Base64 that arrives in pieces, cut anywhere.
//
// The text of an open block is whole groups of four characters, of which only the last may be padded, and
// the one to three characters of a group that has begun. The end of the text is held apart: to look at the
// end of a long text that was just appended to would have the engine copy all of it.

import { bad } from "./error.js";

export interface Open {
  /** Whole groups without padding. */
  head: string;
  /** A padded group behind them, or nothing. */
  padded: string;
  /** The characters of a group that has begun. */
  begun: string;
}

const DIGITS = /^[A-Za-z0-9+/]*$/;
const BEGUN = /^(?:[A-Za-z0-9+/]{1,3}|[A-Za-z0-9+/]{2}=)$/;
const notBase64 = () => bad("BadBase64", "a character that is not base64");

export function open(text: string): Open {
  const whole = text.length - (text.length % 4);
  const kept = text[whole - 1] === "=" ? whole - 4 : whole;
  return { head: text.slice(0, kept), padded: text.slice(kept, whole), begun: text.slice(whole) };
}

export function text({ head, padded, begun }: Open): string {
  return padded || begun ? head + padded + begun : head;
}

/** The state with a piece behind it; the old one stays good. `closed`: no more comes. */
export function append(state: Open, piece: string, closed = false): Open {
  if (!state.padded && !closed && DIGITS.test(piece) && DIGITS.test(state.begun)) {
    // Whole groups are what they would become when they are read and written again.
    const joined = state.begun + piece;
    const whole = joined.length - (joined.length % 4);
    return { head: state.head + joined.slice(0, whole), padded: "", begun: joined.slice(whole) };
  }
  let bytes = group(state.padded);
  let rest = (state.begun + piece).replace(/[\t\n\f\r ]+/g, "");
  for (let pad; (pad = rest.indexOf("=")) >= 0; ) {
    const at = pad - (pad % 4);
    if (pad - at < 2) throw bad("BadBase64", "padding where none can be");
    const last = rest.slice(at, at + 4);
    if (last.length === 3) break; // `ab=`: the second `=` is still to come.
    if (!/^=?=$/.test(last.slice(pad - at))) throw bad("BadBase64", "padding where none can be");
    bytes += decode(rest.slice(0, at)) + decode(last.slice(0, pad - at));
    rest = rest.slice(at + 4);
  }
  const whole = rest.length - (rest.length % 4);
  bytes += decode(rest.slice(0, whole));
  let begun = rest.slice(whole);
  if (begun && !BEGUN.test(begun)) throw notBase64();
  if (closed) {
    if (begun.length === 1) throw leftOver();
    bytes += decode(begun.replace("=", ""));
    begun = "";
  }
  const more = open(btoa(bytes));
  return { head: state.head + more.head, padded: more.padded, begun };
}

export function checkEnd({ begun }: Open): void {
  if (begun.length === 1 && BEGUN.test(begun)) throw leftOver();
}

/** A group that has begun is taken as unpadded; a rest that is no byte is dropped. */
export function close(state: Open): Open {
  if (!BEGUN.test(state.begun)) return state;
  let bytes;
  try {
    bytes = group(state.padded);
  } catch {
    return state;
  }
  if (state.begun.length > 1) bytes += decode(state.begun.replace("=", ""));
  return open(state.head + btoa(bytes));
}

const leftOver = () => bad("BadBase64", "the data ends inside a byte: one character is left over");

function group(padded: string): string {
  const digits = padded.replace(/==?$/, "");
  if (padded && (digits.length < 2 || !DIGITS.test(digits))) {
    throw bad("BadBase64", "the block holds data that is not base64");
  }
  return atob(digits);
}

function decode(digits: string): string {
  if (!DIGITS.test(digits)) throw notBase64();
  return atob(digits);
}
