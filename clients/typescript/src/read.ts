// Reads what came from outside, and fills in what was left out, as the core does.

import { bad, FoldError, type Problem } from "./error.js";
import { BLOCKS, PERMISSIONRULE, REPLYERROR, USAGE, type ContentBlock, type MsgJson, type Role, type Shape } from "./generated/model.js";

export type Json = Record<string, any>;

const MSG: Shape = {
  role: undefined,
  content: undefined,
  name: "",
  metadata: {},
  usage: null,
  finished_at: null,
  finished_reason: null,
  structured_output: null,
  error: null,
};
const DATA: Shape = { source: undefined, name: null, finished_at: null };

/** Whether the core keeps it as bytes: a data block, or one of the older media. */
export const isData = ({ type }: { type: string }): boolean => /^(?:data|image|audio|video)$/.test(type);

export function need(is: boolean, what: string): void {
  if (!is) throw bad("NotAnEvent", `\`${what}\` is missing or wrong`);
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

/** An object with its defaults. What we do not know stays; an id or a time that is empty is none. */
export function fill(shape: Shape, value: any, what: string): Json {
  need(isObject(value), what);
  const out: Json = { ...shape, ...value };
  for (const key of [...Object.keys(shape), "id", "created_at"]) {
    const known = key in shape;
    if (value[key] == null || (!known && value[key] === "")) {
      if (known) out[key] = shape[key];
      else delete out[key];
    }
    need(!known || out[key] !== undefined, key);
  }
  return out;
}

export const list = <T>(value: any, what: string, each: (item: any) => T): T[] => (need(Array.isArray(value), what), value.map(each));

const payload = (value: any, what: string) => (typeof value === "string" ? value : list(value, what, (part) => block(part, true)));

export const error = (value: unknown): any => value && fill(REPLYERROR, value, "error");
export const toolCall = (value: any): any => block({ type: "tool_call", ...value });
export const toolResult = (value: any): any => block({ type: "tool_result", ...value });

/** A block as the core writes it. `inside` a hint or a result there is only text and data. */
export function block(value: any, inside = false): ContentBlock {
  need(isObject(value) && typeof value.type === "string", "type");
  const { type } = value;
  if (isData(value)) {
    const out = fill(DATA, value, type);
    const source: Json = { ...out["source"] };
    need(typeof source["type"] === "string", "source");
    if (source["type"] === "base64") need(typeof source["data"] === "string", "data");
    if (source["type"] === "url") need(typeof source["url"] === "string", "url");
    source["media_type"] ?? delete source["media_type"];
    // The older media never had these fields: they show only where they are set.
    if (type !== "data") for (const key of ["name", "finished_at"]) out[key] ?? delete out[key];
    return { ...out, source } as ContentBlock;
  }
  if (!Object.hasOwn(BLOCKS, type) || (inside && type !== "text")) return { ...value };
  const out = fill(BLOCKS[type]!, value, type);
  if (type === "hint") out["hint"] = payload(out["hint"], "hint");
  if (type === "tool_result") out["output"] = payload(out["output"], "output");
  if (type === "tool_call") {
    out["suggested_rules"] = list(out["suggested_rules"], "suggested_rules", (rule) => fill(PERMISSIONRULE, rule, "rule"));
  }
  return out as ContentBlock;
}

/** Blocks of one family share a name space of ids; those that we do not know are of none. */
export const familyOf = (block: { type: string }): string => (isData(block) ? "data" : Object.hasOwn(BLOCKS, block.type) ? block.type : "");

/** What a role may hold. A type that we do not know may stand anywhere: nobody can tell what it is. */
const HOLDS: Record<Role, string> = { user: "text data", system: "text", tool: "tool_result", assistant: Object.keys(BLOCKS) + "data" };

export function checkRole(role: Role, content: readonly { type: string }[]): void {
  need(Object.hasOwn(HOLDS, role), "role");
  for (const block of content) {
    if (!HOLDS[role].includes(familyOf(block))) throw bad("WrongRole", `a ${role} message cannot hold a ${block.type} block`);
  }
}

/** A message as the core writes it, or why it is none. */
export function readMsg(value: any, kind: Problem = "NotAMessage"): MsgJson {
  try {
    const { content } = value;
    const texts = typeof content === "string" ? [{ type: "text", text: content }] : content === null ? [] : content;
    const msg = fill(MSG, { ...value, content: texts }, "message") as MsgJson;
    msg.content = list(texts, "content", (item) => block(item));
    if (msg.usage) msg.usage = fill(USAGE, msg.usage, "usage") as MsgJson["usage"];
    msg.error = error(msg.error);
    checkRole(msg.role, msg.content);
    return msg;
  } catch (error) {
    throw error instanceof FoldError && error.kind === "WrongRole" ? error : bad(kind, String(error));
  }
}
