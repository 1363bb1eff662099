//! The state of a turn while it is encoded: open messages, pending calls, sub-agents.

use super::client_messages::{ClientMessages, MessageKind};
use super::frame::{Frame, ModelUsage};
use super::write_messages::BlockIds;
use crate::stream::Frames;
use std::collections::{HashMap, HashSet};
use turnwire_core::event::TokenCounts;
use turnwire_core::{Event, Json, Msg, PermissionRule};

/// The state of the current run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// No run, and nothing to continue.
    Idle,
    /// A run is open.
    Open,
    /// The last run was finished because calls are pending.
    Waiting,
}

/// Blocks whose message has a start, deltas and an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamedKind {
    Text,
    Thinking,
    Call,
}

/// The state of one reply and its sub-agents.
#[derive(Default)]
pub(super) struct TurnState {
    /// The reply's id; empty if unknown.
    pub reply: String,
    /// The session's id, from `REPLY_START`.
    pub thread: String,
    pub ended: bool,
    /// Whether a client connected after a user message that has no reply yet.
    pub awaits_reply: bool,
    /// The base of the runs' ids, the number of runs, and the id of the last one.
    pub run_id_base: String,
    pub runs: u32,
    pub run_id: String,
    /// The turn's own reply and its sub-agents', by id.
    pub replies: HashMap<String, ReplyState>,
    /// Open messages by block id.
    pub texts: HashMap<String, OpenMessage>,
    pub thoughts: HashMap<String, OpenMessage>,
    pub inputs: HashMap<String, OpenMessage>,
    /// How many messages were opened.
    pub opened: u64,
    /// Incomplete data blocks and results; for data, whether it is a sub-agent's.
    pub data: HashMap<String, (bool, Msg)>,
    pub results: HashMap<String, Msg>,
    pub calls: HashMap<String, CallState>,
    /// Calls that are executing, and calls that have ended.
    pub running_calls: HashSet<String>,
    pub finished_calls: HashSet<String>,
    pub pending: Vec<PendingCall>,
    pub steps: Vec<Step>,
    /// The sub-agents of this run: active ones in order of their starts, and ended ones.
    pub subagents: Vec<String>,
    pub closed_subagents: HashSet<String>,
    /// The tokens used in this run.
    pub usage: Vec<ModelUsage>,
    pub client_messages: ClientMessages,
}

/// A reply of the turn.
#[derive(Default)]
pub(super) struct ReplyState {
    pub name: Option<String>,
    pub path: Option<String>,
    pub parent_call: Option<String>,
    /// The model of its last call.
    pub model: String,
    /// The names of its open steps.
    pub steps: HashSet<String>,
    pub block_ids: BlockIds,
}

/// An open message of a block.
pub(super) struct OpenMessage {
    /// Its position among all opened messages.
    pub order: u64,
    /// The message's id, if it differs from the block's.
    pub id: Option<String>,
    pub reply: String,
    pub is_subagent: bool,
    /// Whether a delta was sent.
    pub sent: bool,
}

/// A tool call.
pub(super) struct CallState {
    pub name: String,
    pub reply: String,
    /// Hash of the input, to detect whether the user edited it.
    pub input_hash: u64,
}

/// A pending call.
pub(super) struct PendingCall {
    pub call: String,
    pub name: String,
    /// Whether it waits for an approval; otherwise for a result of the client.
    pub confirm: bool,
    pub input: Json,
    pub rules: Vec<PermissionRule>,
    pub reply: String,
    pub is_subagent: bool,
    pub expires_at: Option<String>,
}

/// A running model call.
pub(super) struct Step {
    pub reply: String,
    pub name: String,
    pub is_subagent: bool,
}

impl Step {
    pub(super) fn write_start(&self, out: &mut Frames) {
        let subagent_run_id = self.is_subagent.then_some(&*self.reply);
        out.push("", &Frame::StepStarted { step_name: &self.name, subagent_run_id });
    }

    pub(super) fn write_end(&self, out: &mut Frames) {
        let subagent_run_id = self.is_subagent.then_some(&*self.reply);
        out.push("", &Frame::StepFinished { step_name: &self.name, subagent_run_id });
    }
}

impl StreamedKind {
    pub(super) const ALL: [Self; 3] = [Self::Text, Self::Thinking, Self::Call];

    pub(super) fn message_kind(self) -> MessageKind {
        match self {
            Self::Text => MessageKind::Text,
            Self::Thinking => MessageKind::Thinking,
            Self::Call => MessageKind::Call,
        }
    }
}

impl TurnState {
    pub(super) fn open_messages(
        &mut self,
        kind: StreamedKind,
    ) -> &mut HashMap<String, OpenMessage> {
        match kind {
            StreamedKind::Text => &mut self.texts,
            StreamedKind::Thinking => &mut self.thoughts,
            StreamedKind::Call => &mut self.inputs,
        }
    }

    /// Removes and returns the open messages of one reply or of all, in order of their starts.
    pub(super) fn take_open_messages(
        &mut self,
        reply: Option<&str>,
    ) -> Vec<(StreamedKind, String, OpenMessage)> {
        let mut taken = Vec::new();
        for kind in StreamedKind::ALL {
            let open = self.open_messages(kind);
            let of = open.extract_if(|_, open| reply.is_none_or(|reply| open.reply == reply));
            taken.extend(of.map(|(id, open)| (kind, id, open)));
        }
        taken.sort_by_key(|(_, _, open)| open.order);
        taken
    }

    /// The open messages, in order of their starts.
    pub(super) fn all_open_messages(&self) -> Vec<(StreamedKind, &str, &OpenMessage)> {
        let texts = self.texts.iter().map(|(id, open)| (StreamedKind::Text, &**id, open));
        let thoughts = self.thoughts.iter().map(|(id, open)| (StreamedKind::Thinking, &**id, open));
        let inputs = self.inputs.iter().map(|(id, open)| (StreamedKind::Call, &**id, open));
        let mut all: Vec<_> = texts.chain(thoughts).chain(inputs).collect();
        all.sort_by_key(|(_, _, open)| open.order);
        all
    }

    /// The incomplete data blocks of one reply or of all, in a fixed order.
    pub(super) fn open_data(&self, all: bool, reply: &str) -> Vec<String> {
        let of = self.data.iter().filter(|(_, (_, msg))| all || msg.id() == reply);
        let mut ids: Vec<String> = of.map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids
    }

    /// The state of an event's reply.
    pub(super) fn reply_state(&mut self, event: &Event<'_>) -> &mut ReplyState {
        if !self.replies.contains_key(&*event.reply_id) {
            let agent = event.agent.as_deref();
            let reply = ReplyState {
                path: agent.and_then(|agent| agent.agent_path.clone()),
                parent_call: agent.and_then(|agent| agent.parent_tool_call_id.clone()),
                ..ReplyState::default()
            };
            self.replies.insert(event.reply_id.to_string(), reply);
        }
        self.replies.entry(event.reply_id.to_string()).or_default()
    }

    pub(super) fn name_of(&self, reply: &str) -> &str {
        self.replies.get(reply).and_then(|reply| reply.name.as_deref()).unwrap_or_default()
    }

    /// Remembers a call.
    pub(super) fn remember_call(&mut self, id: &str, name: &str, reply: &str) {
        if !self.calls.contains_key(id) {
            let (name, reply) = (name.to_owned(), reply.to_owned());
            self.calls.insert(id.to_owned(), CallState { name, reply, input_hash: 0 });
        }
    }

    /// Ends the step at this index.
    pub(super) fn end_step(&mut self, at: usize, out: &mut Frames) {
        let step = self.steps.remove(at);
        step.write_end(out);
        if let Some(reply) = self.replies.get_mut(&step.reply) {
            reply.steps.remove(&step.name);
        }
    }

    /// Drops steps whose start was not written.
    pub(super) fn forget_steps(&mut self) {
        self.steps.clear();
        self.replies.values_mut().for_each(|reply| reply.steps.clear());
    }

    /// A call has ended.
    pub(super) fn finish_call(&mut self, call: &str) {
        self.pending.retain(|pending| pending.call != call);
        self.running_calls.remove(call);
    }

    pub(super) fn count_tokens(&mut self, model: String, counts: TokenCounts) {
        let known = self.usage.iter().position(|tokens| tokens.model == model);
        let at = known.unwrap_or_else(|| {
            self.usage.push(ModelUsage::new(model));
            self.usage.len() - 1
        });
        if let Some(tokens) = self.usage.get_mut(at) {
            tokens.add(counts);
        }
    }

    /// Whether calls are pending and nothing else runs.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
            && self.steps.is_empty()
            && self.texts.is_empty()
            && self.thoughts.is_empty()
            && self.inputs.is_empty()
            && self.running_calls.iter().all(|call| self.is_call_waiting(call))
    }

    /// Whether a call only continues after an answer: by the client that executes it, or to a
    /// sub-agent of it.
    fn is_call_waiting(&self, call: &str) -> bool {
        self.pending.iter().any(|pending| {
            let mut reply = self.replies.get(&pending.reply);
            let mut found = pending.call == call;
            // Bounded by the number of replies, in case of a cycle.
            for _ in 0..self.replies.len() {
                let parent = reply.and_then(|reply| reply.parent_call.as_deref());
                let Some(parent) = parent.filter(|_| !found) else { break };
                found = parent == call;
                reply = self.calls.get(parent).and_then(|call| self.replies.get(&call.reply));
            }
            found
        })
    }
}

/// Continues an FNV-1a hash; the result does not depend on how the text is split.
pub(super) fn hash_text(so_far: u64, text: &str) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let start = if so_far == 0 { START } else { so_far };
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
