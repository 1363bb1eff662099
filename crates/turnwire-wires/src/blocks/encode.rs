//! Encodes events as frames.

use super::conversions::{
    DisplayMode, FAILED, FAILED_FOR_NOW, USER_STOPPED, can_retry, error_code, parse_mode,
};
use super::reply_encoder::ReplyEncoder;
use super::turn_writer::{BlockOwner, Finality, TurnWriter};
use super::{FILE_PROCESSING, VERBATIM_PREFIX, message};
use crate::stream::{Encode, EncoderOptions, Frames};
use serde::Serialize;
use std::collections::HashMap;
use turnwire_core::event::{Custom, ReplyEnd, ReplyStart};
use turnwire_core::{
    Event, EventKind, Fields, FinishedReason, Json, Msg, ReplyError, Role, event_kinds,
};

/// Encodes one stream.
#[derive(Default)]
pub(super) struct Encoder {
    session_id: Option<String>,
    mode: DisplayMode,
    /// The display mode of the last user message. It applies to all turns that answer it.
    user_mode: Option<DisplayMode>,
    turns: HashMap<String, OpenTurn>,
    /// The running turn that started last: sub-agents belong to it.
    current: Option<String>,
    /// The turn that ended last: later events of it are ignored.
    last_ended: Option<String>,
    /// The file status of a turn that has not started.
    files: Option<Fields>,
}

/// A running turn: its own reply and its sub-agents'.
struct OpenTurn {
    turn: TurnWriter,
    own: ReplyEncoder,
    subs: HashMap<String, ReplyEncoder>,
}

#[derive(Serialize)]
struct TextStart {
    r#type: &'static str,
    text: &'static str,
    subagent: Option<()>,
    parent_tool_use_id: Option<()>,
    is_part: bool,
}

#[derive(Serialize)]
struct TerminalDelta<'a> {
    r#type: &'static str,
    text: &'static str,
    extras: Extras<'a>,
}

#[derive(Serialize)]
#[serde(tag = "block_subtype", rename_all = "snake_case")]
enum Extras<'a> {
    UserStopped,
    Error { code: &'a str, can_retry: bool, error_type: &'static str, details: Fields },
}

#[derive(Serialize)]
struct FileStart<'a> {
    r#type: &'static str,
    status: &'a str,
    files: Option<&'a Json>,
}

#[derive(Serialize)]
struct FileDelta<'a> {
    status: &'a str,
    message: Option<&'a Json>,
}

#[derive(Serialize)]
struct CustomFrame<'a> {
    r#type: &'static str,
    name: &'a str,
    value: &'a Json,
    #[serde(skip_serializing_if = "str::is_empty")]
    message_id: &'a str,
}

#[derive(Serialize)]
struct EventFrame<'a> {
    r#type: &'static str,
    event: &'a Event<'a>,
}

#[derive(Serialize)]
struct MessageFrame<'a> {
    r#type: &'static str,
    message: &'a Json,
}

impl Encoder {
    pub(super) fn new(encoding: &EncoderOptions) -> Self {
        Self {
            session_id: encoding.session_id.clone(),
            mode: encoding.wire.get().copied().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Starts the turn of an event, unless it has started or ended.
    fn turn(&mut self, event: &Event<'_>, out: &mut Frames) -> Option<&mut OpenTurn> {
        let id = &*event.reply_id;
        if id.is_empty() || self.last_ended.as_deref() == Some(id) {
            return None;
        }
        if !self.turns.contains_key(id) {
            let (start, none) = (as_reply_start(event), ReplyStart::default());
            let start = start.unwrap_or(&none);
            let session = self.session_id.as_deref().unwrap_or(&start.session_id);
            let mode = self.user_mode.unwrap_or(self.mode);
            let mut turn = TurnWriter::new(id, session, mode, &event.created_at);
            turn.message_start(&start.name, start.role, out);
            let mut open = OpenTurn {
                turn,
                own: ReplyEncoder::new(BlockOwner::default()),
                subs: HashMap::default(),
            };
            if let Some(files) = self.files.take() {
                open.files(&files, out);
            }
            self.turns.insert(id.to_owned(), open);
            self.current = Some(id.to_owned());
        }
        self.turns.get_mut(id)
    }

    fn end_turn(&mut self, event: &Event<'_>, end: &ReplyEnd, out: &mut Frames) {
        let Some(open) = self.turn(event, out) else { return };
        open.end(end, &event.created_at, out);
        let id = &*event.reply_id;
        self.turns.remove(id);
        if self.current.as_deref() == Some(id) {
            self.current = None;
        }
        self.last_ended = Some(id.to_owned());
    }

    /// An event of a sub-agent. Outside of a turn it is ignored.
    fn subagent_event(&mut self, event: &Event<'_>, out: &mut Frames) {
        let Some(open) = self.current.as_ref().and_then(|id| self.turns.get_mut(id)) else {
            return;
        };
        if event.reply_id.is_empty() {
            return;
        }
        let OpenTurn { turn, subs, .. } = open;
        if let EventKind::ReplyEnd(_) = &event.kind {
            if let Some(mut reply) = subs.remove(&*event.reply_id) {
                reply.close(turn, out);
            }
            return;
        }
        if !subs.contains_key(&*event.reply_id) {
            subs.insert(event.reply_id.to_string(), ReplyEncoder::new(block_owner(event)));
        }
        if let Some(reply) = subs.get_mut(&*event.reply_id) {
            reply.encode_event(turn, event, out);
        }
    }

    fn custom_event(&mut self, event: &Event<'_>, custom: &Custom, out: &mut Frames) {
        let value = &custom.value.0;
        if let Some(word) = custom.name.strip_prefix(VERBATIM_PREFIX)
            && let Ok(frame) = value.parse_as::<Fields>()
            && frame.get::<String>("type").is_ok_and(|known| known.as_deref() == Some(word))
        {
            return out.push_text("", value.text());
        }
        if custom.name == FILE_PROCESSING
            && let Ok(fields) = value.parse_as::<Fields>()
        {
            return self.file_event(event, &fields, out);
        }
        let message_id = &*event.reply_id;
        out.push("", &CustomFrame { r#type: "custom", name: &custom.name, value, message_id });
    }

    fn file_event(&mut self, event: &Event<'_>, fields: &Fields, out: &mut Frames) {
        let open = match &self.current {
            Some(current) if event.reply_id.is_empty() || event.is_from_sub_agent() => {
                self.turns.get_mut(current)
            }
            _ => None,
        };
        if let Some(open) = open {
            return open.files(fields, out);
        }
        if event.reply_id.is_empty() {
            // Files are read before the turn starts.
            self.files.get_or_insert_default().extend(fields);
        } else if let Some(open) = self.turn(event, out) {
            open.files(fields, out);
        }
    }

    fn message(&mut self, msg: &Msg, out: &mut Frames) {
        if msg.role() == Role::User {
            let word = msg.metadata().get::<String>("display_mode").ok().flatten();
            self.user_mode = word.and_then(|word| parse_mode(&word));
        }
        for message in &message::encode_messages(std::slice::from_ref(msg)) {
            out.push("", &MessageFrame { r#type: "message", message });
        }
    }
}

impl Encode for Encoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        match &event.kind {
            EventKind::Custom(custom) => self.custom_event(event, custom, out),
            EventKind::Message(message) => self.message(&message.message, out),
            EventKind::Supersede(_) | EventKind::Reset(_) | EventKind::Unknown(_) => {
                out.push("", &EventFrame { r#type: "event", event });
                if matches!(event.kind, EventKind::Reset(_)) {
                    // Everything follows again.
                    let (session_id, mode) = (self.session_id.take(), self.mode);
                    *self = Self { session_id, mode, ..Self::default() };
                }
            }
            EventKind::ReplyEnd(end) if !event.is_from_sub_agent() => {
                self.end_turn(event, end, out);
            }
            event_kinds!(reply model_call content tool pending_call notice) => {
                if event.is_from_sub_agent() {
                    self.subagent_event(event, out);
                } else if let Some(open) = self.turn(event, out) {
                    open.own.encode_event(&mut open.turn, event, out);
                }
            }
        }
    }
}

impl OpenTurn {
    fn files(&mut self, fields: &Fields, out: &mut Frames) {
        const BUSY: &str = "processing";
        let status = fields.get::<String>("status").ok().flatten();
        let status = status.as_deref().unwrap_or(BUSY);
        let message = fields.raw("message");
        let is_new = self.turn.file.is_none();
        let index = self.turn.file.unwrap_or_else(|| {
            let files = fields.raw("files");
            self.turn.block_start(&FileStart { r#type: FILE_PROCESSING, status: BUSY, files }, out)
        });
        self.turn.file = Some(index);
        if !is_new || status != BUSY || message.is_some() {
            self.turn.block_delta(index, &FileDelta { status, message }, out);
        }
        if status != BUSY {
            self.turn.file = None;
            self.turn.block_stop(index, Finality::NotText, out);
        }
    }

    fn end(&mut self, end: &ReplyEnd, at: &str, out: &mut Frames) {
        let Self { turn, own, subs } = self;
        let mut left: Vec<(String, ReplyEncoder)> = subs.drain().collect();
        left.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (_, mut reply) in left {
            reply.close(turn, out);
        }
        own.close(turn, out);
        if let Some(index) = turn.file.take() {
            turn.block_stop(index, Finality::NotText, out);
        }
        let cut =
            matches!(end.finished_reason, FinishedReason::Interrupted | FinishedReason::Error);
        turn.decide_final(!cut, out);
        if end.finished_reason == FinishedReason::Interrupted {
            write_terminal(turn, USER_STOPPED, Extras::UserStopped, out);
        }
        if end.finished_reason == FinishedReason::Error || end.error.is_some() {
            let known = end.error.clone();
            let details = known.as_ref().map(details).unwrap_or_default();
            let kind = known.unwrap_or_default().r#type;
            let can_retry = can_retry(&kind);
            let text = if can_retry { FAILED_FOR_NOW } else { FAILED };
            let code = error_code(&kind);
            let extras = Extras::Error { code, can_retry, error_type: "terminal", details };
            write_terminal(turn, text, extras, out);
        }
        turn.message_end(end, at, out);
    }
}

fn details(error: &ReplyError) -> Fields {
    let mut details = error.rest.clone();
    details.insert("error", error.message.as_str());
    details
}

fn write_terminal(turn: &mut TurnWriter, text: &'static str, extras: Extras<'_>, out: &mut Frames) {
    let block = TextStart {
        r#type: "text",
        text: "",
        subagent: None,
        parent_tool_use_id: None,
        is_part: false,
    };
    let index = turn.block_start(&block, out);
    turn.block_delta(index, &TerminalDelta { r#type: "text_delta", text, extras }, out);
    turn.block_stop(index, Finality::NotText, out);
}

fn as_reply_start<'e>(event: &'e Event<'_>) -> Option<&'e ReplyStart> {
    if let EventKind::ReplyStart(start) = &event.kind { Some(start) } else { None }
}

fn block_owner(event: &Event<'_>) -> BlockOwner {
    let agent = event.agent.as_ref();
    let path = agent.and_then(|agent| agent.agent_path.as_deref());
    let name = path.and_then(|path| path.rsplit('/').next());
    let name = name.or_else(|| as_reply_start(event).map(|start| start.name.as_str()));
    BlockOwner {
        subagent: name.filter(|name| !name.is_empty()).map(str::to_owned),
        parent_tool_use_id: agent.and_then(|agent| agent.parent_tool_call_id.clone()),
        is_subagent: true,
    }
}
