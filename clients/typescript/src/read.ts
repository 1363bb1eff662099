// Reads JSON from outside and fills in defaults, as the core does.

import { bad, type FoldError, type Problem } from "./error.js";
import {
  BLOCKS,
  type ContentBlock,
  type MsgJson,
  PERMISSIONRULE,
  REPLYERROR,
  type Role,
  type Shape,
  USAGE,
} from "./generated/model.js";

export type Json = Record<string, any>;

export const MSG: Shape = {
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
/** Block types by family: everything that the core stores as bytes is data. */
const SHAPES: Record<string, Shape> = {
  __proto__: null as never,
  ...BLOCKS,
  data: { source: undefined, name: null, finished_at: null },
};

/** Blocks of one family share a namespace of ids; unknown types have none. */
export const familyOf = ({ type }: { type: string }): string =>
  /^(image|audio|video)$/.test(type) ? "data" : SHAPES[type] ? type : "";
export const isData = (block: { type: string }): boolean => familyOf(block) === "data";
/** The known fields of each block. */
export const ownFields = (block: { type: string }): string[] => [
  "type",
  "id",
  "created_at",
  ...Object.keys(SHAPES[familyOf(block)] ?? {}),
];

export function need(is: boolean, what: string): void {
  if (!is) throw bad("NotAnEvent", `\`${what}\` is missing or wrong`);
}
export const needText = (value: unknown, what: string): void => need(typeof value === "string", what);

/** An object with defaults. Unknown fields are kept; an empty id or time counts as missing. */
export function fill(shape: Shape, value: any, what: string): Json {
  need(Object(value) === value && !Array.isArray(value), what);
  const out: Json = { ...shape, ...value };
  for (const key in shape) {
    out[key] ??= shape[key];
    need(out[key] !== undefined, key);
  }
  for (const key of ["id", "created_at"]) if (!(key in shape)) out[key] || delete out[key];
  return out;
}

export const list = <T>(value: any, what: string, each: (item: any) => T): T[] => {
  need(Array.isArray(value), what);
  return value.map(each);
};

const payload = (value: any, what: string) =>
  typeof value === "string" ? value : list(value, what, (part) => block(part, true));

export const error = (value: unknown): any => value && fill(REPLYERROR, value, "error");
export const toolCall = (value: any): any => block({ type: "tool_call", ...value });
export const toolResult = (value: any): any => block({ type: "tool_result", ...value });

/** A block as the core writes it. Inside (`inside`) hints and results there is only text and data. */
export function block(value: any, inside = false): ContentBlock {
  needText(value?.type, "type");
  const { type } = value;
  const family = familyOf(value);
  if (!family || (inside && !/^(text|data)$/.test(family))) return { ...value };
  const out = fill(SHAPES[family]!, value, type);
  if (family === "data") {
    const source: Json = (out["source"] = { ...out["source"] });
    needText(source["type"], "source");
    if (source["type"] === "base64") needText(source["data"], "data");
    if (source["type"] === "url") needText(source["url"], "url");
    source["media_type"] ?? delete source["media_type"];
    // The older media types show these fields only if they are set.
    if (type !== family) for (const key of ["name", "finished_at"]) out[key] ?? delete out[key];
  }
  if (type === "hint") out["hint"] = payload(out["hint"], type);
  if (type === "tool_result") out["output"] = payload(out["output"], "output");
  if (type === "tool_call") {
    out["suggested_rules"] = list(out["suggested_rules"], "suggested_rules", (rule) =>
      fill(PERMISSIONRULE, rule, "rule"),
    );
  }
  return out as ContentBlock;
}

/** The blocks that a role may hold. Unknown types are allowed everywhere. */
const HOLDS: Record<string, string> = {
  __proto__: null as never,
  user: "text data",
  system: "text",
  tool: "tool_result",
  assistant: `${Object.keys(SHAPES)}`,
};

export function checkRole(role: Role, content: readonly { type: string }[]): void {
  need(!!HOLDS[role], "role");
  for (const block of content)
    if (!HOLDS[role]!.includes(familyOf(block))) throw bad("WrongRole", `a ${role} message with a ${block.type} block`);
}

/** A message as the core writes it; throws if it is invalid. */
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
    throw (error as FoldError).kind === "WrongRole" ? error : bad(kind, error);
  }
}
