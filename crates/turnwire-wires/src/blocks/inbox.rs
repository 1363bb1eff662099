//! The blocks of one turn on their way in.

use super::approval::Decision;
use super::words::{data_block, input_text};
use super::{EXTERNAL, FILES, WRAPPED};
use crate::provider::other_block;
use crate::stream::Sink;
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

/// What a turn has open, and whose it is.
pub(super) struct Inbox {
    owners: Owners,
    open: HashMap<u64, Open>,
    /// A text block that may yet turn out to tell how the turn ends.
    unsure: Option<u64>,
    /// Every block by its index, in case it is taken back.
    ids: HashMap<u64, (Owner, String)>,
    /// Calls without a result: their place and their name.
    calls: HashMap<String, (u64, String)>,
    /// The calls of the last question, in its order.
    asked: Vec<String>,
}

/// The turn's own reply, or one of its sub-agents'.
type Owner = Option<usize>;

struct Owners {
    reply_id: String,
    subs: Vec<Sub>,
    /// By name and call.
    places: HashMap<(String, String), usize>,
}

struct Sub {
    reply_id: String,
    agent: SubAgent,
}

enum Open {
    Text {
        owner: Owner,
        id: String,
        begun: bool,
        initial: String,
    },
    /// A text that stands for another of the same id.
    Instead {
        owner: Owner,
        id: String,
        text: String,
    },
    Thinking {
        owner: Owner,
        id: String,
        initial: String,
    },
    Approval {
        owner: Owner,
        key: Option<Json>,
    },
    Files,
}

impl Owners {
    fn put<'e>(&'e self, owner: Owner, kind: impl Into<EventKind<'e>>, out: &mut Sink<'_>) {
        out(self.event(owner, kind));
    }

    fn event<'e>(&'e self, owner: Owner, kind: impl Into<EventKind<'e>>) -> Event<'e> {
        match owner.and_then(|at| self.subs.get(at)) {
            Some(sub) => {
                let mut event = Event::new(sub.reply_id.as_str(), kind);
                event.agent = Some(Box::new(sub.agent.clone()));
                event
            }
            None => Event::new(self.reply_id.as_str(), kind),
        }
    }

    /// Whose a block is. A sub-agent's reply begins with its first block.
    fn of(&mut self, fields: &Fields, out: &mut Sink<'_>) -> Owner {
        let said = |key| word(fields, key).filter(|word| !word.is_empty());
        let (name, parent) = (said("subagent"), said("parent_tool_use_id"));
        if name.is_none() && parent.is_none() {
            return None;
        }
        let key = (name.clone().unwrap_or_default(), parent.clone().unwrap_or_default());
        if let Some(at) = self.places.get(&key) {
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
        self.subs.push(Sub { reply_id, agent });
        self.places.insert(key, at);
        let start = ReplyStart { session_id: String::new(), name, role: Role::Assistant };
        self.put(Some(at), start, out);
        Some(at)
    }
}

impl Inbox {
    pub(super) fn new(reply_id: &str) -> Self {
        let reply_id = reply_id.to_owned();
        Self {
            owners: Owners { reply_id, subs: Vec::new(), places: HashMap::new() },
            open: HashMap::new(),
            unsure: None,
            ids: HashMap::new(),
            calls: HashMap::new(),
            asked: Vec::new(),
        }
    }

    pub(super) fn reply_id(&self) -> &str {
        &self.owners.reply_id
    }

    /// More of a text.
    pub(super) fn text(&mut self, index: u64, text: &str, out: &mut Sink<'_>) -> bool {
        let Self { owners, open, unsure, .. } = self;
        match open.get_mut(&index) {
            Some(Open::Text { owner, id, begun, initial }) => {
                if !*begun {
                    *begun = true;
                    *unsure = None;
                    initial.clear();
                    owners.put(*owner, TextBlockStart { block_id: id.as_str().into() }, out);
                }
                let (block_id, delta) = (id.as_str().into(), text.into());
                owners.put(*owner, TextBlockDelta { block_id, delta }, out);
                true
            }
            Some(Open::Instead { text: whole, .. }) => {
                whole.push_str(text);
                true
            }
            _ => false,
        }
    }

    /// More of a thinking block.
    pub(super) fn thinking(&mut self, index: u64, text: &str, out: &mut Sink<'_>) -> bool {
        let Some(Open::Thinking { owner, id, initial }) = self.open.get_mut(&index) else {
            return false;
        };
        initial.clear();
        let (block_id, delta) = (id.as_str().into(), text.into());
        self.owners.put(*owner, ThinkingBlockDelta { block_id, delta }, out);
        true
    }

    /// A delta of a block that is neither text nor thinking.
    pub(super) fn delta(&mut self, index: u64, delta: &Fields, out: &mut Sink<'_>) -> bool {
        match self.open.get(&index) {
            Some(Open::Approval { owner, key }) => {
                let (owner, key) = (*owner, key.clone());
                self.ask(owner, key, delta, out)
            }
            Some(Open::Files) => {
                self.files(delta, out);
                true
            }
            _ => false,
        }
    }

    /// A block begins; many are whole with that.
    pub(super) fn start(&mut self, index: u64, block: &Fields, out: &mut Sink<'_>) {
        self.begin(out);
        let owner = self.owners.of(block, out);
        let given = word(block, "id").or_else(|| word(block, "tool_use_id"));
        let id = given.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("{}-{index}", self.owners.reply_id));
        let initial = |key: &str| word(block, key).unwrap_or_default();
        let kind = word(block, "type").unwrap_or_default();
        self.ids.insert(index, (owner, id.clone()));
        match kind.as_str() {
            "text" => {
                let old = block.get::<u64>("replaces").ok().flatten();
                let old = old.and_then(|old| self.open.remove(&old));
                let open = if let Some(Open::Text { owner, id, .. }) = old {
                    Open::Instead { owner, id, text: String::new() }
                } else {
                    self.unsure = Some(index);
                    Open::Text { owner, id, begun: false, initial: initial("text") }
                };
                self.open.insert(index, open);
            }
            "thinking" => {
                let block_id = id.as_str().into();
                self.owners.put(owner, ThinkingBlockStart { block_id }, out);
                let initial = initial("thinking");
                self.open.insert(index, Open::Thinking { owner, id, initial });
            }
            "tool_use" => self.call(owner, index, &id, block, out),
            "tool_result" => self.result(owner, &id, block, out),
            "approval_request" => {
                let key = block.raw("approval_key").cloned();
                // Some put the question into the start.
                if !self.ask(owner, key.clone(), block, out) {
                    self.open.insert(index, Open::Approval { owner, key });
                }
            }
            "approval_result" => self.answer(owner, block, out),
            "attachment" => self.attachment(owner, &id, block, out),
            "hint" => {
                let hint = block.get::<Payload>("hint").ok().flatten().unwrap_or_default();
                let hint = Hint { block_id: id, source: word(block, "source"), hint };
                self.owners.put(owner, hint, out);
            }
            FILES => {
                self.open.insert(index, Open::Files);
                self.files(block, out);
            }
            EXTERNAL => {
                let listed = block.get::<Vec<Fields>>("tool_calls").ok().flatten();
                let tool_calls = self.listed(listed.unwrap_or_default(), &[]);
                self.owners.put(owner, RequireExternalExecution { tool_calls }, out);
            }
            WRAPPED if block.raw("block").is_some() => {
                let inner = block.get::<Fields>("block").ok().flatten().unwrap_or_default();
                let block = Box::new(other_block(inner));
                self.owners.put(owner, Block { block }, out);
            }
            _ => {
                let mut other = block.clone();
                other.remove("subagent");
                other.remove("parent_tool_use_id");
                let block = Box::new(other_block(other));
                self.owners.put(owner, Block { block }, out);
            }
        }
    }

    /// A text of which nothing has come is one after all.
    fn begin(&mut self, out: &mut Sink<'_>) {
        let Some(index) = self.unsure.take() else { return };
        if let Some(Open::Text { owner, id, begun, .. }) = self.open.get_mut(&index) {
            *begun = true;
            self.owners.put(*owner, TextBlockStart { block_id: id.as_str().into() }, out);
        }
    }

    pub(super) fn stop(&mut self, index: u64, out: &mut Sink<'_>) {
        if self.unsure == Some(index) {
            self.begin(out);
        }
        let Some(open) = self.open.remove(&index) else { return };
        self.end(open, out);
    }

    fn end(&self, open: Open, out: &mut Sink<'_>) {
        let extra = Fields::default();
        match open {
            Open::Text { owner, id, initial, .. } => {
                if !initial.is_empty() {
                    let (block_id, delta) = (id.as_str().into(), initial.into());
                    self.owners.put(owner, TextBlockDelta { block_id, delta }, out);
                }
                self.owners.put(
                    owner,
                    TextBlockEnd { block_id: id.into(), text: None, extra },
                    out,
                );
            }
            Open::Instead { owner, id, text } => {
                let text = Some(text.into());
                self.owners.put(owner, TextBlockEnd { block_id: id.into(), text, extra }, out);
            }
            Open::Thinking { owner, id, initial } => {
                if !initial.is_empty() {
                    let (block_id, delta) = (id.as_str().into(), initial.into());
                    self.owners.put(owner, ThinkingBlockDelta { block_id, delta }, out);
                }
                self.owners.put(owner, ThinkingBlockEnd { block_id: id.into(), extra }, out);
            }
            Open::Approval { .. } | Open::Files => {}
        }
    }

    /// The block tells how the turn ends. If it looked like a text until now, it stays one.
    pub(super) fn terminal(&mut self, index: u64, out: &mut Sink<'_>) {
        if self.unsure == Some(index) {
            self.unsure = None;
            self.open.remove(&index);
        } else if let Some(open) = self.open.remove(&index) {
            self.end(open, out);
        }
    }

    pub(super) fn discard(&mut self, index: u64, out: &mut Sink<'_>) {
        self.begin(out);
        self.open.remove(&index);
        if let Some((owner, id)) = self.ids.remove(&index) {
            let end = ModelCallEnd { discard: vec![id], ..ModelCallEnd::default() };
            self.owners.put(owner, end, out);
        }
    }

    /// Closes what is open, and the replies of the sub-agents.
    pub(super) fn close(&mut self, reason: &FinishedReason, at: &str, out: &mut Sink<'_>) {
        self.begin(out);
        let mut open: Vec<(u64, Open)> = self.open.drain().collect();
        open.sort_by_key(|(index, _)| *index);
        for (_, open) in open {
            self.end(open, out);
        }
        for sub in 0..self.owners.subs.len() {
            let end = ReplyEnd { finished_reason: reason.clone(), ..ReplyEnd::default() };
            let mut event = self.owners.event(Some(sub), end);
            event.created_at = at.to_owned().into();
            out(event);
        }
    }

    fn call(&mut self, owner: Owner, index: u64, id: &str, block: &Fields, out: &mut Sink<'_>) {
        let name = word(block, "name").unwrap_or_default();
        self.calls.insert(id.to_owned(), (index, name.clone()));
        let tool_call_id = || id.to_owned().into();
        let (extra, tool_call_name) = (title(block, &name), name.into());
        let owners = &self.owners;
        owners.put(owner, ToolCallStart { tool_call_id: tool_call_id(), tool_call_name }, out);
        if let Some(input) = block.raw("input").filter(|input| !input.is_null()) {
            let delta = input_text(input).into();
            owners.put(owner, ToolCallDelta { tool_call_id: tool_call_id(), delta }, out);
        }
        owners.put(owner, ToolCallEnd { tool_call_id: tool_call_id(), extra }, out);
    }

    fn result(&mut self, owner: Owner, id: &str, block: &Fields, out: &mut Sink<'_>) {
        let id = word(block, "tool_use_id").unwrap_or_else(|| id.to_owned());
        self.calls.remove(&id);
        let tool_call_id = || id.clone().into();
        let tool_call_name = word(block, "name").unwrap_or_default().into();
        let owners = &self.owners;
        owners.put(owner, ToolResultStart { tool_call_id: tool_call_id(), tool_call_name }, out);
        let text = match block.raw("content") {
            Some(json) if !json.is_null() => json.parse_as().unwrap_or_else(|_| json.text().to_owned()),
            _ => String::new(),
        };
        if !text.is_empty() {
            let delta = ToolResultTextDelta { tool_call_id: tool_call_id(), delta: text.into() };
            owners.put(owner, delta, out);
        }
        let status = word(block, "status").unwrap_or_else(|| "success".to_owned());
        let state = ToolResultState::from(status.as_str());
        let mut end = owners.event(owner, ToolResultEnd { tool_call_id: tool_call_id(), state });
        if let Some(artifact) = block.raw("artifact").filter(|artifact| !artifact.is_null()) {
            end.metadata.insert("artifact", artifact.clone());
        }
        out(end);
    }

    fn ask(&mut self, owner: Owner, key: Option<Json>, from: &Fields, out: &mut Sink<'_>) -> bool {
        let Ok(Some(actions)) = from.get::<Vec<Fields>>("action_requests") else { return false };
        let configs = from.get::<Vec<Fields>>("review_configs").ok().flatten().unwrap_or_default();
        let tool_calls = self.listed(actions, &configs);
        self.asked = tool_calls.iter().map(|call| call.id.clone()).collect();
        let mut event = self.owners.event(owner, RequireUserConfirm { tool_calls });
        if let Some(key) = key {
            event.metadata.insert("approval_key", key);
        }
        if let Some(seconds) = from.raw("timeout_seconds") {
            event.metadata.insert("timeout_seconds", seconds.clone());
        }
        out(event);
        true
    }

    /// The calls that a block lists. One without an id is the first of that name that waits.
    fn listed(&self, actions: Vec<Fields>, configs: &[Fields]) -> Vec<ToolCall> {
        let mut taken: HashSet<String> = HashSet::new();
        let mut calls = Vec::new();
        for (at, action) in actions.into_iter().enumerate() {
            let name = word(&action, "name").unwrap_or_default();
            let id = word(&action, "tool_use_id").or_else(|| {
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

    fn answer(&mut self, owner: Owner, block: &Fields, out: &mut Sink<'_>) {
        let decisions = block.get::<Vec<Json>>("decisions").ok().flatten().unwrap_or_default();
        let results = decisions.iter().enumerate().filter_map(|(at, json)| {
            let decision = Decision::read(json).ok()?;
            let id = decision.tool_use_id.as_ref().or_else(|| self.asked.get(at))?;
            let name = self.calls.get(id).map_or("", |(_, name)| name);
            Some(decision.to_result(id, name))
        });
        let confirm_results = results.collect();
        self.owners.put(owner, UserConfirmResult { confirm_results }, out);
    }

    fn attachment(&self, owner: Owner, id: &str, block: &Fields, out: &mut Sink<'_>) {
        let mut data = data_block(block);
        id.clone_into(&mut data.id);
        let chunk = match (&data.source, data.kind) {
            (Source::Base64(source), DataKind::Data) => Chunk::Data(source.data.as_str().into()),
            (Source::Url(source), DataKind::Data) => Chunk::Url(source.url.as_str().into()),
            _ => {
                let block = Box::new(ContentBlock::Data(data));
                return self.owners.put(owner, Block { block }, out);
            }
        };
        let media_type = || data.media_type().map(str::to_owned);
        let (block_id, name) = (|| id.into(), data.name.clone());
        let start = DataBlockStart { block_id: block_id(), media_type: media_type(), name };
        let delta = DataBlockDelta { block_id: block_id(), media_type: media_type(), chunk };
        let end = DataBlockEnd { block_id: block_id(), extra: Fields::default() };
        for kind in [EventKind::from(start), delta.into(), end.into()] {
            self.owners.put(owner, kind, out);
        }
    }

    fn files(&self, from: &Fields, out: &mut Sink<'_>) {
        let keys = ["status", "files", "message"];
        let kept = keys
            .into_iter()
            .filter_map(|key| Some((key, from.raw(key).filter(|json| !json.is_null())?.clone())));
        let value = Json::from_value(&kept.collect::<Fields>()).map(CustomValue).unwrap_or_default();
        self.owners.put(None, Custom { name: FILES.to_owned(), value }, out);
    }
}

/// A friendly name that is more than the tool's name.
fn title(block: &Fields, name: &str) -> Fields {
    let title =
        word(block, "tool_content_message").filter(|title| title != name && !title.is_empty());
    title.map(|title| ("title", title)).into_iter().collect()
}

fn word(fields: &Fields, key: &str) -> Option<String> {
    fields.get::<String>(key).ok().flatten()
}
