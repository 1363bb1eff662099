// Reads what came from outside: checks it, and fills in what was left out, as the core does.

import { bad, type Problem } from "./error.js";
import { OBJECTS, type ContentBlock, type MsgJson, type Role, type Shape } from "./generated/model.js";

export type Json = Record<string, unknown>;

const MEDIA = /^(?:data|image|audio|video)$/;
const SHAPE_OF: Record<string, string> = {
  text: "TextBlock",
  thinking: "ThinkingBlock",
  hint: "HintBlock",
  tool_call: "ToolCall",
  tool_result: "ToolResult",
};
const DATA: Shape = { id: "~s", source: "!OSource", name: "?s", created_at: "~s", finished_at: "?s" };
// The older media never had these fields: they show only where they are set.
const OLDER: Shape = { ...DATA, name: "-s", finished_at: "-s" };
const SOURCES: Record<string, Shape> = {
  base64: { data: "!s", media_type: "-s" },
  url: { url: "!s", media_type: "-s" },
};
const MSG: Shape = {
  role: "!r",
  content: "!C",
  name: "=s",
  id: "~s",
  metadata: "=o",
  created_at: "~s",
  usage: "?OUsage",
  finished_at: "?s",
  finished_reason: "?s",
  structured_output: "?j",
  error: "?OReplyError",
};

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrong(what: string): never {
  throw bad("NotAnEvent", what);
}

function object(value: unknown, what: string): Json {
  return isObject(value) ? value : wrong(`${what} is no object`);
}

/** An object with its fields checked and its defaults filled in; those that we do not know stay. */
export function read(shape: Shape, value: Json, what: string): Json {
  const out = { ...value };
  for (const key in shape) {
    const code = shape[key]!;
    const [need, type] = code;
    const found = value[key];
    if (found == null) {
      if (need === "!") wrong(`${what} has no \`${key}\``);
      if (need === "=") out[key] = initial(type!, code.slice(2));
      else if (need === "?") out[key] = null;
      else delete out[key];
    } else if (need === "~" && found === "") {
      delete out[key];
    } else {
      out[key] = item(type!, code.slice(2), found, `${what}.${key}`);
    }
  }
  return out;
}

function initial(type: string, word: string): unknown {
  if (type === "s" || type === "r") return word;
  if (type === "n") return 0;
  return type === "o" || type === "j" ? {} : [];
}

function item(type: string, name: string, value: unknown, what: string): unknown {
  switch (type) {
    case "j":
      return value;
    case "s":
      return typeof value === "string" ? value : wrong(`${what} is no text`);
    case "n":
      return Number.isInteger(value) ? value : wrong(`${what} is no whole number`);
    case "b":
      return typeof value === "boolean" ? value : wrong(`${what} is neither true nor false`);
    case "r":
      return /^(?:user|assistant|system|tool)$/.test(value as string) && typeof value === "string"
        ? value
        : wrong(`${what} is no role`);
    case "o":
      return object(value, what);
    case "O":
      return named(name, value, what);
    case "p":
      if (typeof value === "string") return value;
      return list(value, what, part);
    case "C":
      if (typeof value === "string") return [{ type: "text", text: value, finished_at: null }];
      return list(value, what, block);
    case "S":
      return list(value, what, (each, at) => item("s", "", each, at));
    default:
      return list(value, what, (each, at) => named(name, each, at));
  }
}

function list<T>(value: unknown, what: string, each: (item: unknown, what: string) => T): T[] {
  if (!Array.isArray(value)) wrong(`${what} is no list`);
  return (value as unknown[]).map((item, at) => each(item, `${what}[${at}]`));
}

function named(name: string, value: unknown, what: string): unknown {
  if (name === "Msg") return readMsg(value, "NotAnEvent");
  if (name === "ContentBlock") return block(value, what);
  if (name === "Source") {
    const { source, type } = typed(value, what);
    const shape = SOURCES[type];
    return shape ? read(shape, source, what) : { ...source };
  }
  const fields = object(value, what);
  const word = Object.keys(SHAPE_OF).find((word) => SHAPE_OF[word] === name);
  if (word && (fields["type"] ?? word) !== word) wrong(`${what} is no ${word}`);
  const out = read(OBJECTS[name]!, fields, what);
  return word ? { ...out, type: word } : out;
}

function typed(value: unknown, what: string): { source: Json; type: string } {
  const source = object(value, what);
  return { source, type: item("s", "", source["type"], `${what}.type`) as string };
}

export function block(value: unknown, what: string): ContentBlock {
  const { source, type } = typed(value, what);
  const name = Object.hasOwn(SHAPE_OF, type) && SHAPE_OF[type];
  return (name ? read(OBJECTS[name]!, source, what) : media(source, type, what)) as unknown as ContentBlock;
}

function part(value: unknown, what: string): unknown {
  const { source, type } = typed(value, what);
  return type === "text" ? read(OBJECTS["TextBlock"]!, source, what) : media(source, type, what);
}

function media(source: Json, type: string, what: string): Json {
  if (!MEDIA.test(type)) return { ...source };
  return read(type === "data" ? DATA : OLDER, source, what);
}

/** What a role may hold. A type that we do not know may stand anywhere: nobody can tell what it is. */
const HOLDS: Record<Role, RegExp> = {
  user: /^(?!thinking$|hint$|tool_call$|tool_result$)/,
  system: /^(?!thinking$|hint$|tool_call$|tool_result$|data$|image$|audio$|video$)/,
  tool: /^(?!thinking$|hint$|tool_call$|text$|data$|image$|audio$|video$)/,
  assistant: /^/,
};

export function checkRole(role: Role, type: string, id?: string): void {
  if (!HOLDS[role].test(type)) {
    throw bad("WrongRole", `a ${role} message cannot hold the ${type} block${id ? ` ${id}` : ""}`);
  }
}

/** A message as the core writes it, or why it is none. */
export function readMsg(value: unknown, kind: Problem = "NotAMessage"): MsgJson {
  try {
    const fields = object(value, "a message");
    const content = fields["content"] === null ? [] : fields["content"];
    const msg = read(MSG, { ...fields, content }, "a message") as unknown as MsgJson;
    for (const block of msg.content) checkRole(msg.role, block.type, block.id);
    return msg;
  } catch (error) {
    const problem = error as ReturnType<typeof bad>;
    throw problem.kind === "WrongRole" ? problem : bad(kind, problem.message);
  }
}
