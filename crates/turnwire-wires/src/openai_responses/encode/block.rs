//! One block of a response while it is written.

use super::super::client_call::ClientCall;
use super::super::item::{self, CUSTOM_CALL, IMAGE_CALL, ITEM_ID};
use super::super::item_id::ItemId;
use super::IdSpace;
use super::frame::{self, Part};
use crate::stream::Frames;
use std::fmt::Write;
use turnwire_core::block::{Base64Source, DataBlock, Source};
use turnwire_core::{Fields, Json};

pub(super) struct OutputBlock {
    pub kind: OutputKind,
    /// Our id of the block.
    pub id: String,
    /// The id of its item.
    pub item_id: String,
    /// The index of the part: a reasoning item may have several, or none.
    pub part: usize,
    pub part_state: PartState,
    /// The JSON between the number and the delta in every delta frame of the block.
    delta_prefix: String,
    /// The text so far.
    pub text: String,
    pub extra: Fields,
    pub state: BlockState,
    pub ended: bool,
    /// It only repeats the structured output.
    pub is_structured: bool,
    /// Its final text differs from its deltas.
    pub is_replaced: bool,
}

pub(super) enum OutputKind {
    Text,
    Thinking,
    ToolCall { name: String, asking: bool },
    Data { media_type: Option<String>, url: bool },
    Item(Json),
}

impl OutputKind {
    pub(super) fn tool_call(name: &str) -> Self {
        Self::ToolCall { name: name.to_owned(), asking: false }
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::ToolCall { .. })
    }

    pub(super) fn id_space(&self) -> IdSpace {
        if self.is_call() { IdSpace::Call } else { IdSpace::Block }
    }
}

/// How far the part of a block is written.
pub(super) enum PartState {
    /// It has not started. The item starts with it.
    First,
    /// It has not started. It continues the item of the block before.
    Next,
    Open,
}

impl PartState {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

#[derive(Clone, Copy)]
pub(super) enum BlockState {
    /// It is held back: nothing is written.
    Held,
    /// It is being written as the item with this index.
    Live(usize),
    /// It is written completely.
    Done(usize),
    /// It will not be written.
    Dropped,
}

impl OutputBlock {
    pub(super) fn new(kind: OutputKind, id: &str) -> Self {
        Self {
            kind,
            id: id.to_owned(),
            item_id: String::new(),
            part: 0,
            part_state: PartState::First,
            delta_prefix: String::new(),
            text: String::new(),
            extra: Fields::default(),
            state: BlockState::Held,
            ended: false,
            is_structured: false,
            is_replaced: false,
        }
    }

    /// Whether its text begins like a JSON object or list.
    pub(super) fn looks_like_json(&self) -> bool {
        self.text.trim_start().starts_with(['{', '['])
    }

    pub(super) fn drop_held(&mut self) {
        if matches!(self.state, BlockState::Held) {
            self.state = BlockState::Dropped;
            self.text = String::new();
        }
    }

    /// Prepares data for writing; `None` if the protocol cannot hold it.
    pub(super) fn normalize_data(&mut self) -> Option<()> {
        if let OutputKind::Data { media_type, url } = &self.kind {
            let media_type = media_type.clone().filter(|kind| kind.starts_with("image/"))?;
            if *url {
                return None;
            }
            // Deltas are cut anywhere and may have padding in the middle, so the data is encoded again.
            let source = Base64Source {
                data: std::mem::take(&mut self.text),
                media_type: None,
                rest: Fields::default(),
            };
            let bytes = DataBlock::from_source(Source::Base64(source)).decoded()?.ok()?;
            if let Source::Base64(source) = DataBlock::bytes(bytes, media_type).source {
                self.text = source.data;
            }
        }
        Some(())
    }

    /// Gives its item an id. In a response of a session it says where the item is stored; otherwise it is the block's own,
    /// or one that is unique in the response.
    pub(super) fn assign_item_id(&mut self, index: usize, session: Option<&str>, reply: &str) {
        // The client, and its next request, have the provider's own id of such an item.
        if let Some(id) = self.client_call().and_then(|kind| kind.item_id(&self.id, &self.extra)) {
            self.item_id = id;
            return;
        }
        if let (Some(session), Some(prefix)) = (session, self.id_prefix()) {
            let number = index.to_string();
            let block = if self.id.is_empty() { &number } else { &self.id };
            let block = (!self.is_structured).then_some(block.as_str());
            self.item_id = ItemId::new(prefix, session, reply, block).to_string();
            return;
        }
        self.item_id = match &self.kind {
            OutputKind::ToolCall { .. } => match self.extra.get::<String>(ITEM_ID) {
                Ok(Some(id)) => id,
                _ => format!("fc_{}", self.id),
            },
            OutputKind::Text if self.id.is_empty() => format!("msg_{index}"),
            OutputKind::Thinking if self.id.is_empty() => format!("rs_{index}"),
            OutputKind::Data { .. } if self.id.is_empty() => format!("ig_{index}"),
            OutputKind::Text
            | OutputKind::Thinking
            | OutputKind::Data { .. }
            | OutputKind::Item(_) => self.id.clone(),
        };
    }

    /// The beginning of its item's id; `None` if the item has one already.
    fn id_prefix(&self) -> Option<&'static str> {
        match &self.kind {
            OutputKind::Text => Some("msg"),
            OutputKind::Thinking => Some("rs"),
            OutputKind::ToolCall { .. } if self.call_type() == CUSTOM_CALL => Some("ctc"),
            OutputKind::ToolCall { .. } => Some("fc"),
            OutputKind::Data { .. } => Some("ig"),
            OutputKind::Item(_) => None,
        }
    }

    /// The kind of a call that has an item of its own.
    fn client_call(&self) -> Option<&'static ClientCall> {
        ClientCall::of_call(&self.extra).filter(|_| self.kind.is_call())
    }

    fn call_type(&self) -> &'static str {
        if item::has_item_type(&self.extra, CUSTOM_CALL) { CUSTOM_CALL } else { "function_call" }
    }

    fn input<'t>(&self, text: &'t str) -> frame::Input<'t> {
        if self.call_type() == CUSTOM_CALL {
            frame::Input::Input(text)
        } else {
            frame::Input::Arguments(text)
        }
    }

    /// The item with this text.
    pub(super) fn item(&self, text: &str, status: &'static str) -> Option<Json> {
        let id = &self.item_id;
        match &self.kind {
            OutputKind::Text => Json::from_value(&frame::Message {
                content: vec![Part::text(text, &self.extra)],
                phase: self.extra.raw("phase"),
                structured_output: self.is_structured,
                replaced: self.is_replaced,
                ..frame::Message::new(id, status)
            })
            .ok(),
            OutputKind::Thinking => None,
            OutputKind::ToolCall { .. } if let Some(kind) = self.client_call() => {
                let mut item = kind.write_call(&self.id, text, &self.extra);
                if item.raw("id").is_none() {
                    item.insert("id", id.as_str());
                }
                if item.raw("status").is_some() {
                    item.insert("status", status);
                }
                Some(item.into())
            }
            OutputKind::ToolCall { name, .. } => {
                let input = self.input(text);
                Json::from_value(&frame::ToolCall {
                    id,
                    r#type: self.call_type(),
                    status,
                    input,
                    call_id: &self.id,
                    name,
                    namespace: self.extra.raw("namespace"),
                })
                .ok()
            }
            OutputKind::Data { media_type, .. } => {
                let format = media_type.as_deref().and_then(|kind| kind.strip_prefix("image/"));
                let image = frame::Image {
                    id,
                    r#type: IMAGE_CALL,
                    status,
                    output_format: format.unwrap_or_default(),
                    result: text,
                };
                Json::from_value(&image).ok()
            }
            OutputKind::Item(item) => Some(item.clone()),
        }
    }

    /// The item, marked as discarded.
    pub(super) fn discarded_item(&self) -> Fields {
        let item = match &self.kind {
            OutputKind::Thinking => {
                let text = Some(self.text.as_str()).filter(|text| !text.is_empty());
                let summary = text.into_iter().map(Part::summary).collect();
                Json::from_value(&frame::Reasoning {
                    id: &self.item_id,
                    r#type: "reasoning",
                    summary,
                    encrypted_content: None,
                })
                .ok()
            }
            OutputKind::Text
            | OutputKind::ToolCall { .. }
            | OutputKind::Data { .. }
            | OutputKind::Item(_) => self.item(&self.text, "incomplete"),
        };
        let mut fields: Fields = item.and_then(|item| item.parse_as().ok()).unwrap_or_default();
        fields.insert("status", "incomplete");
        fields.insert("discarded", true);
        fields
    }

    /// Writes the start of the item, or of its next part, and the text so far.
    pub(super) fn write_start(&mut self, number: &mut u64, index: usize, out: &mut Frames) {
        self.prepare_delta_prefix(index);
        let id = &self.item_id;
        if matches!(self.part_state, PartState::First) {
            let item = match &self.kind {
                OutputKind::Text => Json::from_value(&frame::Message {
                    structured_output: self.is_structured,
                    ..frame::Message::new(id, "in_progress")
                }),
                OutputKind::Thinking => Json::from_value(&frame::Reasoning {
                    id,
                    r#type: "reasoning",
                    summary: Vec::new(),
                    encrypted_content: None,
                }),
                OutputKind::ToolCall { .. } if self.client_call().is_some() => {
                    self.item(&self.text, "in_progress").ok_or_else(cannot_serialize)
                }
                OutputKind::ToolCall { .. } | OutputKind::Data { .. } => {
                    self.item("", "in_progress").ok_or_else(cannot_serialize)
                }
                OutputKind::Item(item) => Ok(item.clone()),
            };
            if let Ok(item) = &item {
                let added = frame::ItemFrame { output_index: index, item };
                frame::write_frame("response.output_item.added", number, &added, out);
            }
        }
        let has_deltas = matches!(
            self.kind,
            OutputKind::Text | OutputKind::Thinking | OutputKind::ToolCall { .. }
        ) && self.client_call().is_none();
        if matches!(self.kind, OutputKind::Text) {
            self.open_part(number, index, out);
        }
        if has_deltas && !self.text.is_empty() {
            self.open_part(number, index, out);
            self.write_delta(*number, &self.text, None, out);
            *number += 1;
        }
    }

    /// Writes the start of the part, if it has one. Reasoning without text has no part.
    #[inline]
    pub(super) fn open_part(&mut self, number: &mut u64, index: usize, out: &mut Frames) {
        if std::mem::replace(&mut self.part_state, PartState::Open).is_open() {
            return;
        }
        match &self.kind {
            OutputKind::Text => {
                let nothing = Fields::default();
                let part = Part::text("", &nothing);
                frame::write_frame(
                    "response.content_part.added",
                    number,
                    &self.at_part(index, &part),
                    out,
                );
            }
            OutputKind::Thinking => {
                let part = Part::summary("");
                let added = self.at_summary(index, &part);
                frame::write_frame("response.reasoning_summary_part.added", number, &added, out);
            }
            OutputKind::ToolCall { .. } | OutputKind::Data { .. } | OutputKind::Item(_) => {}
        }
    }

    /// Writes a delta. Most frames are deltas, so they are written without serde.
    #[inline]
    pub(super) fn write_delta(
        &self,
        number: u64,
        delta: &str,
        logprobs: Option<&Json>,
        out: &mut Frames,
    ) {
        let (name, tail) = match &self.kind {
            OutputKind::Text if logprobs.is_some() => ("response.output_text.delta", "}"),
            OutputKind::Text => ("response.output_text.delta", r#","logprobs":[]}"#),
            OutputKind::Thinking => ("response.reasoning_summary_text.delta", "}"),
            OutputKind::ToolCall { .. } if self.call_type() == CUSTOM_CALL => {
                ("response.custom_tool_call_input.delta", "}")
            }
            OutputKind::ToolCall { .. } => ("response.function_call_arguments.delta", "}"),
            OutputKind::Data { .. } | OutputKind::Item(_) => return,
        };
        out.push_with(name, |out| {
            out.push_str(r#"{"type":""#);
            out.push_str(name);
            out.push_str(r#"","sequence_number":"#);
            let _ = write!(out, "{number}");
            out.push_str(&self.delta_prefix);
            frame::write_json_string(delta, out);
            if let (OutputKind::Text, Some(logprobs)) = (&self.kind, logprobs) {
                out.push_str(r#","logprobs":"#);
                out.push_str(logprobs.text());
            }
            out.push_str(tail);
        });
    }

    /// Prepares the JSON between the number and the delta.
    fn prepare_delta_prefix(&mut self, index: usize) {
        let place = &mut self.delta_prefix;
        place.clear();
        place.push_str(r#","item_id":"#);
        frame::write_json_string(&self.item_id, place);
        let _ = write!(place, r#","output_index":{index}"#);
        match &self.kind {
            OutputKind::Text => place.push_str(r#","content_index":0"#),
            OutputKind::Thinking => {
                let _ = write!(place, r#","summary_index":{}"#, self.part);
            }
            OutputKind::ToolCall { .. } | OutputKind::Data { .. } | OutputKind::Item(_) => {}
        }
        place.push_str(r#","delta":"#);
    }

    /// Writes the frames between the last delta and the end of the item.
    pub(super) fn write_end(&self, number: &mut u64, index: usize, out: &mut Frames) {
        let (item_id, text) = (self.item_id.as_str(), self.text.as_str());
        match &self.kind {
            OutputKind::Text => {
                let done = frame::TextDone {
                    item_id,
                    output_index: index,
                    content_index: 0,
                    text,
                    logprobs: frame::ListField::read(&self.extra, "logprobs"),
                };
                frame::write_frame("response.output_text.done", number, &done, out);
                let part = Part::text(text, &self.extra);
                frame::write_frame(
                    "response.content_part.done",
                    number,
                    &self.at_part(index, &part),
                    out,
                );
            }
            OutputKind::Thinking if self.part_state.is_open() => {
                let done = frame::SummaryDone {
                    item_id,
                    output_index: index,
                    summary_index: self.part,
                    text,
                };
                frame::write_frame("response.reasoning_summary_text.done", number, &done, out);
                let part = Part::summary(text);
                frame::write_frame(
                    "response.reasoning_summary_part.done",
                    number,
                    &self.at_summary(index, &part),
                    out,
                );
            }
            OutputKind::ToolCall { .. } if self.client_call().is_some() => {}
            OutputKind::ToolCall { name, .. } => {
                let is_custom = self.call_type() == CUSTOM_CALL;
                let input = self.input(text);
                let name = (!is_custom).then_some(name.as_str());
                let done = frame::CallDone { item_id, output_index: index, name, input };
                let frame_name = if is_custom {
                    "response.custom_tool_call_input.done"
                } else {
                    "response.function_call_arguments.done"
                };
                frame::write_frame(frame_name, number, &done, out);
            }
            OutputKind::Thinking | OutputKind::Data { .. } | OutputKind::Item(_) => {}
        }
    }

    fn at_part<'a>(&'a self, output_index: usize, part: &'a Part<'a>) -> frame::PartFrame<'a> {
        frame::PartFrame { item_id: &self.item_id, output_index, content_index: 0, part }
    }

    fn at_summary<'a>(
        &'a self,
        output_index: usize,
        part: &'a Part<'a>,
    ) -> frame::SummaryPartFrame<'a> {
        frame::SummaryPartFrame {
            item_id: &self.item_id,
            output_index,
            summary_index: self.part,
            part,
        }
    }
}

fn cannot_serialize() -> turnwire_core::Error {
    turnwire_core::Error::new(turnwire_core::ErrorKind::WrongShape, "it cannot be written")
}
