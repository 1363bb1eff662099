//! Generates the Python types of messages, blocks and events from the declarations in the macros of
//! `turnwire-core`, as `tests/typescript/types.rs` does for TypeScript. The few types that the core writes by hand are
//! written by hand here, too.

use std::fmt::Write;
use turnwire_core::event::ConfirmResult;
use turnwire_core::shape::Field;
use turnwire_core::{
    Behavior, ErrorType, EventKind, FinishedReason, HintBlock, PermissionRule, ReplyError, Role,
    TextBlock, ThinkingBlock, ToolCall, ToolCallState, ToolResult, ToolResultState, Usage,
};

const HEAD: &str = r#""""The JSON of messages, blocks and events, as dictionaries.

Written by `TURNWIRE_WRITE=1 cargo test -p turnwire-testkit --test python` from the Rust types. Changes belong there.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict, Union

from typing_extensions import NotRequired

# An object with any entries.
Fields: TypeAlias = "dict[str, Any]"
"#;

/// The types that the core writes by hand.
const BY_HAND: &str = r#"

class Base64Source(TypedDict):
    """Bytes as base64. While the block is open, the last one to three characters may be an incomplete group."""

    type: Literal["base64"]
    data: str
    # Media type, such as `image/png`.
    media_type: NotRequired[str]


class UrlSource(TypedDict):
    """A URL to the bytes."""

    type: Literal["url"]
    url: str
    media_type: NotRequired[str]


Source: TypeAlias = Union[Base64Source, UrlSource]


class DataBlock(TypedDict):
    """Bytes (an image, audio, any file), or a URL to them."""

    type: Literal["data", "image", "audio", "video"]
    id: NotRequired[str]
    source: Source
    # File name.
    name: NotRequired[str | None]
    created_at: NotRequired[str]
    finished_at: NotRequired[str | None]


# A block inside a hint or a tool result.
Part: TypeAlias = Union["TextBlock", DataBlock]

# Content of a hint or a tool result: plain text, or text and data blocks in order.
Payload: TypeAlias = Union[str, "list[Part]"]


class MsgJson(TypedDict):
    """A message as JSON."""

    name: str
    content: list[ContentBlock]
    role: Role
    # The id of the reply that the message comes from.
    id: NotRequired[str]
    metadata: Fields
    created_at: NotRequired[str]
    usage: Usage | None
    finished_at: str | None
    finished_reason: FinishedReason | None
    structured_output: Any
    error: ReplyError | None


class Cursor(TypedDict):
    """The state of a message's fold: which events were applied."""

    started: bool
    whole: NotRequired[bool]
    seq: NotRequired[int]
    ids: NotRequired[list[str]]


class EventBase(TypedDict, total=False):
    """Fields of every event."""

    id: str
    created_at: str
    metadata: Fields
    # Position in the session's log, from 1.
    seq: int
    # In an event that merges several: position of the first.
    seq_from: int
    # The agents from the outermost to this one, such as `main/researcher`.
    agent_path: str
    # The tool call, in the reply of the agent above, that this agent works for.
    parent_tool_call_id: str
"#;

/// The longest line that the formatter leaves alone.
const LINE: usize = 120;

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
        write_class(&mut out, shape.name, "TypedDict", &shape.doc_text());
        if !shape.word.is_empty() {
            let _ = writeln!(out, "    type: Literal[\"{}\"]", shape.word);
        }
        write_fields(&mut out, shape.fields);
        if shape.name == "ThinkingBlock" {
            out.push_str("    # Of the provider: proves that the thinking is its own.\n    signature: NotRequired[str]\n");
        }
    }
    out.push_str(BY_HAND);
    let blocks = objects.iter().filter(|shape| !shape.word.is_empty());
    let names: Vec<&str> = blocks.map(|shape| shape.name).chain(["DataBlock"]).collect();
    out.push_str(
        "\n\n# A typed part of a message. Blocks of an unknown type are kept unchanged.\n",
    );
    write_union(&mut out, "ContentBlock", &names);
    write_events(&mut out);
    out
}

fn write_class(out: &mut String, name: &str, base: &str, doc: &str) {
    let _ = write!(out, "\n\nclass {name}({base}):\n");
    let stop = if doc.ends_with('.') { "" } else { "." };
    if doc.len() + 11 + stop.len() <= LINE {
        let _ = write!(out, "    \"\"\"{doc}{stop}\"\"\"\n\n");
        return;
    }
    let lines = wrap(&format!("{doc}{stop}"), LINE - 8);
    let _ = write!(out, "    \"\"\"{}\n    \"\"\"\n\n", lines.join("\n    "));
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().unwrap();
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn write_words(out: &mut String, name: &str, doc: &str, words: &[&str], closed: bool) {
    let list: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let _ = write!(out, "\n# {doc}\n");
    let (list, start) = (list.join(", "), format!("{name}: TypeAlias = "));
    if closed {
        let _ = writeln!(out, "{start}Literal[{list}]");
    } else if start.len() + list.len() + 21 <= LINE {
        let _ = writeln!(out, "{start}Union[Literal[{list}], str]");
    } else {
        let each: Vec<String> = words.iter().map(|word| format!("        \"{word}\",\n")).collect();
        if list.len() + 13 <= LINE {
            let _ = writeln!(out, "{start}Union[\n    Literal[{list}],\n    str,\n]");
        } else {
            let each = each.concat();
            let _ = writeln!(out, "{start}Union[\n    Literal[\n{each}    ],\n    str,\n]");
        }
    }
}

fn write_union(out: &mut String, name: &str, names: &[&str]) {
    let line = format!("{name}: TypeAlias = Union[{}]\n", names.join(", "));
    if line.len() <= LINE + 1 {
        out.push_str(&line);
        return;
    }
    let names: Vec<String> = names.iter().map(|name| format!("    {name},\n")).collect();
    let _ = writeln!(out, "{name}: TypeAlias = Union[\n{}]", names.concat());
}

fn write_events(out: &mut String) {
    let mut names = Vec::new();
    for shape in EventKind::SHAPES {
        let name = format!("{}Event", shape.name);
        write_class(out, &name, "EventBase", &shape.doc_text());
        let _ = writeln!(out, "    type: Literal[\"{}\"]", shape.word);
        out.push_str(match shape.word {
            "MESSAGE" | "SUPERSEDE" | "RESET" => "",
            "CUSTOM" | "REQUEST_STOP" | "ALL_TOOLS_DENIED" | "SUBAGENT_EXPOSED" => {
                "    reply_id: NotRequired[str]\n"
            }
            _ => "    reply_id: str\n",
        });
        write_fields(out, shape.fields);
        names.push(name);
    }
    out.push_str(
        "\n\n# One increment of a reply, or an input to it. Events of an unknown type are delivered, too.\n",
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    write_union(out, "Event", &names);
}

fn write_fields(out: &mut String, fields: &[Field]) {
    for field in fields {
        let name = field.name.trim_start_matches("r#");
        match field.kind {
            "Chunk<'a>" => {
                out.push_str("    # Base64, cut anywhere.\n    data: NotRequired[str | None]\n");
                out.push_str(
                    "    # URL of the bytes, instead.\n    url: NotRequired[str | None]\n",
                );
                continue;
            }
            "TokenCounts" => {
                for field in Usage::SHAPE.fields {
                    let _ = writeln!(out, "    {}: int", field.name);
                }
                continue;
            }
            _ => {}
        }
        let (optional, kind) = match (field.need, field.kind.strip_prefix("Option<")) {
            ("needed" | "default" | "lead" | "list", None) => (false, field.kind),
            ("known" | "optional" | "ours", None) | ("default" | "nullable", Some(_)) => {
                (true, field.kind)
            }
            ("optional" | "ours", Some(kind)) => (true, kind.trim_end_matches('>')),
            other => panic!("field {name}: no Python type for {other:?}"),
        };
        for line in wrap(&field.doc_text(), LINE - 6) {
            let _ = writeln!(out, "    # {line}");
        }
        let kind = python_type(kind);
        let kind = if optional { format!("NotRequired[{kind}]") } else { kind };
        let _ = writeln!(out, "    {name}: {kind}");
    }
}

/// A Rust type in Python.
fn python_type(kind: &str) -> String {
    if let Some(kind) = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{} | None", python_type(kind));
    }
    if let Some(kind) = kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("list[{}]", python_type(kind));
    }
    match kind {
        "String" | "Text<'a>" => "str",
        "i64" => "int",
        "bool" => "bool",
        "Json" | "CustomValue" => "Any",
        "Box<Msg>" => "MsgJson",
        "Box<ContentBlock>" => "ContentBlock",
        named => named,
    }
    .to_owned()
}
