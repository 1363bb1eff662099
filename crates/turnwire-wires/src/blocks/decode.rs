//! Decodes frames into events.

use super::VERBATIM_PREFIX;
use super::block_decoder::BlockDecoder;
use super::conversions::{error_type, finished_reason, to_ms, to_timestamp};
use crate::json::{CowStr, string_field};
use crate::stream::{Decode, DecoderOptions, EventSink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use turnwire_core::event::{
    Custom, CustomValue, Message, ModelCallEnd, ReplyEnd, ReplyStart, TokenCounts,
};
use turnwire_core::{
    Error, ErrorKind, Event, Fields, FinishedReason, Json, ReplyError, Result, Role, Usage,
};

/// Decodes one stream.
pub(super) struct Decoder {
    /// The reply id of the first turn, if it differs from its message id.
    reply_id: Option<String>,
    turns: HashMap<String, TurnDecoder>,
    /// The turn of frames without a `message_id`.
    current: String,
    turn_count: u64,
}

/// A running turn.
pub(super) struct TurnDecoder {
    order: u64,
    pub blocks: BlockDecoder,
    session_id: String,
    started: Option<i64>,
    stopped: bool,
    error: Option<ReplyError>,
    end: Option<MessageEnd>,
}

/// The content of a `message_delta`.
#[derive(Default)]
struct MessageEnd {
    reason: FinishedReason,
    usage: Option<Usage>,
    structured_output: Option<Json>,
    metadata: Fields,
}

/// The fields of every frame. The text of a delta is borrowed.
#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    r#type: CowStr<'a>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    message_id: Option<CowStr<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    /// Marks a frame of a turn that is written again.
    #[serde(borrow, default)]
    again: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    r#type: Option<CowStr<'a>>,
    #[serde(borrow, default)]
    text: Option<CowStr<'a>>,
    #[serde(borrow, default)]
    thinking: Option<CowStr<'a>>,
    #[serde(borrow, default)]
    extras: Option<&'a RawValue>,
}

impl Decoder {
    pub(super) fn new(decoding: &DecoderOptions) -> Self {
        Self {
            reply_id: decoding.reply_id.clone(),
            turns: HashMap::new(),
            current: String::new(),
            turn_count: 0,
        }
    }

    /// The turn of a frame. One without a start begins here.
    fn turn(&mut self, message_id: Option<&str>) -> &mut TurnDecoder {
        if let Some(id) = message_id
            && id != self.current
        {
            id.clone_into(&mut self.current);
        }
        let Self { reply_id, turns, current, turn_count: begun } = self;
        turns.entry(current.clone()).or_insert_with(|| {
            *begun += 1;
            // A turn without an id gets one.
            let own = if current.is_empty() { format!("turn-{begun}") } else { current.clone() };
            TurnDecoder::new(*begun, &reply_id.take().unwrap_or(own))
        })
    }

    fn find_turn(&mut self, message_id: Option<&str>) -> Option<&mut TurnDecoder> {
        self.turns.get_mut(message_id.unwrap_or(&self.current))
    }

    fn message_start(&mut self, text: &str, id: Option<&str>, out: &mut EventSink<'_>) {
        let fields = parse_fields(text);
        let turn = self.turn(Some(id.unwrap_or_default()));
        turn.session_id = string_field(&fields, "session_id").unwrap_or_default();
        turn.started = fields.get::<f64>("timestamp").ok().flatten().and_then(to_ms);
        let role = fields.get::<Role>("role").ok().flatten().unwrap_or_default();
        let session_id = turn.session_id.clone();
        let start = ReplyStart {
            session_id,
            name: string_field(&fields, "sender").unwrap_or_default(),
            role,
        };
        let mut event = Event::new(turn.blocks.reply_id(), start);
        event.created_at = to_timestamp(turn.started).into();
        out(event);
    }

    /// Text of an open block: most frames.
    fn plain_delta(
        &mut self,
        frame: &Frame<'_>,
        id: Option<&str>,
        out: &mut EventSink<'_>,
    ) -> bool {
        let (Some(index), Some(delta)) = (frame.index, &frame.delta) else { return false };
        let Some(turn) = self.find_turn(id).filter(|_| delta.extras.is_none()) else {
            return false;
        };
        match delta.r#type.as_ref().map(|word| &*word.0) {
            Some("text_delta") => {
                turn.blocks.text_delta(index, str_or_empty(delta.text.as_ref()), out)
            }
            Some("thinking_delta") => {
                turn.blocks.thinking_delta(index, str_or_empty(delta.thinking.as_ref()), out)
            }
            _ => false,
        }
    }

    /// Any other delta.
    fn other_delta(&mut self, text: &str, frame: &Frame<'_>, out: &mut EventSink<'_>) -> bool {
        let id = frame.message_id.as_ref().map(|id| &*id.0);
        let Some(turn) = self.find_turn(id) else { return false };
        let Some(index) = frame.index else { return false };
        let Some(delta) = &frame.delta else { return false };
        if let Some(extras) = delta.extras
            && turn.terminal(index, extras, out)
        {
            return true;
        }
        if delta.r#type.is_some() {
            return false;
        }
        let fields = parse_fields(text).get::<Fields>("delta").ok().flatten().unwrap_or_default();
        turn.blocks.other_delta(index, &fields, out)
    }

    fn message_stop(&mut self, text: &str, id: Option<&str>, out: &mut EventSink<'_>) {
        let key = id.unwrap_or(&self.current);
        let Some(mut turn) = self.turns.remove(key) else { return };
        let took = parse_fields(text).get::<i64>("duration_ms").ok().flatten();
        let ended = turn.started.zip(took).map(|(start, took)| start.saturating_add(took));
        let end = turn.end.take().unwrap_or_default();
        turn.finish(end, ended, out);
    }

    /// Keeps a frame that is not one of our events.
    fn keep_verbatim(&self, word: &str, text: &str, id: Option<&str>, out: &mut EventSink<'_>) {
        let Ok(frame) = Json::parse(text) else { return };
        let custom = Custom { name: format!("{VERBATIM_PREFIX}{word}"), value: CustomValue(frame) };
        let reply_id = id.map(|id| match self.turns.get(id) {
            Some(turn) => turn.blocks.reply_id(),
            None => id,
        });
        out(Event::new(reply_id.unwrap_or_default(), custom));
    }

    fn custom(&self, text: &str, id: Option<&str>, out: &mut EventSink<'_>) -> bool {
        let fields = parse_fields(text);
        let Ok(Some(name)) = fields.get::<String>("name") else { return false };
        let value = fields.raw("value").cloned().map(CustomValue).unwrap_or_default();
        let turn = id.and_then(|id| self.turns.get(id));
        let reply_id = turn.map(|turn| turn.blocks.reply_id()).or(id).unwrap_or_default();
        out(Event::new(reply_id, Custom { name, value }));
        true
    }
}

impl Decode for Decoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let frame: Frame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(_) => return self.keep_odd_frame(text, out),
        };
        if frame.again.is_some_and(|again| again.get() == "true") {
            return Ok(());
        }
        let id = frame.message_id.as_ref().map(|id| &*id.0);
        let done = match &*frame.r#type.0 {
            "content_block_delta" => {
                self.plain_delta(&frame, id, out) || self.other_delta(text, &frame, out)
            }
            "content_block_start" => match (frame.index, frame.content_block) {
                (Some(index), Some(block)) => {
                    let fields = parse_fields(block.get());
                    self.turn(id).blocks.block_start(index, &fields, out);
                    true
                }
                _ => false,
            },
            "content_block_stop" => match (frame.index, self.find_turn(id)) {
                (Some(index), Some(turn)) => {
                    turn.blocks.block_stop(index, out);
                    true
                }
                _ => false,
            },
            "content_block_discard" => match (frame.index, self.find_turn(id)) {
                (Some(index), Some(turn)) => {
                    turn.blocks.discard(index, out);
                    true
                }
                _ => false,
            },
            "message_start" => {
                self.message_start(text, id, out);
                true
            }
            "message_delta" => match self.find_turn(id) {
                Some(turn) => {
                    turn.end = Some(MessageEnd::read(&parse_fields(text)));
                    true
                }
                None => false,
            },
            "message_stop" => {
                self.message_stop(text, id, out);
                true
            }
            "custom" => self.custom(text, id, out),
            "event" => {
                match parse_fields(text).raw("event").map(|event| Event::from_json(event.text())) {
                    Some(Ok(event)) => {
                        out(event);
                        true
                    }
                    _ => false,
                }
            }
            "message" => history_entry(text, out),
            // Answers of the server outside of turns.
            "connected" | "auth_ok" | "subscribed" | "accepted" | "pong" => true,
            _ => false,
        };
        if !done {
            self.keep_verbatim(&frame.r#type.0, text, id, out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut EventSink<'_>) -> Result<()> {
        let mut turns: Vec<TurnDecoder> = self.turns.drain().map(|(_, turn)| turn).collect();
        turns.sort_by_key(|turn| turn.order);
        for turn in turns {
            let reason = FinishedReason::Truncated;
            turn.finish(MessageEnd { reason, ..MessageEnd::default() }, None, out);
        }
        Ok(())
    }

    fn find_reply_id(&self, text: &str) -> Option<String> {
        let id = parse_fields(text).get::<String>("message_id").ok().flatten();
        let turn = self.turns.get(id.as_deref().unwrap_or(&self.current));
        turn.map(|turn| turn.blocks.reply_id().to_owned()).or(id)
    }

    fn reports_truncation(&self) -> bool {
        true
    }
}

impl Decoder {
    /// Keeps a frame with an invalid field, if it is a frame at all.
    #[cold]
    fn keep_odd_frame(&self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        let json = Json::parse(text)?;
        let fields = json.parse_as::<Fields>().unwrap_or_default();
        let Ok(Some(word)) = fields.get::<String>("type") else {
            return Err(Error::new(ErrorKind::NotAnEvent, "expected a frame object with a `type`"));
        };
        let id = fields.get::<String>("message_id").ok().flatten();
        self.keep_verbatim(&word, text, id.as_deref(), out);
        Ok(())
    }
}

impl TurnDecoder {
    fn new(nth: u64, reply_id: &str) -> Self {
        Self {
            order: nth,
            blocks: BlockDecoder::new(reply_id),
            session_id: String::new(),
            started: None,
            stopped: false,
            error: None,
            end: None,
        }
    }

    /// A delta with `extras`: the block says how the turn ends, and is not a block of its own.
    fn terminal(&mut self, index: u64, extras: &RawValue, out: &mut EventSink<'_>) -> bool {
        let extras = parse_fields(extras.get());
        match string_field(&extras, "block_subtype").unwrap_or_default().as_str() {
            "user_stopped" => self.stopped = true,
            "error" => {
                let mut details =
                    extras.get::<Fields>("details").ok().flatten().unwrap_or_default();
                let message = details.take::<String>("error").ok().flatten();
                self.error = Some(ReplyError {
                    r#type: error_type(&string_field(&extras, "code").unwrap_or_default()),
                    message: message.unwrap_or_default(),
                    rest: details,
                });
            }
            _ => return false,
        }
        self.blocks.terminal(index, out);
        true
    }

    /// Ends the turn, after its sub-agents.
    fn finish(mut self, end: MessageEnd, at: Option<i64>, out: &mut EventSink<'_>) {
        // A truncated turn may still have said why it ends.
        let is_open = matches!(end.reason, FinishedReason::Completed | FinishedReason::Truncated);
        let finished_reason = if is_open && self.error.is_some() {
            FinishedReason::Error
        } else if is_open && self.stopped {
            FinishedReason::Interrupted
        } else {
            end.reason
        };
        let at = to_timestamp(at);
        self.blocks.close(&finished_reason, &at, out);
        let mut put = |kind: turnwire_core::EventKind<'_>| {
            let mut event = Event::new(self.blocks.reply_id(), kind);
            event.created_at = at.as_str().into();
            out(event);
        };
        if let Some(usage) = end.usage {
            let usage = TokenCounts {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cache_input_tokens: usage.cache_input_tokens,
                cache_creation_input_tokens: usage.cache_creation_input_tokens,
            };
            let finished_reason = finished_reason.clone();
            put(ModelCallEnd { usage, finished_reason, ..ModelCallEnd::default() }.into());
        }
        let last = ReplyEnd {
            session_id: self.session_id,
            finished_reason,
            error: self.error,
            structured_output: end.structured_output,
            message_metadata: end.metadata,
        };
        put(last.into());
    }
}

impl MessageEnd {
    fn read(frame: &Fields) -> Self {
        let delta = frame.get::<Fields>("delta").ok().flatten().unwrap_or_default();
        Self {
            reason: finished_reason(&string_field(&delta, "stop_reason").unwrap_or_default()),
            usage: frame.get("usage").ok().flatten(),
            structured_output: delta
                .raw("structured_output")
                .filter(|json| !json.is_null())
                .cloned(),
            metadata: frame.get("metadata").ok().flatten().unwrap_or_default(),
        }
    }
}

fn str_or_empty<'t>(text: Option<&'t CowStr<'_>>) -> &'t str {
    text.map_or("", |text| &text.0)
}

/// An entry of the history inside the stream.
fn history_entry(text: &str, out: &mut EventSink<'_>) -> bool {
    let fields = parse_fields(text);
    let Some(message) = fields.raw("message") else { return false };
    let Ok(messages) = super::message::decode_messages(message.text()) else { return false };
    for message in messages {
        out(Event::new("", Message { message: Box::new(message) }));
    }
    true
}

/// The fields of a JSON object; otherwise none.
fn parse_fields(text: &str) -> Fields {
    serde_json::from_str(text).unwrap_or_default()
}
