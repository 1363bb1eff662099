//! What is known of a turn while it is written: what is open, who is waited for.

use super::client_messages::{ClientMessages, MessageKind};
use super::frame::{Frame, ModelUsage};
use super::write_messages::BlockIds;
use crate::stream::Frames;
use std::collections::{HashMap, HashSet};
use turnwire_core::event::TokenCounts;
use turnwire_core::{Event, Msg, PermissionRule};

/// Whether there is a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// None, and nothing to go on with.
    Idle,
    /// One is open.
    Open,
    /// The last was finished because somebody is waited for.
    Waiting,
}

/// What has a start, content and an end of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamedKind {
    Text,
    Thinking,
    Call,
}

/// The events of one reply and of its sub-agents.
#[derive(Default)]
pub(super) struct TurnState {
    /// The reply; empty while it is not known.
    pub reply: String,
    /// The session, as the reply's start has it.
    pub thread: String,
    pub ended: bool,
    /// Whether a client came in behind a message that nobody has begun to answer.
    pub awaits_reply: bool,
    /// What the runs are called after, how many there were, and what the last was called.
    pub run_id_base: String,
    pub runs: u32,
    pub run_id: String,
    /// The replies: the turn's own and its sub-agents'.
    pub replies: HashMap<String, ReplyState>,
    /// What is open on the wire, by block.
    pub texts: HashMap<String, OpenMessage>,
    pub thoughts: HashMap<String, OpenMessage>,
    pub inputs: HashMap<String, OpenMessage>,
    /// How much was ever opened.
    pub opened: u64,
    /// Data blocks and results that are not whole yet; data with whether it is a sub-agent's.
    pub data: HashMap<String, (bool, Msg)>,
    pub results: HashMap<String, Msg>,
    pub calls: HashMap<String, CallState>,
    /// Calls that somebody works on, and calls that are over.
    pub running_calls: HashSet<String>,
    pub finished_calls: HashSet<String>,
    pub pending: Vec<PendingCall>,
    pub steps: Vec<Step>,
    /// The sub-agents of this run: those at work, in the order of their starts, and the others.
    pub subagents: Vec<String>,
    pub closed_subagents: HashSet<String>,
    /// The tokens of this run.
    pub usage: Vec<ModelUsage>,
    pub client_messages: ClientMessages,
}

/// A reply of the turn.
#[derive(Default)]
pub(super) struct ReplyState {
    pub name: Option<String>,
    pub path: Option<String>,
    pub parent_call: Option<String>,
    /// The model that it called last.
    pub model: String,
    /// The names of its steps that go on.
    pub steps: HashSet<String>,
    pub block_ids: BlockIds,
}

/// A block whose message is open.
pub(super) struct OpenMessage {
    /// Its place among all that was opened.
    pub order: u64,
    /// The message's id, where it is not the block's.
    pub id: Option<String>,
    pub reply: String,
    pub is_subagent: bool,
    /// Whether it has content.
    pub sent: bool,
}

/// A tool call.
pub(super) struct CallState {
    pub name: String,
    pub reply: String,
    /// What its input hashes to: enough to tell whether a person changed it.
    pub input_hash: u64,
}

/// A call that waits for somebody.
pub(super) struct PendingCall {
    pub call: String,
    pub name: String,
    /// For a person's word; otherwise for a result from outside.
    pub confirm: bool,
    pub rules: Vec<PermissionRule>,
    pub reply: String,
    pub is_subagent: bool,
    pub expires_at: Option<String>,
}

/// A model call that goes on.
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

    /// Takes out what is open, of one reply or of all, in the order of the starts.
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

    /// What is open, in the order of the starts.
    pub(super) fn all_open_messages(&self) -> Vec<(StreamedKind, &str, &OpenMessage)> {
        let texts = self.texts.iter().map(|(id, open)| (StreamedKind::Text, &**id, open));
        let thoughts = self.thoughts.iter().map(|(id, open)| (StreamedKind::Thinking, &**id, open));
        let inputs = self.inputs.iter().map(|(id, open)| (StreamedKind::Call, &**id, open));
        let mut all: Vec<_> = texts.chain(thoughts).chain(inputs).collect();
        all.sort_by_key(|(_, _, open)| open.order);
        all
    }

    /// The data blocks that are not whole, of one reply or of all, in a fixed order.
    pub(super) fn open_data(&self, all: bool, reply: &str) -> Vec<String> {
        let of = self.data.iter().filter(|(_, (_, msg))| all || msg.id() == reply);
        let mut ids: Vec<String> = of.map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids
    }

    /// What is known of an event's reply.
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

    /// Ends the step at this place of the list.
    pub(super) fn end_step(&mut self, at: usize, out: &mut Frames) {
        let step = self.steps.remove(at);
        step.write_end(out);
        if let Some(reply) = self.replies.get_mut(&step.reply) {
            reply.steps.remove(&step.name);
        }
    }

    /// Steps that were never said to go on.
    pub(super) fn forget_steps(&mut self) {
        self.steps.clear();
        self.replies.values_mut().for_each(|reply| reply.steps.clear());
    }

    /// A call is over.
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

    /// Whether somebody is waited for, and nothing else goes on.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
            && self.steps.is_empty()
            && self.texts.is_empty()
            && self.thoughts.is_empty()
            && self.inputs.is_empty()
            && self.running_calls.iter().all(|call| self.is_call_waiting(call))
    }

    /// Whether a call goes on only when somebody answers: the client that executes it, or whoever
    /// a sub-agent of it has asked.
    fn is_call_waiting(&self, call: &str) -> bool {
        self.pending.iter().any(|pending| {
            let mut reply = self.replies.get(&pending.reply);
            let mut found = pending.call == call;
            // As deep as agents are nested; a circle ends with the number of replies.
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

/// Goes on with a hash (FNV-1a), however the text is cut.
pub(super) fn hash_text(so_far: u64, text: &str) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let start = if so_far == 0 { START } else { so_far };
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
