//! The fast path to decode deltas, which are most of a stream: no trees, and nothing copied that can
//! be borrowed. Everything else is left to [`event`](super::event), which gives the same result.

use super::KEPT_FIELD;
use super::open_replies::OpenReplies;
use crate::json::CowStr;
use crate::stream::EventSink;
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

/// The metadata of an event whose only patch is its position in the log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedMetadata {
    turnwire: SetPatch<SeqPatch>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetPatch<T> {
    set: T,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeqPatch {
    #[serde(default)]
    seq: Option<Seq>,
    #[serde(default)]
    seq_from: Option<Seq>,
}

/// The kept fields of most events: the ids that Java gave them. The keys are in the order of a patch.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdPatch<'a> {
    #[serde(borrow, default, rename = "blockId", skip_serializing_if = "Option::is_none")]
    pub(super) block: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "replyId", skip_serializing_if = "Option::is_none")]
    pub(super) reply: Option<Cow<'a, str>>,
}

impl<'a> IdPatch<'a> {
    /// The kept ids of an event; empty if nothing is kept, `None` if more is kept than ids that
    /// differ from ours.
    pub(super) fn of_event(event: &'a Event<'_>) -> Option<Self> {
        let Some(kept) = event.rest.raw(KEPT_FIELD) else { return Some(Self::default()) };
        let ids = serde_json::from_str::<SetPatch<Self>>(kept.text()).ok()?.set;
        let differs =
            ids.reply.as_ref().is_none_or(|own| *own != event.reply_id && !own.is_empty());
        (differs && !ids.is_empty()).then_some(ids)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reply.is_none() && self.block.is_none()
    }
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
    let seqs = match java.metadata {
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
    event.seq = seqs.seq;
    event.seq_from = seqs.seq_from;
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::super::{encode, event};
    use super::*;
    use crate::stream::Frames;
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
        if encode::write_event(event, track, &mut frames) {
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
            assert!(encode::write_event(&event, &track, &mut frames));
        });
        assert!(taken);
        assert_eq!(frames.len(), 1);
    }
}
