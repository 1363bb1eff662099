//! Generates the TypeScript types of messages, blocks and events, and the tables of defaults for its reader.
//!
//! They come from the declarations in the macros of `turnwire-core`. The few types that the core writes by hand
//! are written by hand here too; the vectors check them.

use std::fmt::Write;
use turnwire_core::event::ConfirmResult;
use turnwire_core::shape::{Field, Shape};
use turnwire_core::{
    Behavior, ErrorType, EventKind, FinishedReason, HintBlock, PermissionRule, ReplyError, Role,
    TextBlock, ThinkingBlock, ToolCall, ToolCallState, ToolResult, ToolResultState, Usage,
};

const HEAD: &str = "\
// Written by `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test typescript` from the Rust types.
// Changes belong there.

/** An object with any entries. */
export type Fields = Record<string, unknown>;

/** A value that may be unknown; editors offer the known ones. */
export type Word<W extends string> = W | (string & {});
";

/// The types that the core writes by hand.
const BY_HAND: &str = r#"
/** Bytes as base64. While the block is open, the last one to three characters may be an incomplete group. */
export interface Base64Source {
  type: "base64";
  data: string;
  /** Media type, such as `image/png`. */
  media_type?: string;
}

/** A URL to the bytes. */
export interface UrlSource {
  type: "url";
  url: string;
  media_type?: string;
}

export type Source = Base64Source | UrlSource;

/** Bytes (an image, audio, any file), or a URL to them. */
export interface DataBlock {
  type: "data" | "image" | "audio" | "video";
  id?: string;
  source: Source;
  /** File name. */
  name?: string | null;
  created_at?: string;
  finished_at?: string | null;
}

/** A block inside a hint or a tool result. */
export type Part = TextBlock | DataBlock;

/** Content of a hint or a tool result: plain text, or text and data blocks in order. */
export type Payload = string | Part[];

/** A message as JSON. */
export interface MsgJson {
  name: string;
  content: ContentBlock[];
  role: Role;
  /** The id of the reply that the message comes from. */
  id?: string;
  metadata: Fields;
  created_at?: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: FinishedReason | null;
  structured_output: unknown;
  error: ReplyError | null;
}

/** Fields of every event. */
export interface EventBase {
  id?: string;
  created_at?: string;
  metadata?: Fields;
  /** Position in the session's log, from 1. */
  seq?: number;
  /** In an event that merges several: position of the first. */
  seq_from?: number;
  /** The agents from the outermost to this one, such as `main/researcher`. */
  agent_path?: string;
  /** The tool call, in the reply of the agent above, that this agent works for. */
  parent_tool_call_id?: string;
}
"#;

const CONTENT_BLOCK: &str = "
/**
 * A typed part of a message. Blocks of an unknown type are kept unchanged: a `switch` over `type` needs a
 * `default`.
 */
";

const TABLES: &str = "
/** The default of each field if it is missing or null; `undefined`: the field is required. */
export type Shape = Record<string, unknown>;

/** The blocks by type. */
export const BLOCKS: Record<string, Shape> = {
";

pub(crate) fn write_model() -> String {
    let mut out = HEAD.to_owned();
    write_words(
        &mut out,
        "Role",
        "Role of a message's sender.",
        &Role::ALL.map(Role::as_str),
        true,
    );
    let lists: [(&str, &str, &[&str]); 5] = [
        ("ToolCallState", "State of a tool call.", ToolCallState::WORDS),
        ("ToolResultState", "State of a tool result.", ToolResultState::WORDS),
        ("FinishedReason", "Why a reply, or a model call, ended.", FinishedReason::WORDS),
        ("ErrorType", "Type of the error that ended a reply.", ErrorType::WORDS),
        ("Behavior", "Effect of a permission rule.", Behavior::WORDS),
    ];
    for (name, doc, list) in lists {
        write_words(&mut out, name, doc, list, false);
    }
    let objects = [
        TextBlock::SHAPE,
        ThinkingBlock::SHAPE,
        HintBlock::SHAPE,
        ToolCall::SHAPE,
        ToolResult::SHAPE,
        PermissionRule::SHAPE,
        Usage::SHAPE,
        ReplyError::SHAPE,
        ConfirmResult::SHAPE,
    ];
    for shape in &objects {
        let _ = write!(out, "\n/** {} */\nexport interface {} {{\n", shape.doc_text(), shape.name);
        if !shape.word.is_empty() {
            let _ = writeln!(out, "  type: \"{}\";", shape.word);
        }
        write_fields(&mut out, shape.fields);
        if shape.name == "ThinkingBlock" {
            out.push_str("  /** Fields of the provider, such as `signature`. */\n  [extra: string]: unknown;\n");
        }
        out.push_str("}\n");
    }
    out.push_str(BY_HAND);
    let blocks = objects.iter().filter(|shape| !shape.word.is_empty());
    let names: Vec<&str> = blocks.clone().map(|shape| shape.name).chain(["DataBlock"]).collect();
    let _ = writeln!(out, "{CONTENT_BLOCK}export type ContentBlock = {};", names.join(" | "));
    write_events(&mut out);
    out.push_str(TABLES);
    for shape in blocks {
        let _ = writeln!(out, "  {}: {},", shape.word, write_defaults(shape));
    }
    out.push_str("};\n");
    for shape in [PermissionRule::SHAPE, Usage::SHAPE, ReplyError::SHAPE] {
        let name = shape.name.to_uppercase();
        let _ = writeln!(out, "export const {name}: Shape = {};", write_defaults(&shape));
    }
    out
}

fn write_words(out: &mut String, name: &str, doc: &str, words: &[&str], closed: bool) {
    let list: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let list = list.join(" | ");
    let list = if closed { list } else { format!("Word<{list}>") };
    let _ = write!(out, "\n/** {doc} */\nexport type {name} = {list};\n");
}

fn write_events(out: &mut String) {
    let mut names = Vec::new();
    for shape in EventKind::SHAPES {
        let name = format!("{}Event", shape.name);
        let _ = write!(
            out,
            "\n/** {} */\nexport interface {name} extends EventBase {{\n  type: \"{}\";\n",
            shape.doc_text(),
            shape.word
        );
        out.push_str(match shape.word {
            "MESSAGE" | "SUPERSEDE" | "RESET" => "",
            "CUSTOM" | "REQUEST_STOP" | "ALL_TOOLS_DENIED" | "SUBAGENT_EXPOSED" => {
                "  reply_id?: string;\n"
            }
            _ => "  reply_id: string;\n",
        });
        write_fields(out, shape.fields);
        out.push_str("}\n");
        names.push(name);
    }
    let _ = write!(
        out,
        "\n/** One increment of a reply, or an input to it. Events of an unknown type are delivered, too. */\n\
         export type Event =\n  | {};\n",
        names.join("\n  | ")
    );
    out.push_str(
        "\n/** The types of events. */\nexport const EventType = /* @__PURE__ */ Object.fromEntries(\n  (\n",
    );
    // As one string: a list of pairs would be a tenth of the bundle.
    for (at, words) in EventKind::TYPES.chunks(4).enumerate() {
        let joint = if at == 0 { "  " } else { "+ " };
        let _ = writeln!(out, "    {joint}\"{} \"", words.join(" "));
    }
    out.push_str("  )\n    .trim()\n    .split(\" \")\n    .map((type) => [type, type]),\n) as { readonly [T in Event[\"type\"]]: T };\nexport type EventType = Event[\"type\"];\n");
}

fn write_fields(out: &mut String, fields: &[Field]) {
    for field in fields {
        let name = field.name.trim_start_matches("r#");
        match field.kind {
            "Chunk<'a>" => {
                out.push_str("  /** Base64, cut anywhere. */\n  data?: string | null;\n");
                out.push_str("  /** URL of the bytes, instead. */\n  url?: string | null;\n");
                continue;
            }
            "TokenCounts" => {
                for field in Usage::SHAPE.fields {
                    let _ = writeln!(out, "  {}: number;", field.name);
                }
                continue;
            }
            _ => {}
        }
        let (optional, kind) = match (field.need, field.kind.strip_prefix("Option<")) {
            ("needed" | "default" | "lead" | "list", None) => ("", field.kind),
            ("known" | "optional" | "ours", None) | ("default" | "nullable", Some(_)) => {
                ("?", field.kind)
            }
            ("optional" | "ours", Some(kind)) => ("?", kind.trim_end_matches('>')),
            other => panic!("field {name}: no TypeScript for {other:?}"),
        };
        let _ = writeln!(
            out,
            "  /** {} */\n  {name}{optional}: {};",
            field.doc_text(),
            typescript_type(kind)
        );
    }
}

/// A Rust type in TypeScript.
fn typescript_type(kind: &str) -> String {
    if let Some(kind) = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{} | null", typescript_type(kind));
    }
    if let Some(kind) = kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{}[]", typescript_type(kind));
    }
    match kind {
        "String" | "Text<'a>" => "string".to_owned(),
        "i64" => "number".to_owned(),
        "bool" => "boolean".to_owned(),
        "Json" | "CustomValue" => "unknown".to_owned(),
        "Box<Msg>" => "MsgJson".to_owned(),
        "Box<ContentBlock>" => "ContentBlock".to_owned(),
        named => named.to_owned(),
    }
}

/// The defaults that a reader fills in. Ids and timestamps may always be missing.
fn write_defaults(shape: &Shape) -> String {
    let fields = shape.fields.iter().filter(|field| field.need != "known");
    let fields: Vec<String> = fields
        .map(|field| format!("{}: {}", field.name.trim_start_matches("r#"), default_value(field)))
        .collect();
    format!("{{ {} }}", fields.join(", "))
}

fn default_value(field: &Field) -> String {
    let word = |word: &str| format!("\"{word}\"");
    match (field.need, field.kind) {
        ("needed", _) => "undefined".to_owned(),
        ("nullable", _) => "null".to_owned(),
        ("list", _) | (_, "Payload") => "[]".to_owned(),
        (_, "Fields") => "{}".to_owned(),
        (_, "i64") => "0".to_owned(),
        (_, "String") => word(""),
        (_, "ToolCallState") => word(ToolCallState::default().as_str()),
        (_, "ToolResultState") => word(ToolResultState::default().as_str()),
        (_, "ErrorType") => word(ErrorType::default().as_str()),
        (_, "Behavior") => word(Behavior::default().as_str()),
        other => panic!("field {}: no default for {other:?}", field.name),
    }
}
