//! Frames into events.

use super::VERBATIM;
use super::inbox::Inbox;
use super::words::{error_type, finished_reason, iso, ms_of};
use crate::stream::{Decode, Decoding, Sink};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use turnwire_core::event::{
    Custom, CustomValue, Message, ModelCallEnd, ReplyEnd, ReplyStart, TokenCounts,
};
use turnwire_core::{
    Error, ErrorKind, Event, Fields, FinishedReason, Json, ReplyError, Result, Role, Usage,
};

/// The state of a stream on its way in.
pub(super) struct Decoder {
    /// What the first turn's reply is called, if not as its message.
    reply_id: Option<String>,
    turns: HashMap<String, Turn>,
    /// The turn that frames without a `message_id` belong to.
    current: String,
    begun: u64,
}

/// A turn that goes on.
pub(super) struct Turn {
    nth: u64,
    pub inbox: Inbox,
    session_id: String,
    started: Option<i64>,
    stopped: bool,
    error: Option<ReplyError>,
    end: Option<End>,
}

/// What a `message_delta` says.
#[derive(Default)]
struct End {
    reason: FinishedReason,
    usage: Option<Usage>,
    structured_output: Option<Json>,
    metadata: Fields,
}

/// What every frame is looked at for. The text of a delta is borrowed.
#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    r#type: Str<'a>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    message_id: Option<Str<'a>>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    /// It was there before, and is only for those who began anew.
    #[serde(borrow, default)]
    again: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    r#type: Option<Str<'a>>,
    #[serde(borrow, default)]
    text: Option<Str<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Str<'a>>,
    #[serde(borrow, default)]
    extras: Option<&'a RawValue>,
}

/// Text that is borrowed where it can be, also inside an option.
struct Str<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Visitor).map(Str)
    }
}

impl Decoder {
    pub(super) fn new(decoding: &Decoding) -> Self {
        Self {
            reply_id: decoding.reply_id.clone(),
            turns: HashMap::new(),
            current: String::new(),
            begun: 0,
        }
    }

    /// The turn of a frame. One whose start was never seen begins here.
    fn turn(&mut self, message_id: Option<&str>) -> &mut Turn {
        if let Some(id) = message_id
            && id != self.current
        {
            id.clone_into(&mut self.current);
        }
        let Self { reply_id, turns, current, begun } = self;
        turns.entry(current.clone()).or_insert_with(|| {
            *begun += 1;
            // A turn that has no id still needs one.
            let own = if current.is_empty() { format!("turn-{begun}") } else { current.clone() };
            Turn::new(*begun, &reply_id.take().unwrap_or(own))
        })
    }

    fn known(&mut self, message_id: Option<&str>) -> Option<&mut Turn> {
        self.turns.get_mut(message_id.unwrap_or(&self.current))
    }

    fn message_start(&mut self, text: &str, id: Option<&str>, out: &mut Sink<'_>) {
        let fields = object(text);
        let turn = self.turn(Some(id.unwrap_or_default()));
        turn.session_id = word(&fields, "session_id");
        turn.started = fields.get::<f64>("timestamp").ok().flatten().and_then(ms_of);
        let role = fields.get::<Role>("role").ok().flatten().unwrap_or_default();
        let session_id = turn.session_id.clone();
        let start = ReplyStart { session_id, name: word(&fields, "sender"), role };
        let mut event = Event::new(turn.inbox.reply_id(), start);
        event.created_at = iso(turn.started).into();
        out(event);
    }

    /// The text of a block that is open: what most frames are.
    fn plain_delta(&mut self, frame: &Frame<'_>, id: Option<&str>, out: &mut Sink<'_>) -> bool {
        let (Some(index), Some(delta)) = (frame.index, &frame.delta) else { return false };
        let Some(turn) = self.known(id).filter(|_| delta.extras.is_none()) else { return false };
        match delta.r#type.as_ref().map(|word| &*word.0) {
            Some("text_delta") => turn.inbox.text(index, text_of(delta.text.as_ref()), out),
            Some("thinking_delta") => {
                turn.inbox.thinking(index, text_of(delta.thinking.as_ref()), out)
            }
            _ => false,
        }
    }

    /// A delta that is not the plain text of a block that is open.
    fn other_delta(&mut self, text: &str, frame: &Frame<'_>, out: &mut Sink<'_>) -> bool {
        let id = frame.message_id.as_ref().map(|id| &*id.0);
        let Some(turn) = self.known(id) else { return false };
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
        let fields = object(text).get::<Fields>("delta").ok().flatten().unwrap_or_default();
        turn.inbox.delta(index, &fields, out)
    }

    fn message_stop(&mut self, text: &str, id: Option<&str>, out: &mut Sink<'_>) {
        let key = id.unwrap_or(&self.current);
        let Some(mut turn) = self.turns.remove(key) else { return };
        let took = object(text).get::<i64>("duration_ms").ok().flatten();
        let ended = turn.started.zip(took).map(|(start, took)| start.saturating_add(took));
        let end = turn.end.take().unwrap_or_default();
        turn.finish(end, ended, out);
    }

    /// A frame that is no event of ours, kept as it came.
    fn verbatim(&self, word: &str, text: &str, id: Option<&str>, out: &mut Sink<'_>) {
        let Ok(frame) = Json::parse(text) else { return };
        let custom = Custom { name: format!("{VERBATIM}{word}"), value: CustomValue(frame) };
        let reply_id = id.map(|id| match self.turns.get(id) {
            Some(turn) => turn.inbox.reply_id(),
            None => id,
        });
        out(Event::new(reply_id.unwrap_or_default(), custom));
    }

    fn custom(&self, text: &str, id: Option<&str>, out: &mut Sink<'_>) -> bool {
        let fields = object(text);
        let Ok(Some(name)) = fields.get::<String>("name") else { return false };
        let value = fields.raw("value").cloned().map(CustomValue).unwrap_or_default();
        let turn = id.and_then(|id| self.turns.get(id));
        let reply_id = turn.map(|turn| turn.inbox.reply_id()).or(id).unwrap_or_default();
        out(Event::new(reply_id, Custom { name, value }));
        true
    }
}

impl Decode for Decoder {
    fn frame(&mut self, text: &str, out: &mut Sink<'_>) -> Result<()> {
        let frame: Frame<'_> = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(_) => return self.odd_frame(text, out),
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
                    let fields = object(block.get());
                    self.turn(id).inbox.start(index, &fields, out);
                    true
                }
                _ => false,
            },
            "content_block_stop" => match (frame.index, self.known(id)) {
                (Some(index), Some(turn)) => {
                    turn.inbox.stop(index, out);
                    true
                }
                _ => false,
            },
            "content_block_discard" => match (frame.index, self.known(id)) {
                (Some(index), Some(turn)) => {
                    turn.inbox.discard(index, out);
                    true
                }
                _ => false,
            },
            "message_start" => {
                self.message_start(text, id, out);
                true
            }
            "message_delta" => match self.known(id) {
                Some(turn) => {
                    turn.end = Some(End::read(&object(text)));
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
                match object(text).raw("event").map(|event| Event::from_json(event.text())) {
                    Some(Ok(event)) => {
                        out(event);
                        true
                    }
                    _ => false,
                }
            }
            "message" => entry(text, out),
            // What the server says beside the turns.
            "connected" | "auth_ok" | "subscribed" | "accepted" | "pong" => true,
            _ => false,
        };
        if !done {
            self.verbatim(&frame.r#type.0, text, id, out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Sink<'_>) -> Result<()> {
        let mut turns: Vec<Turn> = self.turns.drain().map(|(_, turn)| turn).collect();
        turns.sort_by_key(|turn| turn.nth);
        for turn in turns {
            let reason = FinishedReason::Truncated;
            turn.finish(End { reason, ..End::default() }, None, out);
        }
        Ok(())
    }

    fn reply_of(&self, text: &str) -> Option<String> {
        let id = object(text).get::<String>("message_id").ok().flatten();
        let turn = self.turns.get(id.as_deref().unwrap_or(&self.current));
        turn.map(|turn| turn.inbox.reply_id().to_owned()).or(id)
    }

    fn notices_the_end(&self) -> bool {
        true
    }
}

impl Decoder {
    /// A frame with a field that is not what it should be: kept as it came, if it is a frame at all.
    #[cold]
    fn odd_frame(&self, text: &str, out: &mut Sink<'_>) -> Result<()> {
        let json = Json::parse(text)?;
        let fields = json.parse_as::<Fields>().unwrap_or_default();
        let Ok(Some(word)) = fields.get::<String>("type") else {
            return Err(Error::new(ErrorKind::NotAnEvent, "a frame is an object with a `type`"));
        };
        let id = fields.get::<String>("message_id").ok().flatten();
        self.verbatim(&word, text, id.as_deref(), out);
        Ok(())
    }
}

impl Turn {
    fn new(nth: u64, reply_id: &str) -> Self {
        Self {
            nth,
            inbox: Inbox::new(reply_id),
            session_id: String::new(),
            started: None,
            stopped: false,
            error: None,
            end: None,
        }
    }

    /// A delta with extras: the block tells how the turn ends, and is none of its own.
    fn terminal(&mut self, index: u64, extras: &RawValue, out: &mut Sink<'_>) -> bool {
        let extras = object(extras.get());
        match word(&extras, "block_subtype").as_str() {
            "user_stopped" => self.stopped = true,
            "error" => {
                let mut details =
                    extras.get::<Fields>("details").ok().flatten().unwrap_or_default();
                let message = details.take::<String>("error").ok().flatten();
                self.error = Some(ReplyError {
                    r#type: error_type(&word(&extras, "code")),
                    message: message.unwrap_or_default(),
                    rest: details,
                });
            }
            _ => return false,
        }
        self.inbox.terminal(index, out);
        true
    }

    /// The end of the turn, and before it of its sub-agents.
    fn finish(mut self, end: End, at: Option<i64>, out: &mut Sink<'_>) {
        // A turn that was cut off before it said so may still have said why.
        let is_open = matches!(end.reason, FinishedReason::Completed | FinishedReason::Truncated);
        let finished_reason = match end.reason {
            _ if is_open && self.error.is_some() => FinishedReason::Error,
            _ if is_open && self.stopped => FinishedReason::Interrupted,
            reason => reason,
        };
        let at = iso(at);
        self.inbox.close(&finished_reason, &at, out);
        let mut put = |kind: turnwire_core::EventKind<'_>| {
            let mut event = Event::new(self.inbox.reply_id(), kind);
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

impl End {
    fn read(frame: &Fields) -> Self {
        let delta = frame.get::<Fields>("delta").ok().flatten().unwrap_or_default();
        Self {
            reason: finished_reason(&word(&delta, "stop_reason")),
            usage: frame.get("usage").ok().flatten(),
            structured_output: delta
                .raw("structured_output")
                .filter(|json| !json.is_null())
                .cloned(),
            metadata: frame.get("metadata").ok().flatten().unwrap_or_default(),
        }
    }
}

fn text_of<'t>(text: Option<&'t Str<'_>>) -> &'t str {
    text.map_or("", |text| &text.0)
}

/// An entry of the history that came along the stream.
fn entry(text: &str, out: &mut Sink<'_>) -> bool {
    let fields = object(text);
    let Some(message) = fields.raw("message") else { return false };
    let Ok(messages) = super::message::decode(message.text()) else { return false };
    for message in messages {
        out(Event::new("", Message { message: Box::new(message) }));
    }
    true
}

/// The fields of a text that is an object, or none.
fn object(text: &str) -> Fields {
    serde_json::from_str(text).unwrap_or_default()
}

fn word(fields: &Fields, key: &str) -> String {
    fields.get(key).ok().flatten().unwrap_or_default()
}
