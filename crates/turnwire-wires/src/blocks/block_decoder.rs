//! Decodes the blocks of one turn.

use super::approval::Decision;
use super::conversions::{data_block, input_text};
use super::message::read_call;
use super::{EXTERNAL_EXECUTION, FILE_PROCESSING, WRAPPED_BLOCK};
use crate::json::string_field;
use crate::provider::unknown_block;
use crate::stream::EventSink;
use std::collections::{HashMap, HashSet};
use turnwire_core::block::DataKind;
use turnwire_core::event::{
    Block, Chunk, Custom, CustomValue, DataBlockDelta, DataBlockEnd, DataBlockStart, Hint,
    ModelCallEnd, ReplyEnd, ReplyStart, RequireExternalExecution, RequireUserConfirm, SubAgent,
    TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd,
    ThinkingBlockStart, ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta, UserConfirmResult,
};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, FinishedReason, Json, Payload, Role, Source, ToolCall,
    ToolResultState,
};

/// The open blocks of a turn and their owners.
pub(super) struct BlockDecoder {
    owners: ReplyOwners,
    open: HashMap<u64, OpenBlock>,
    /// A text block that may turn out to say how the turn ends.
    undecided_text: Option<u64>,
    /// All blocks by index, in case they are discarded.
    ids: HashMap<u64, (OwnerIndex, String)>,
    /// Calls without a result: index and name.
    calls: HashMap<String, (u64, String)>,
    /// The calls of the last approval request, in order.
    asked_calls: Vec<String>,
}

/// The index of a sub-agent's reply; `None` for the turn's own reply.
type OwnerIndex = Option<usize>;

struct ReplyOwners {
    reply_id: String,
    subs: Vec<SubagentReply>,
    /// By sub-agent name and call id.
    positions: HashMap<(String, String), usize>,
}

struct SubagentReply {
    reply_id: String,
    agent: SubAgent,
}

enum OpenBlock {
    Text {
        owner: OwnerIndex,
        id: String,
        begun: bool,
        initial: String,
    },
    /// A text that replaces another one with the same id.
    Replacement {
        owner: OwnerIndex,
        id: String,
        text: String,
    },
    Thinking {
        owner: OwnerIndex,
        id: String,
        initial: String,
    },
    Approval {
        owner: OwnerIndex,
        key: Option<Json>,
    },
    Files,
}

impl ReplyOwners {
    fn emit<'e>(
        &'e self,
        owner: OwnerIndex,
        kind: impl Into<EventKind<'e>>,
        out: &mut EventSink<'_>,
    ) {
        out(self.event(owner, kind));
    }

    fn event<'e>(&'e self, owner: OwnerIndex, kind: impl Into<EventKind<'e>>) -> Event<'e> {
        match owner.and_then(|at| self.subs.get(at)) {
            Some(sub) => {
                let mut event = Event::new(sub.reply_id.as_str(), kind);
                event.agent = Some(Box::new(sub.agent.clone()));
                event
            }
            None => Event::new(self.reply_id.as_str(), kind),
        }
    }

    /// The owner of a block. A sub-agent's reply starts with its first block.
    fn find_or_add_owner(&mut self, fields: &Fields, out: &mut EventSink<'_>) -> OwnerIndex {
        let text = |key| string_field(fields, key).filter(|word| !word.is_empty());
        let (name, parent) = (text("subagent"), text("parent_tool_use_id"));
        if name.is_none() && parent.is_none() {
            return None;
        }
        let key = (name.clone().unwrap_or_default(), parent.clone().unwrap_or_default());
        if let Some(at) = self.positions.get(&key) {
            return Some(*at);
        }
        let known = self.subs.iter().any(|sub| sub.agent.parent_tool_call_id == parent);
        let (name, at) = (name.unwrap_or_default(), self.subs.len());
        let call = parent.as_deref().unwrap_or_default();
        let reply_id = match (&*self.reply_id, known || call.is_empty()) {
            (own, true) => format!("{own}/{call}/{name}"),
            (own, false) => format!("{own}/{call}"),
        };
        let agent_path = (!name.is_empty()).then(|| format!("main/{name}"));
        let agent = SubAgent { agent_path, parent_tool_call_id: parent };
        self.subs.push(SubagentReply { reply_id, agent });
        self.positions.insert(key, at);
        let start = ReplyStart { session_id: String::new(), name, role: Role::Assistant };
        self.emit(Some(at), start, out);
        Some(at)
    }
}

impl BlockDecoder {
    pub(super) fn new(reply_id: &str) -> Self {
        let reply_id = reply_id.to_owned();
        Self {
            owners: ReplyOwners { reply_id, subs: Vec::new(), positions: HashMap::new() },
            open: HashMap::new(),
            undecided_text: None,
            ids: HashMap::new(),
            calls: HashMap::new(),
            asked_calls: Vec::new(),
        }
    }

    pub(super) fn reply_id(&self) -> &str {
        &self.owners.reply_id
    }

    /// A delta of a text block.
    pub(super) fn text_delta(&mut self, index: u64, text: &str, out: &mut EventSink<'_>) -> bool {
        let Self { owners, open, undecided_text: unsure, .. } = self;
        match open.get_mut(&index) {
            Some(OpenBlock::Text { owner, id, begun, initial }) => {
                if !*begun {
                    *begun = true;
                    *unsure = None;
                    initial.clear();
                    owners.emit(*owner, TextBlockStart { block_id: id.as_str().into() }, out);
                }
                let (block_id, delta) = (id.as_str().into(), text.into());
                owners.emit(*owner, TextBlockDelta { block_id, delta }, out);
                true
            }
            Some(OpenBlock::Replacement { text: whole, .. }) => {
                whole.push_str(text);
                true
            }
            _ => false,
        }
    }

    /// A delta of a thinking block.
    pub(super) fn thinking_delta(
        &mut self,
        index: u64,
        text: &str,
        out: &mut EventSink<'_>,
    ) -> bool {
        let Some(OpenBlock::Thinking { owner, id, initial }) = self.open.get_mut(&index) else {
            return false;
        };
        initial.clear();
        let (block_id, delta) = (id.as_str().into(), text.into());
        self.owners.emit(*owner, ThinkingBlockDelta { block_id, delta }, out);
        true
    }

    /// A delta of another block.
    pub(super) fn other_delta(
        &mut self,
        index: u64,
        delta: &Fields,
        out: &mut EventSink<'_>,
    ) -> bool {
        match self.open.get(&index) {
            Some(OpenBlock::Approval { owner, key }) => {
                let (owner, key) = (*owner, key.clone());
                self.approval_request(owner, key, delta, out)
            }
            Some(OpenBlock::Files) => {
                self.file_processing(delta, out);
                true
            }
            _ => false,
        }
    }

    /// A block starts; many are complete with that.
    pub(super) fn block_start(&mut self, index: u64, block: &Fields, out: &mut EventSink<'_>) {
        self.begin_undecided_text(out);
        let owner = self.owners.find_or_add_owner(block, out);
        let given = string_field(block, "id").or_else(|| string_field(block, "tool_use_id"));
        let id = given.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("{}-{index}", self.owners.reply_id));
        let initial = |key: &str| string_field(block, key).unwrap_or_default();
        let kind = string_field(block, "type").unwrap_or_default();
        self.ids.insert(index, (owner, id.clone()));
        match kind.as_str() {
            "text" => {
                let old = block.get::<u64>("replaces").ok().flatten();
                let old = old.and_then(|old| self.open.remove(&old));
                let open = if let Some(OpenBlock::Text { owner, id, .. }) = old {
                    OpenBlock::Replacement { owner, id, text: String::new() }
                } else {
                    self.undecided_text = Some(index);
                    OpenBlock::Text { owner, id, begun: false, initial: initial("text") }
                };
                self.open.insert(index, open);
            }
            "thinking" => {
                let block_id = id.as_str().into();
                self.owners.emit(owner, ThinkingBlockStart { block_id }, out);
                let initial = initial("thinking");
                self.open.insert(index, OpenBlock::Thinking { owner, id, initial });
            }
            "tool_use" => self.tool_use(owner, index, &id, block, out),
            "tool_result" => self.tool_result(owner, &id, block, out),
            "approval_request" => {
                let key = block.raw("approval_key").cloned();
                // Some servers put the request into the start.
                if !self.approval_request(owner, key.clone(), block, out) {
                    self.open.insert(index, OpenBlock::Approval { owner, key });
                }
            }
            "approval_result" => self.approval_result(owner, block, out),
            "attachment" => self.attachment(owner, &id, block, out),
            "hint" => {
                let hint = block.get::<Payload>("hint").ok().flatten().unwrap_or_default();
                let hint = Hint { block_id: id, source: string_field(block, "source"), hint };
                self.owners.emit(owner, hint, out);
            }
            FILE_PROCESSING => {
                self.open.insert(index, OpenBlock::Files);
                self.file_processing(block, out);
            }
            EXTERNAL_EXECUTION => {
                let listed = block.get::<Vec<Fields>>("tool_calls").ok().flatten();
                let tool_calls = self.read_calls(listed.unwrap_or_default(), &[]);
                self.owners.emit(owner, RequireExternalExecution { tool_calls }, out);
            }
            WRAPPED_BLOCK if block.raw("block").is_some() => {
                let inner = block.get::<Fields>("block").ok().flatten().unwrap_or_default();
                let block = Box::new(unknown_block(inner));
                self.owners.emit(owner, Block { block }, out);
            }
            _ => {
                let mut other = block.clone();
                other.remove("subagent");
                other.remove("parent_tool_use_id");
                let block = Box::new(unknown_block(other));
                self.owners.emit(owner, Block { block }, out);
            }
        }
    }

    /// Starts an undecided text: it is a text after all.
    fn begin_undecided_text(&mut self, out: &mut EventSink<'_>) {
        let Some(index) = self.undecided_text.take() else { return };
        if let Some(OpenBlock::Text { owner, id, begun, .. }) = self.open.get_mut(&index) {
            *begun = true;
            self.owners.emit(*owner, TextBlockStart { block_id: id.as_str().into() }, out);
        }
    }

    pub(super) fn block_stop(&mut self, index: u64, out: &mut EventSink<'_>) {
        if self.undecided_text == Some(index) {
            self.begin_undecided_text(out);
        }
        let Some(open) = self.open.remove(&index) else { return };
        self.end_block(open, out);
    }

    fn end_block(&self, open: OpenBlock, out: &mut EventSink<'_>) {
        let extra = Fields::default();
        match open {
            OpenBlock::Text { owner, id, initial, .. } => {
                if !initial.is_empty() {
                    let (block_id, delta) = (id.as_str().into(), initial.into());
                    self.owners.emit(owner, TextBlockDelta { block_id, delta }, out);
                }
                self.owners.emit(
                    owner,
                    TextBlockEnd { block_id: id.into(), text: None, extra },
                    out,
                );
            }
            OpenBlock::Replacement { owner, id, text } => {
                let text = Some(text.into());
                self.owners.emit(owner, TextBlockEnd { block_id: id.into(), text, extra }, out);
            }
            OpenBlock::Thinking { owner, id, initial } => {
                if !initial.is_empty() {
                    let (block_id, delta) = (id.as_str().into(), initial.into());
                    self.owners.emit(owner, ThinkingBlockDelta { block_id, delta }, out);
                }
                self.owners.emit(owner, ThinkingBlockEnd { block_id: id.into(), extra }, out);
            }
            OpenBlock::Approval { .. } | OpenBlock::Files => {}
        }
    }

    /// The block says how the turn ends. If it started as text, it stays one.
    pub(super) fn terminal(&mut self, index: u64, out: &mut EventSink<'_>) {
        if self.undecided_text == Some(index) {
            self.undecided_text = None;
            self.open.remove(&index);
        } else if let Some(open) = self.open.remove(&index) {
            self.end_block(open, out);
        }
    }

    pub(super) fn discard(&mut self, index: u64, out: &mut EventSink<'_>) {
        self.begin_undecided_text(out);
        self.open.remove(&index);
        if let Some((owner, id)) = self.ids.remove(&index) {
            let end = ModelCallEnd { discard: vec![id], ..ModelCallEnd::default() };
            self.owners.emit(owner, end, out);
        }
    }

    /// Closes open blocks and the replies of sub-agents.
    pub(super) fn close(&mut self, reason: &FinishedReason, at: &str, out: &mut EventSink<'_>) {
        self.begin_undecided_text(out);
        let mut open: Vec<(u64, OpenBlock)> = self.open.drain().collect();
        open.sort_by_key(|(index, _)| *index);
        for (_, open) in open {
            self.end_block(open, out);
        }
        for sub in 0..self.owners.subs.len() {
            let end = ReplyEnd { finished_reason: reason.clone(), ..ReplyEnd::default() };
            let mut event = self.owners.event(Some(sub), end);
            event.created_at = at.to_owned().into();
            out(event);
        }
    }

    fn tool_use(
        &mut self,
        owner: OwnerIndex,
        index: u64,
        id: &str,
        block: &Fields,
        out: &mut EventSink<'_>,
    ) {
        let name = string_field(block, "name").unwrap_or_default();
        self.calls.insert(id.to_owned(), (index, name.clone()));
        // No event of a call has these: it came as a whole block.
        if block.raw("state").is_some() || block.raw("suggested_rules").is_some() {
            let call = ToolCall { id: id.to_owned(), ..read_call(block) };
            return self.owners.emit(owner, Block { block: Box::new(call.into()) }, out);
        }
        let tool_call_id = || id.to_owned().into();
        let (extra, tool_call_name) = (title_metadata(block, &name), name.into());
        let owners = &self.owners;
        owners.emit(owner, ToolCallStart { tool_call_id: tool_call_id(), tool_call_name }, out);
        if let Some(input) = block.raw("input").filter(|input| !input.is_null()) {
            let delta = input_text(input).into();
            owners.emit(owner, ToolCallDelta { tool_call_id: tool_call_id(), delta }, out);
        }
        owners.emit(owner, ToolCallEnd { tool_call_id: tool_call_id(), extra }, out);
    }

    fn tool_result(
        &mut self,
        owner: OwnerIndex,
        id: &str,
        block: &Fields,
        out: &mut EventSink<'_>,
    ) {
        let id = string_field(block, "tool_use_id").unwrap_or_else(|| id.to_owned());
        self.calls.remove(&id);
        let tool_call_id = || id.clone().into();
        let tool_call_name = string_field(block, "name").unwrap_or_default().into();
        let owners = &self.owners;
        owners.emit(owner, ToolResultStart { tool_call_id: tool_call_id(), tool_call_name }, out);
        let text = match block.raw("content") {
            Some(json) if !json.is_null() => {
                json.parse_as().unwrap_or_else(|_| json.text().to_owned())
            }
            _ => String::new(),
        };
        if !text.is_empty() {
            let delta = ToolResultTextDelta { tool_call_id: tool_call_id(), delta: text.into() };
            owners.emit(owner, delta, out);
        }
        let status = string_field(block, "status").unwrap_or_else(|| "success".to_owned());
        let state = ToolResultState::from(status.as_str());
        let mut end = owners.event(owner, ToolResultEnd { tool_call_id: tool_call_id(), state });
        end.metadata.insert_some(
            "artifact",
            block.raw("artifact").filter(|artifact| !artifact.is_null()).cloned(),
        );
        out(end);
    }

    fn approval_request(
        &mut self,
        owner: OwnerIndex,
        key: Option<Json>,
        from: &Fields,
        out: &mut EventSink<'_>,
    ) -> bool {
        let Ok(Some(actions)) = from.get::<Vec<Fields>>("action_requests") else { return false };
        let configs = from.get::<Vec<Fields>>("review_configs").ok().flatten().unwrap_or_default();
        let tool_calls = self.read_calls(actions, &configs);
        self.asked_calls = tool_calls.iter().map(|call| call.id.clone()).collect();
        let mut event = self.owners.event(owner, RequireUserConfirm { tool_calls });
        event.metadata.insert_some("approval_key", key);
        event.metadata.insert_some("timeout_seconds", from.raw("timeout_seconds").cloned());
        out(event);
        true
    }

    /// The calls in a block. One without an id is the first pending call of that name.
    fn read_calls(&self, actions: Vec<Fields>, configs: &[Fields]) -> Vec<ToolCall> {
        let mut taken: HashSet<String> = HashSet::new();
        let mut calls = Vec::new();
        for (at, action) in actions.into_iter().enumerate() {
            let name = string_field(&action, "name").unwrap_or_default();
            let id = string_field(&action, "tool_use_id").or_else(|| {
                let waiting = self
                    .calls
                    .iter()
                    .filter(|(id, (_, known))| *known == name && !taken.contains(id.as_str()));
                waiting.min_by_key(|(_, (place, _))| *place).map(|(id, _)| id.clone())
            });
            let id = id.unwrap_or_default();
            taken.insert(id.clone());
            let input = action.raw("args").map(input_text).unwrap_or_default();
            let mut call = ToolCall::new(id, name, input);
            let rules = configs.get(at).and_then(|config| config.get("suggested_rules").ok()?);
            call.suggested_rules = rules.unwrap_or_default();
            calls.push(call);
        }
        calls
    }

    fn approval_result(&mut self, owner: OwnerIndex, block: &Fields, out: &mut EventSink<'_>) {
        let decisions = block.get::<Vec<Json>>("decisions").ok().flatten().unwrap_or_default();
        let results = decisions.iter().enumerate().filter_map(|(at, json)| {
            let decision = Decision::from_json(json).ok()?;
            let id = decision.tool_use_id.as_ref().or_else(|| self.asked_calls.get(at))?;
            let name = self.calls.get(id).map_or("", |(_, name)| name);
            Some(decision.to_result(id, name))
        });
        let confirm_results = results.collect();
        self.owners.emit(owner, UserConfirmResult { confirm_results }, out);
    }

    fn attachment(&self, owner: OwnerIndex, id: &str, block: &Fields, out: &mut EventSink<'_>) {
        let mut data = data_block(block);
        id.clone_into(&mut data.id);
        let chunk = match (&data.source, data.kind) {
            (Source::Base64(source), DataKind::Data) => Chunk::Data(source.data.as_str().into()),
            (Source::Url(source), DataKind::Data) => Chunk::Url(source.url.as_str().into()),
            _ => {
                let block = Box::new(ContentBlock::Data(data));
                return self.owners.emit(owner, Block { block }, out);
            }
        };
        let media_type = || data.media_type().map(str::to_owned);
        let (block_id, name) = (|| id.into(), data.name.clone());
        let start = DataBlockStart { block_id: block_id(), media_type: media_type(), name };
        let delta = DataBlockDelta { block_id: block_id(), media_type: media_type(), chunk };
        let end = DataBlockEnd { block_id: block_id(), extra: Fields::default() };
        for kind in [EventKind::from(start), delta.into(), end.into()] {
            self.owners.emit(owner, kind, out);
        }
    }

    fn file_processing(&self, from: &Fields, out: &mut EventSink<'_>) {
        let keys = ["status", "files", "message"];
        let kept = keys
            .into_iter()
            .filter_map(|key| Some((key, from.raw(key).filter(|json| !json.is_null())?.clone())));
        let value =
            Json::from_value(&kept.collect::<Fields>()).map(CustomValue).unwrap_or_default();
        self.owners.emit(None, Custom { name: FILE_PROCESSING.to_owned(), value }, out);
    }
}

/// The title of a tool, if it differs from its name.
fn title_metadata(block: &Fields, name: &str) -> Fields {
    let title = string_field(block, "tool_content_message")
        .filter(|title| title != name && !title.is_empty());
    title.map(|title| ("title", title)).into_iter().collect()
}
