//! The fast path for deltas, which are most of a stream: no trees, and nothing copied that can be
//! borrowed. Everything else is left to [`event`](super::event), which gives the same result.

use super::KEPT_FIELD;
use super::open_replies::{OpenReplies, path_of};
use crate::stream::{EventSink, Frames};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use turnwire_core::event::{
    TextBlockDelta, ThinkingBlockDelta, ToolCallDelta, ToolResultTextDelta,
};
use turnwire_core::{Error, ErrorKind, Event, EventKind, Fields, Json, Result, Seq};

/// Parses a frame as an object.
pub(super) fn parse(text: &str) -> Result<Fields> {
    serde_json::from_str(text).map_err(|error| {
        let kind = if error.is_data() { ErrorKind::NotAnEvent } else { ErrorKind::NotJson };
        Error::new(kind, error.to_string())
    })
}

/// A delta of Java's. Any other field, or a null, is left to the general path.
#[derive(Default)]
struct JavaDelta<'a> {
    word: Cow<'a, str>,
    id: Option<Cow<'a, str>>,
    created_at: Option<Cow<'a, str>>,
    reply_id: Cow<'a, str>,
    block_id: Option<Cow<'a, str>>,
    call: Option<Cow<'a, str>>,
    tool: Option<Cow<'a, str>>,
    delta: Option<Cow<'a, str>>,
    source: Option<Cow<'a, str>>,
    metadata: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for JavaDelta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = JavaDelta<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a delta")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut delta = JavaDelta::default();
                while let Some(CowStr(key)) = map.next_key()? {
                    if key == "metadata" {
                        delta.metadata = Some(map.next_value()?);
                        continue;
                    }
                    let CowStr(value) = map.next_value()?;
                    match &*key {
                        "type" if is_delta(&value) => delta.word = value,
                        "id" => delta.id = Some(value),
                        "createdAt" => delta.created_at = Some(value),
                        "replyId" => delta.reply_id = value,
                        "blockId" => delta.block_id = Some(value),
                        "toolCallId" => delta.call = Some(value),
                        "toolCallName" => delta.tool = Some(value),
                        "delta" => delta.delta = Some(value),
                        "source" => delta.source = Some(value),
                        _ => return Err(A::Error::custom("no delta")),
                    }
                }
                Ok(delta)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

fn is_delta(word: &str) -> bool {
    matches!(
        word,
        "TEXT_BLOCK_DELTA" | "THINKING_BLOCK_DELTA" | "TOOL_CALL_DELTA" | "TOOL_RESULT_TEXT_DELTA"
    )
}

/// A string, borrowed if it has no escapes.
struct CowStr<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for CowStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(TextVisitor).map(CowStr)
    }
}

/// The metadata of an event whose only patch is its position in the log.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedMetadata {
    turnwire: SetPatch<SeqPatch>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetPatch<T> {
    set: T,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeqPatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq_from: Option<Seq>,
}

/// The kept fields of a delta: the ids that Java gave it. The keys are in the order of a patch.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdPatch<'a> {
    #[serde(borrow, default, rename = "blockId", skip_serializing_if = "Option::is_none")]
    block: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "replyId", skip_serializing_if = "Option::is_none")]
    reply: Option<Cow<'a, str>>,
}

/// Reads a delta. Returns false if it is left to the general path.
pub(super) fn read_delta(text: &str, track: &OpenReplies, out: &mut EventSink<'_>) -> bool {
    let Ok(java) = serde_json::from_str::<JavaDelta<'_>>(text) else { return false };
    to_event(java, track).map(out).is_some()
}

fn to_event<'a>(java: JavaDelta<'a>, track: &'a OpenReplies) -> Option<Event<'a>> {
    let JavaDelta {
        word, id, created_at, reply_id: own, block_id, call, tool, delta, source, ..
    } = java;
    let is_said = |text: &Option<Cow<'_, str>>| text.as_deref() != Some("");
    if own.is_empty() || !is_said(&id) || !is_said(&created_at) {
        return None;
    }
    let places = match java.metadata {
        Some(metadata) => {
            serde_json::from_str::<CarriedMetadata>(metadata.get()).ok()?.turnwire.set
        }
        None => SeqPatch::default(),
    };
    let path = source.as_deref();
    let outer = track.outer_reply_id(path, &own);
    let step_of = (*outer != *own).then(|| outer.into_owned());
    let mut ids = IdPatch::default();
    let delta = delta?;
    let kind: EventKind<'a> = match (&*word, block_id, call, tool) {
        ("TEXT_BLOCK_DELTA" | "THINKING_BLOCK_DELTA", Some(block), None, None) => {
            let block_id = match track.block_id(path, &own, &block) {
                Cow::Borrowed(_) => block,
                Cow::Owned(block_id) => {
                    ids.block = Some(block);
                    Cow::Owned(block_id)
                }
            };
            if word == "TEXT_BLOCK_DELTA" {
                TextBlockDelta { block_id, delta }.into()
            } else {
                ThinkingBlockDelta { block_id, delta }.into()
            }
        }
        ("TOOL_CALL_DELTA" | "TOOL_RESULT_TEXT_DELTA", None, Some(call), tool)
            if tool.as_deref() == track.tool_name(path, &call) =>
        {
            if word == "TOOL_CALL_DELTA" {
                ToolCallDelta { tool_call_id: call, delta }.into()
            } else {
                ToolResultTextDelta { tool_call_id: call, delta }.into()
            }
        }
        _ => return None,
    };
    let reply_id = match step_of {
        Some(reply_id) => {
            ids.reply = Some(own);
            Cow::Owned(reply_id)
        }
        None => own,
    };
    let mut event = Event::new(reply_id, kind);
    if ids.block.is_some() || ids.reply.is_some() {
        event.rest.insert(KEPT_FIELD, Json::from_value(&SetPatch { set: ids }).ok()?);
    }
    event.id = id.unwrap_or_default();
    event.created_at = created_at.unwrap_or_default();
    event.agent = source.map(|path| {
        Box::new(turnwire_core::event::SubAgent {
            agent_path: Some(path.into_owned()),
            parent_tool_call_id: None,
        })
    });
    event.seq = places.seq;
    event.seq_from = places.seq_from;
    Some(event)
}

/// A delta as Java writes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenDelta<'e> {
    r#type: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    created_at: &'e str,
    reply_id: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_id: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_name: Option<&'e str>,
    delta: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<CarriedMetadata>,
}

/// Writes a delta. Returns false if it is left to the general path.
pub(super) fn write_delta(event: &Event<'_>, track: &OpenReplies, out: &mut Frames) -> bool {
    try_write(event, track, out).is_some()
}

fn try_write(event: &Event<'_>, track: &OpenReplies, out: &mut Frames) -> Option<()> {
    let (block, call, delta) = match &event.kind {
        EventKind::TextBlockDelta(event) => (Some(&*event.block_id), None, &*event.delta),
        EventKind::ThinkingBlockDelta(event) => (Some(&*event.block_id), None, &*event.delta),
        EventKind::ToolCallDelta(event) => (None, Some(&*event.tool_call_id), &*event.delta),
        EventKind::ToolResultTextDelta(event) => (None, Some(&*event.tool_call_id), &*event.delta),
        _ => return None,
    };
    let is_plain = event.metadata.is_empty()
        && !event.reply_id.is_empty()
        && event
            .agent
            .as_ref()
            .is_none_or(|agent| agent.parent_tool_call_id.is_none() && agent.agent_path.is_some());
    if !is_plain {
        return None;
    }
    let ids = match (event.rest.len(), event.rest.raw(KEPT_FIELD)) {
        (0, _) => IdPatch::default(),
        (1, Some(kept)) => serde_json::from_str::<SetPatch<IdPatch<'_>>>(kept.text()).ok()?.set,
        _ => return None,
    };
    let path = path_of(event);
    let own = ids.reply.as_deref().unwrap_or(&event.reply_id);
    // Each one only if it differs.
    let comes_back = track.outer_reply_id(path, own) == event.reply_id
        && ids.reply.as_ref().is_none_or(|own| *own != event.reply_id && !own.is_empty())
        && match (block, &ids.block) {
            (Some(block), Some(raw)) => *raw != block && track.block_id(path, own, raw) == block,
            (Some(block), None) => track.block_id(path, own, block) == block,
            (None, raw) => raw.is_none(),
        };
    if !comes_back || (event.rest.len() == 1 && ids.reply.is_none() && ids.block.is_none()) {
        return None;
    }
    let places = SeqPatch { seq: event.seq, seq_from: event.seq_from };
    let has_place = places.seq.is_some() || places.seq_from.is_some();
    out.push(
        "",
        &WrittenDelta {
            r#type: event.kind.type_name(),
            id: &event.id,
            created_at: &event.created_at,
            reply_id: own,
            block_id: ids.block.as_deref().or(block),
            tool_call_id: call,
            tool_call_name: call.and_then(|call| track.tool_name(path, call)),
            delta,
            source: path,
            metadata: has_place.then_some(CarriedMetadata { turnwire: SetPatch { set: places } }),
        },
    );
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::event;
    use super::*;
    use turnwire_testkit::{check_property, pick, values};

    fn open(rng: &mut fastrand::Rng) -> OpenReplies {
        let mut track = OpenReplies::within(rng.bool().then_some("r"));
        for line in [
            r#"{"type":"MODEL_CALL_START","reply_id":"r"}"#,
            r#"{"type":"MODEL_CALL_START","reply_id":"r"}"#,
            r#"{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"f"}"#,
            r#"{"type":"REPLY_START","reply_id":"s","agent_path":"main/sub"}"#,
        ] {
            if rng.bool() {
                track.apply_event(&Event::from_json(line).unwrap());
            }
        }
        track
    }

    /// The fast path agrees with the general one.
    #[test]
    fn the_fast_path_for_deltas_agrees_with_the_general_one() {
        check_property("the_fast_path_for_deltas_agrees_with_the_general_one", 4000, |rng| {
            let track = open(rng);
            let mut java = Fields::default();
            let types = ["TEXT_BLOCK_DELTA", "THINKING_BLOCK_DELTA", "TOOL_CALL_DELTA"];
            for (key, words) in [
                ("type", &types[..]),
                ("id", &["e", ""]),
                ("createdAt", &["t", "t", ""]),
                ("replyId", &["r", "m1", "s", ""]),
                ("blockId", &["text", "b", "thinking"]),
                ("toolCallId", &["c", "d"]),
                ("toolCallName", &["f", "g"]),
                ("delta", &["hi", "é\n", ""]),
                ("source", &["main/sub", "main/other"]),
                ("mood", &["x"]),
            ] {
                let wanted = match key {
                    "type" | "replyId" | "delta" | "id" => rng.u8(..20) > 0,
                    "mood" => rng.u8(..20) == 0,
                    _ => rng.bool(),
                };
                if wanted {
                    java.insert(key, *pick(rng, words));
                }
            }
            if rng.u8(..3) == 0 {
                let metadata = *pick(
                    rng,
                    &[
                        r#"{"turnwire":{"set":{"seq":3}}}"#,
                        r#"{"turnwire":{"set":{"seq":3,"seq_from":2}}}"#,
                        r#"{"turnwire":{"set":{"mood":3}}}"#,
                        r#"{"turnwire":{"set":{"seq":0}}}"#,
                        r#"{"k":1}"#,
                        "null",
                    ],
                );
                java.insert("metadata", Json::parse(metadata).unwrap());
            }
            let text = serde_json::to_string(&java).unwrap();
            let mut quick = None;
            read_delta(&text, &track, &mut |event| quick = Some(event.into_owned()));
            let slow = event::decode(java, &track);
            if let Some(quick) = &quick {
                assert_eq!(Some(quick), slow.as_ref().ok(), "{text}");
            }
            // And back.
            if let Ok(slow) = slow {
                same_when_written(&slow, &track);
            }
            let mut other = values::event(rng);
            if let Some(word) = rng.bool().then(|| *pick(rng, &["r", "m1", "s"])) {
                other.reply_id = word.into();
            }
            same_when_written(&other, &track);
        });
    }

    fn same_when_written(event: &Event<'_>, track: &OpenReplies) {
        let mut frames = Frames::default();
        if write_delta(event, track, &mut frames) {
            let (_, text) = frames.iter().next().unwrap();
            let slow = event::encode(event, track);
            assert_eq!(parse(text).unwrap(), slow, "{}", event.to_json());
        }
    }

    #[test]
    fn a_plain_delta_takes_the_fast_path() {
        let track = OpenReplies::within(Some("r"));
        let line = r#"{"type":"TEXT_BLOCK_DELTA","id":"e","createdAt":"t","replyId":"m","blockId":"text","delta":"hi","type":"TEXT_BLOCK_DELTA"}"#;
        let mut frames = Frames::default();
        let taken = read_delta(line, &track, &mut |event| {
            assert!(write_delta(&event, &track, &mut frames));
        });
        assert!(taken);
        assert_eq!(frames.len(), 1);
    }
}
