//! The types of messages, blocks and events in TypeScript, and the tables by which its reader checks them.
//!
//! Everything that the macros of the core declare is written from what they say. The few types that the
//! core writes by hand are written by hand here too; `the_vectors_…` pins them.

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

/** An object whose entries are anything. */
export type Fields = Record<string, unknown>;

/** A word that this version may not know; those that it knows are offered. */
export type Word<W extends string> = W | (string & {});
";

/// By hand: what the core writes by hand.
const BY_HAND: &str = r#"
/** Bytes as base64. While the block is open the last one to three characters may be the beginning of a group. */
export interface Base64Source {
  type: "base64";
  data: string;
  /** What the bytes are, such as `image/png`. */
  media_type?: string;
}

/** A URL to the bytes. */
export interface UrlSource {
  type: "url";
  url: string;
  media_type?: string;
}

export type Source = Base64Source | UrlSource;

/** Bytes (an image, sound, any file), or a URL to them. */
export interface DataBlock {
  type: "data" | "image" | "audio" | "video";
  id?: string;
  source: Source;
  /** A file's name. */
  name?: string | null;
  created_at?: string;
  finished_at?: string | null;
}

/** A block inside a hint or a tool's output. */
export type Part = TextBlock | DataBlock;

/** What a hint says or a tool gives: plain text, or text and data in order. */
export type Payload = string | Part[];

/**
 * A typed part of a message. One of a type that this version does not know is kept as it came: a `switch`
 * over `type` needs a `default`.
 */
export type ContentBlock = TextBlock | ThinkingBlock | DataBlock | HintBlock | ToolCall | ToolResult;

/** A message as JSON. */
export interface MsgJson {
  name: string;
  content: ContentBlock[];
  role: Role;
  /** The id of the reply that it came from. */
  id?: string;
  metadata: Fields;
  created_at?: string;
  usage: Usage | null;
  finished_at: string | null;
  finished_reason: FinishedReason | null;
  structured_output: unknown;
  error: ReplyError | null;
}

/** What every event has. */
export interface EventBase {
  id?: string;
  created_at?: string;
  metadata?: Fields;
  /** Its place in the session's log, from 1. */
  seq?: number;
  /** The first of the places that it covers, where several events were merged into this one. */
  seq_from?: number;
  /** The agents from the outermost to this one, such as `main/researcher`. */
  agent_path?: string;
  /** The call, in the reply of the agent above, that this one works for. */
  parent_tool_call_id?: string;
}
"#;

const TABLES: &str = r#"
/**
 * How a field is read: whether it has to be there (`!` needed, `=` has a default, `?` is null without,
 * `-` is left out without, `~` the same and also when it is empty), what it is (`s` text, `n` number, `b`
 * yes or no, `r` role, `o` object, `j` anything, `S` texts, `p` payload, `O` an object
 * of a shape, `L` several), and its default or shape.
 */
export type Shape = Record<string, string>;
"#;

pub(crate) fn written() -> String {
    let mut out = HEAD.to_owned();
    words(&mut out, "Role", "Who speaks.", &Role::ALL.map(Role::as_str), true);
    let lists: [(&str, &str, &[&str]); 5] = [
        ("ToolCallState", "How far a tool call has come.", ToolCallState::WORDS),
        ("ToolResultState", "What came of a tool call.", ToolResultState::WORDS),
        ("FinishedReason", "Why a reply, or a model call, ended.", FinishedReason::WORDS),
        ("ErrorType", "What kind of error ended a reply.", ErrorType::WORDS),
        ("Behavior", "What a permission rule does.", Behavior::WORDS),
    ];
    for (name, doc, list) in lists {
        words(&mut out, name, doc, list, false);
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
        let _ = write!(out, "\n/** {} */\nexport interface {} {{\n", doc(shape.doc), shape.name);
        if !shape.word.is_empty() {
            let _ = writeln!(out, "  type: \"{}\";", shape.word);
        }
        fields(&mut out, shape.fields);
        if shape.name == "ThinkingBlock" {
            out.push_str("  /** What the provider adds, such as `signature`. */\n  [extra: string]: unknown;\n");
        }
        out.push_str("}\n");
    }
    out.push_str(BY_HAND);
    events(&mut out);
    out.push_str(TABLES);
    table(&mut out, "OBJECTS", &objects, |shape| shape.name);
    table(&mut out, "EVENTS", EventKind::SHAPES, |shape| shape.word);
    out
}

fn words(out: &mut String, name: &str, doc: &str, words: &[&str], closed: bool) {
    let list: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let list = list.join(" | ");
    let list = if closed { list } else { format!("Word<{list}>") };
    let _ = write!(out, "\n/** {doc} */\nexport type {name} = {list};\n");
}

fn events(out: &mut String) {
    let mut names = Vec::new();
    for shape in EventKind::SHAPES {
        let name = format!("{}Event", shape.name);
        let _ = write!(
            out,
            "\n/** {} */\nexport interface {name} extends EventBase {{\n  type: \"{}\";\n",
            doc(shape.doc),
            shape.word
        );
        out.push_str(match shape.word {
            "MESSAGE" | "SUPERSEDE" | "RESET" => "",
            "CUSTOM" | "REQUEST_STOP" | "ALL_TOOLS_DENIED" | "SUBAGENT_EXPOSED" => {
                "  reply_id?: string;\n"
            }
            _ => "  reply_id: string;\n",
        });
        fields(out, shape.fields);
        out.push_str("}\n");
        names.push(name);
    }
    let _ = write!(
        out,
        "\n/** One increment of a reply, or an input to it. One of a type that this version does not know is handed on, too. */\n\
         export type Event =\n  | {};\n",
        names.join("\n  | ")
    );
    out.push_str(
        "\n/** The types of events. */\nexport const EventType = /* @__PURE__ */ Object.freeze({\n",
    );
    for word in EventKind::TYPES {
        let _ = writeln!(out, "  {word}: \"{word}\",");
    }
    out.push_str("});\nexport type EventType = Event[\"type\"];\n");
}

fn fields(out: &mut String, fields: &[Field]) {
    for field in fields {
        let name = field.name.trim_start_matches("r#");
        match field.kind {
            "Chunk<'a>" => {
                out.push_str("  /** Base64, cut anywhere. */\n  data?: string | null;\n");
                out.push_str("  /** Where the bytes are, instead. */\n  url?: string | null;\n");
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
            ("known" | "optional" | "ours", None) => ("?", field.kind),
            ("optional" | "ours", Some(kind)) => ("?", kind.trim_end_matches('>')),
            ("default" | "nullable", Some(_)) => ("?", field.kind),
            other => panic!("a field {name} that is {other:?}"),
        };
        let _ = writeln!(out, "  /** {} */\n  {name}{optional}: {};", doc(field.doc), typed(kind));
    }
}

/// A Rust type in TypeScript.
fn typed(kind: &str) -> String {
    if let Some(kind) = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{} | null", typed(kind));
    }
    if let Some(kind) = kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{}[]", typed(kind));
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

fn table(out: &mut String, name: &str, shapes: &[Shape], key: impl Fn(&Shape) -> &'static str) {
    let _ = write!(out, "\nexport const {name}: Record<string, Shape> = {{\n");
    for shape in shapes {
        let mut codes = Vec::new();
        for field in shape.fields {
            match field.kind {
                "Chunk<'a>" => codes.extend(["data: \"-s\"".to_owned(), "url: \"-s\"".to_owned()]),
                "TokenCounts" => codes.extend(
                    Usage::SHAPE.fields.iter().map(|field| format!("{}: \"=n\"", field.name)),
                ),
                _ => codes.push(format!(
                    "{}: \"{}\"",
                    field.name.trim_start_matches("r#"),
                    code(field)
                )),
            }
        }
        let codes = codes.join(", ");
        let codes = if codes.is_empty() { codes } else { format!(" {codes} ") };
        let _ = writeln!(out, "  {}: {{{codes}}},", key(shape));
    }
    out.push_str("};\n");
}

fn code(field: &Field) -> String {
    let inner = field.kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>'));
    let need = match (field.need, inner) {
        ("needed", _) => '!',
        ("default" | "nullable", Some(_)) => '?',
        ("default" | "list" | "lead", None) => '=',
        ("known", _) => '~',
        _ => '-',
    };
    let kind = inner.unwrap_or(field.kind);
    let kind = match kind {
        "String" | "Text<'a>" => "s".to_owned(),
        "i64" => "n".to_owned(),
        "bool" => "b".to_owned(),
        "Json" | "CustomValue" => "j".to_owned(),
        "Fields" => "o".to_owned(),
        "Role" => format!("r{}", Role::default()),
        "Payload" => "p".to_owned(),
        "Vec<String>" => "S".to_owned(),
        "ToolCallState" => format!("s{}", ToolCallState::default()),
        "ToolResultState" => format!("s{}", ToolResultState::default()),
        "FinishedReason" => format!("s{}", FinishedReason::default()),
        "ErrorType" => format!("s{}", ErrorType::default()),
        "Behavior" => format!("s{}", Behavior::default()),
        "Box<Msg>" => "OMsg".to_owned(),
        "Box<ContentBlock>" => "OContentBlock".to_owned(),
        kind => match kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
            Some(item) => format!("L{item}"),
            None => format!("O{kind}"),
        },
    };
    format!("{need}{kind}")
}

/// The text of attributes such as `doc = r" Which block."`.
fn doc(attributes: &str) -> String {
    let parts = attributes.split("doc =").map(|part| {
        let part = part.trim();
        part.strip_prefix('r')
            .unwrap_or(part)
            .trim_matches('"')
            .replace("\\\"", "\"")
            .trim()
            .to_owned()
    });
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
