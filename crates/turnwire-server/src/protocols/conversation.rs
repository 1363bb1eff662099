//! Recognises the conversation of a client that keeps its own history.
//!
//! Such a client sends all of its history with each request. The log marks each state of a conversation that a
//! client may send again, by a digest of its content within the tenant, the agent and the holder of the credentials.
//! So the session is found with one look into an index, whatever the length of the history.
//!
//! | the longest known state | what happens |
//! |---|---|
//! | is where a session ends | the session continues |
//! | is where a session ended earlier | a fork of the session at this place continues |
//! | includes the new input, whose answer did not arrive | the same answer again |
//! | includes the new input, whose answer did arrive | a retry: another answer |
//! | is the last input, and the beginning of its answer follows, which broke off | the session continues from there |
//! | is the last input, and its answer follows, in which the provider paused | the answer continues in the session |
//! | does not exist | a new session takes the whole history in, marked as the client's claim |

mod cut_answer;
mod lost_answers;
mod paused_answer;

use crate::app::App;
use crate::auth::{Caller, sha256};
use crate::config::ConversationsConfig;
use crate::error::ApiResult;
use crate::turns::send::{ExpectedHistory, HistoryChange};
use http::HeaderMap;
use lost_answers::is_lost;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use turnwire_agent::{SentAnswer, SentHistory, is_random_id};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{ContentBlock, Fields, Msg, Role, Seq, TextBlock, ToolResult};
use turnwire_log::HistoryInput;
use turnwire_log::client_history::{
    HistoryDigest, HistoryStep, history_steps, join_calls, without_context_tags,
};
use turnwire_log::store::{HistoryMatch, HistoryPrefill, HistoryState, SessionKey, SessionStatus};
use turnwire_wires::model_request::PREFILL;

/// How many calls of one answer are joined, and how often a request searches for such answers.
const MAX_JOINED_CALLS: usize = 16;
const MAX_JOIN_SEARCHES: usize = 32;

/// Fields that a repeated request may have otherwise: the conversation, which is compared by its content; how the answer
/// is sent; and what the client notes.
const NOT_COMPARED: [&str; 6] =
    ["messages", "input", "stream", "stream_options", "metadata", "client_metadata"];

/// The field with a key for the provider's cache.
const CACHE_KEY: &str = "prompt_cache_key";

/// The longest title of a session that a client did not name.
const MAX_TITLE: usize = 60;

/// The conversation that a request has.
pub(crate) struct Conversation {
    /// Without system prompts.
    messages: Vec<Msg>,
    /// What belongs to this request alone, and was taken off the messages.
    sent: SentHistory,
    steps: Vec<HistoryStep>,
    /// The digest before the first step.
    root: HistoryDigest,
    /// The digest after each step.
    digests: Vec<HistoryDigest>,
    /// A hash of the id that the client sends for its conversation; 0 if it sends none. It is odd if conversations with
    /// different ids are different ones.
    client: i64,
    /// A hash of the request's options.
    request: i64,
    /// The client says that it sends the request again.
    is_resent: bool,
    /// The request has an idempotency key, which says whether it was sent before.
    has_key: bool,
    /// The protocol lets a request give the beginning of the answer behind tool results.
    takes_prefill_after_results: bool,
}

/// What a request continues.
#[derive(Debug)]
pub(crate) enum Recognized {
    /// The session is exactly where the client is. `new_from` is the index of the first new message.
    Continue { session: SessionKey, answer: HistoryDigest, new_from: usize },
    /// The session has gone on since.
    Branch { session: SessionKey, at: Seq, new_from: usize },
    /// The same request was accepted before.
    Resend { session: SessionKey, state: HistoryState },
    /// The same input was answered before, and the client asks again; or the answer did not arrive, and the client has
    /// added to the input (`is_lost`). The input was `input_count` messages.
    Retry { session: SessionKey, state: HistoryState, input_count: usize, is_lost: bool },
    /// The client got only the beginning of the last answer, and goes on from there. `from` is the index of the first
    /// message of this beginning, and `kept` is what remains of the answer.
    Cut { session: SessionKey, state: HistoryState, from: usize, kept: Box<Msg> },
    /// Only the calls of the new results are known: a reply of this session waits for them.
    Results { session: SessionKey },
    /// No session has any of it.
    Unknown,
}

impl Conversation {
    /// The conversation of a request.
    pub(crate) fn new(
        app: &App,
        caller: &Caller,
        agent: &str,
        mut messages: Vec<Msg>,
        headers: &HeaderMap,
        extra: &Fields,
        body: &[u8],
    ) -> Self {
        messages.retain(|msg| msg.role() != Role::System);
        let steps = history_steps(&messages);
        let root = HistoryDigest::root(caller.tenant(), agent, &caller.0.holder);
        let digests = digests_of(root, &steps);
        Self {
            messages,
            sent: SentHistory::default(),
            steps,
            root,
            digests,
            client: client_id(&app.config.conversations, headers, extra),
            request: hash_options(body),
            is_resent: is_resent(headers),
            has_key: headers.contains_key("idempotency-key"),
            takes_prefill_after_results: false,
        }
    }

    /// Lets the request give the beginning of the answer behind tool results.
    pub(crate) fn with_prefill_after_results(mut self) -> Self {
        self.takes_prefill_after_results = true;
        self
    }

    /// Joins calls that belong to one answer of a known conversation. Some clients put each result behind its call: call,
    /// result, call, result; so one answer looks like several.
    pub(crate) async fn with_joined_calls(mut self, app: &App, caller: &Caller) -> ApiResult<Self> {
        self.join_calls(app, caller).await?;
        self.sent = SentHistory::take_from(&mut self.messages);
        Ok(self)
    }

    async fn join_calls(&mut self, app: &App, caller: &Caller) -> ApiResult<()> {
        let is_apart = (0..self.steps.len()).any(|at| self.joined_calls(at, 2).is_some());
        if !is_apart || !app.config.conversations.recognize {
            return Ok(());
        }
        let find =
            async |digests: &[HistoryDigest]| app.log.find_history(caller.tenant(), digests).await;
        let answers = self.steps.iter().zip(&self.digests).rev();
        let last_answer = answers.filter(|(step, _)| step.is_answer).map(|(_, digest)| *digest);
        if !find(&last_answer.take(1).collect::<Vec<_>>()).await?.is_empty() {
            return Ok(());
        }
        let (mut at, mut before, mut searches) = (0, self.root, 0);
        while at < self.steps.len() && searches < MAX_JOIN_SEARCHES {
            let joined = (2..=MAX_JOINED_CALLS).map_while(|count| self.joined_calls(at, count));
            let joined: Vec<_> = joined.collect();
            if !joined.is_empty() {
                searches += 1;
                let digest = |[answer, _]: &[HistoryStep; 2]| before.with_step(answer);
                let digests: Vec<_> = joined.iter().rev().map(digest).collect();
                let found = find(&digests).await?.first().map(|found| found.mark.digest);
                let known = joined
                    .into_iter()
                    .enumerate()
                    .find(|(_, joined)| Some(digest(joined)) == found);
                if let Some((extra, joined)) = known {
                    self.join_steps(at, extra + 2, joined);
                }
            }
            before = self.steps.get(at).map_or(before, |step| before.with_step(step));
            at += 1;
        }
        self.digests = digests_of(self.root, &self.steps);
        Ok(())
    }

    /// What belongs to this request alone.
    pub(crate) fn sent(&self) -> &SentHistory {
        &self.sent
    }

    /// What the last answer has beside its text and its calls.
    pub(crate) fn sent_answer(&self) -> Option<SentAnswer> {
        let steps = self.complete_steps();
        let last = steps.iter().rposition(|step| step.is_answer)?;
        let before = last.checked_sub(1).and_then(|before| steps.get(before));
        let from = before.map_or(0, |before| before.message_count);
        SentAnswer::read(self.messages.get(from..self.new_from())?)
    }

    fn joined_calls(&self, at: usize, count: usize) -> Option<[HistoryStep; 2]> {
        join_calls(self.steps.get(at..)?, count)
    }

    /// Replaces answers and their results by joined ones, and moves the messages of the results behind the calls.
    fn join_steps(&mut self, at: usize, count: usize, joined: [HistoryStep; 2]) {
        let begin = at.checked_sub(1).and_then(|before| self.steps.get(before));
        let mut begin = begin.map_or(0, |before| before.message_count);
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        let start = begin;
        for step in self.steps.iter().skip(at).take(2 * count) {
            let messages = self.messages.get(begin..step.message_count).unwrap_or_default();
            if step.is_answer { &mut calls } else { &mut results }.extend_from_slice(messages);
            begin = step.message_count;
        }
        calls.append(&mut results);
        self.messages.splice(start..begin, calls);
        self.steps.splice(at..at + 2 * count, joined);
    }

    /// The messages from an index on.
    pub(crate) fn messages_from(&self, from: usize) -> &[Msg] {
        self.messages.get(from..).unwrap_or_default()
    }

    /// The steps without the beginning of the answer, if the request ends with it.
    fn complete_steps(&self) -> &[HistoryStep] {
        match &*self.steps {
            [steps @ .., last] if last.is_answer => steps,
            steps => steps,
        }
    }

    /// The beginning of the answer that the client gives.
    pub(crate) fn prefill(&self) -> &[Msg] {
        let before = self.complete_steps().last().map_or(0, |step| step.message_count);
        let is_begun = self.prefill_step().is_some() || self.paused_item().is_some();
        if is_begun { self.messages_from(before) } else { &[] }
    }

    /// The beginning of the answer behind tool results, as the blocks of the reply that continues.
    pub(crate) fn prefill_after_results(&self) -> Vec<ContentBlock> {
        let begun = if self.takes_prefill_after_results { self.prefill() } else { &[] };
        let texts = begun.iter().flat_map(Msg::blocks::<TextBlock>);
        let to_block = |block: &TextBlock| {
            let mut block = TextBlock { id: SystemStamp.id(), ..block.clone() };
            block.rest.insert(PREFILL, true);
            ContentBlock::from(block)
        };
        texts.map(to_block).collect()
    }

    /// The index of the first message after the last answer, or after the last item of the assistant that is no step of the
    /// conversation, such as reasoning.
    pub(crate) fn new_from(&self) -> usize {
        let answers = self.complete_steps().iter().rev().find(|step| step.is_answer);
        let answers = answers.map_or(0, |step| step.message_count);
        let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
        let is_item =
            |msg: &Msg| msg.role() == Role::Assistant && !msg.content().iter().any(is_result);
        let last_user = self.messages.iter().rposition(|msg| msg.role() == Role::User);
        let before = self.messages.get(..last_user.unwrap_or(0)).unwrap_or_default();
        answers.max(before.iter().rposition(is_item).map_or(0, |at| at + 1))
    }

    /// How the request changes a session that is at an expected state.
    pub(crate) fn change(&self, expected: ExpectedHistory) -> Option<HistoryChange> {
        let input = HistoryInput {
            root: self.root,
            digest: *self.digests.last()?,
            client: self.client,
            request: self.request,
            results_after: None,
            prefill: self.history_prefill(),
        };
        Some(HistoryChange {
            input,
            expected,
            superseded: Vec::new(),
            is_first: false,
            stops: None,
        })
    }

    /// The beginning of the answer that the client gives, as a step.
    fn prefill_step(&self) -> Option<&HistoryStep> {
        self.steps.get(self.complete_steps().len())
    }

    fn history_prefill(&self) -> Option<HistoryPrefill> {
        let text = self.prefill_step()?.prefill_text()?.to_owned();
        let last = self.complete_steps().len().checked_sub(1)?;
        Some(HistoryPrefill { before: *self.digests.get(last)?, text })
    }

    /// How the request changes a session that no earlier state of the conversation leads to.
    pub(crate) fn first_change(&self) -> Option<HistoryChange> {
        let change = self.change(ExpectedHistory::Anything)?;
        Some(HistoryChange { is_first: true, ..change })
    }

    /// How the request changes a session that the client named. `None` if the client's history is not what the
    /// session has: then its next request cannot be recognised.
    pub(crate) fn continue_from(
        &self,
        is_new: bool,
        state: Option<&HistoryState>,
    ) -> Option<HistoryChange> {
        if is_new {
            return self.first_change();
        }
        let answer = state?.answer?;
        let mut change = self.change(ExpectedHistory::Anything)?;
        match self.complete_steps() {
            // The client sends only what is new.
            [step] if !step.is_answer => {
                let input = answer.with_step(step);
                change.input.digest =
                    self.prefill_step().map_or(input, |begun| input.with_step(begun));
                change.input.prefill.iter_mut().for_each(|prefill| prefill.before = input);
            }
            _ if self.digests.contains(&answer) => {}
            _ => return None,
        }
        Some(change)
    }

    /// Whether there is a user message.
    pub(crate) fn has_user_message(&self) -> bool {
        self.messages.iter().any(|msg| msg.role() == Role::User)
    }

    /// The tool results after the last answer.
    pub(crate) fn new_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.messages_from(self.new_from()).iter().flat_map(Msg::blocks::<ToolResult>)
    }

    /// The tool results before the last answer.
    pub(crate) fn earlier_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.messages.iter().take(self.new_from()).flat_map(Msg::blocks::<ToolResult>)
    }

    /// The messages after the last answer, without tool results.
    pub(crate) fn new_messages(&self) -> Vec<Msg> {
        let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
        let new = self.messages_from(self.new_from()).iter();
        new.filter(|msg| msg.role() == Role::User)
            .filter(|msg| msg.content().iter().any(|block| !is_result(block)))
            .map(|msg| {
                let content = msg.content().iter().filter(|block| !is_result(block)).cloned();
                let content = msg.to_builder().content(content.collect::<Vec<_>>()).build();
                content.unwrap_or_else(|_| msg.clone())
            })
            .collect()
    }

    /// A title for people: the beginning of the first user message.
    pub(crate) fn title(&self) -> String {
        let mut users = self.messages.iter().filter(|msg| msg.role() == Role::User);
        let text = users.find_map(|msg| {
            let text = without_context_tags(&msg.text("\n")?).into_owned();
            Some(text).filter(|text| !text.trim().is_empty())
        });
        let text = text.unwrap_or_default();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        if line.chars().count() <= MAX_TITLE {
            return line.to_owned();
        }
        line.chars().take(MAX_TITLE - 1).chain(['…']).collect()
    }

    /// Whether a session has had exactly this conversation, and it ends with an answer. Then the last message is not the
    /// beginning of another answer.
    pub(crate) async fn is_answered_in(&self, app: &App, session: &SessionKey) -> ApiResult<bool> {
        let last = self.digests.last().filter(|_| self.prefill_step().is_some());
        let Some(&digest) = last else { return Ok(false) };
        let found = app.log.find_history(&session.tenant, &[digest]).await?;
        Ok(found.iter().any(|found| found.session == *session))
    }

    /// Finds what the request continues.
    pub(crate) async fn recognize(&self, app: &App, caller: &Caller) -> ApiResult<Recognized> {
        let last = self.digests.last().filter(|_| app.config.conversations.recognize);
        let Some(&input) = last else { return Ok(Recognized::Unknown) };
        if let Some(lost) = self.find_begun_answer(app, caller).await? {
            return Ok(lost);
        }
        if let Some(paused) = self.find_paused_answer(app, caller).await? {
            return Ok(paused);
        }
        // An answer cannot begin with a call.
        let is_refused = self.new_results().next().is_some() && !self.takes_prefill_after_results;
        if self.prefill_step().is_some_and(|begun| is_refused || begun.prefill_text().is_none()) {
            return Ok(Recognized::Unknown);
        }
        let answers = self.complete_steps().iter().zip(&self.digests).rev();
        let answers = answers.filter(|(step, _)| step.is_answer).map(|(_, digest)| *digest);
        let mut digests: Vec<HistoryDigest> = std::iter::once(input).chain(answers).collect();
        loop {
            let matches = app.log.find_history(caller.tenant(), &digests).await?;
            let Some(found) = matches.first().map(|found| found.mark.digest) else {
                return self.find_other(app, caller, Recognized::Unknown).await;
            };
            let usable =
                matches.into_iter().filter(|found| caller.session_key(&found.session.id).is_ok());
            let decision = self.decide(app, input, found, usable.collect());
            match decision {
                // The client may have changed the answer that made the calls.
                Some(branch @ Recognized::Branch { .. }) => {
                    return self.find_other(app, caller, branch).await;
                }
                Some(decision) => return Ok(decision),
                None => {}
            }
            let next = digests.iter().position(|digest| *digest == found).map_or(0, |at| at + 1);
            digests.drain(..next);
        }
    }

    /// Finds a session that has no state of the conversation but the request belongs to.
    async fn find_other(
        &self,
        app: &App,
        caller: &Caller,
        otherwise: Recognized,
    ) -> ApiResult<Recognized> {
        if let Some(waiting) = self.find_calls(app, caller).await? {
            return Ok(waiting);
        }
        if let Some(cut) = self.find_cut_answer(app, caller).await? {
            return Ok(cut);
        }
        Ok(self.find_extended_input(app, caller).await?.unwrap_or(otherwise))
    }

    /// Whether a state was marked by a client that gave its conversation another id.
    fn is_other_client(&self, marked: i64) -> bool {
        names_session(self.client) && names_session(marked) && self.client != marked
    }

    /// Whether a state was marked by a client that gave its conversation the same id.
    fn is_same_client(&self, marked: i64) -> bool {
        names_session(self.client) && self.client == marked
    }

    /// Finds the session that waits for the new results, if the ids of their calls look random: no other conversation
    /// of this client has them.
    async fn find_calls(&self, app: &App, caller: &Caller) -> ApiResult<Option<Recognized>> {
        let ids: Vec<&str> = self.new_results().map(|result| result.id.as_str()).collect();
        if ids.is_empty() || !ids.iter().all(|id| is_random_id(id)) {
            return Ok(None);
        }
        let digests: Vec<_> = ids.iter().map(|id| self.root.with_call(id)).collect();
        let matches = app.log.find_history(caller.tenant(), &digests).await?;
        let waits = |found: &HistoryMatch| {
            found.now.status == SessionStatus::Waiting
                && caller.session_key(&found.session.id).is_ok()
                && found.now.history.as_ref().is_some_and(|state| state.answer.is_some())
        };
        let waiting = matches.into_iter().find(waits);
        Ok(waiting.map(|HistoryMatch { session, .. }| Recognized::Results { session }))
    }

    fn decide(
        &self,
        app: &App,
        input: HistoryDigest,
        found: HistoryDigest,
        mut matches: Vec<HistoryMatch>,
    ) -> Option<Recognized> {
        let step = self.digests.iter().position(|digest| *digest == found)?;
        let new_from = self.steps.get(step)?.message_count;
        let complete = self.complete_steps().len();
        let is_last_answer = step + 2 >= complete;
        let (mut resend, mut next, mut retry, mut branch) = (None, None, None, None);
        // Of several conversations with the same content the one with the same id counts.
        matches.sort_by_key(|found| self.client == 0 || found.mark.client != self.client);
        for HistoryMatch { session, mark, now, updated_ms } in matches {
            let state = now.history.as_ref().filter(|_| !self.is_other_client(mark.client));
            let is_same_input = is_last_answer && state.is_some_and(|state| state.input == input);
            if let Some(state) = state.filter(|_| is_same_input) {
                if self.is_resend(app, &session, state, updated_ms) {
                    resend.get_or_insert(Recognized::Resend { session, state: state.clone() });
                } else if (now.status == SessionStatus::Idle || self.has_key)
                    && state.results_after.is_none()
                    // Many conversations begin with the same message.
                    && (complete > 1 || self.is_same_client(mark.client))
                {
                    let begun = usize::from(!self.prefill().is_empty());
                    let input_count = self.new_messages().len() + begun;
                    let state = state.clone();
                    let is_lost = false;
                    retry.get_or_insert(Recognized::Retry { session, state, input_count, is_lost });
                } else if found != input {
                    branch.get_or_insert((session, mark.seq));
                }
            } else if found == input {
                // Another conversation that began the same.
            } else if state.is_some_and(|state| state.answer == Some(found)) {
                let answer = found;
                next.get_or_insert(Recognized::Continue { session, answer, new_from });
            } else {
                branch.get_or_insert((session, mark.seq));
            }
        }
        // The results of calls can only continue the reply that made the calls.
        let has_results = new_from == self.new_from() && self.new_results().next().is_some();
        let branch = branch.filter(|_| !has_results);
        let branch = branch.map(|(session, at)| Recognized::Branch { session, at, new_from });
        resend.or(next).or(retry).or(branch)
    }

    /// Whether the request was accepted before and its answer did not arrive.
    fn is_resend(
        &self,
        app: &App,
        session: &SessionKey,
        state: &HistoryState,
        updated_ms: i64,
    ) -> bool {
        if state.request != self.request {
            return false;
        }
        // The key of a message is looked up when it is sent.
        if self.has_key {
            return state.results_after.is_some();
        }
        self.is_resent || is_lost(app, session, state, updated_ms)
    }
}

/// The digest after each step.
fn digests_of(root: HistoryDigest, steps: &[HistoryStep]) -> Vec<HistoryDigest> {
    let digests = steps.iter().scan(root, |digest, step| {
        *digest = digest.with_step(step);
        Some(*digest)
    });
    digests.collect()
}

/// A hash of a request's fields, without those that do not change its answer.
fn hash_options(body: &[u8]) -> i64 {
    let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(body) else {
        return hash(body);
    };
    let options = fields.iter().filter(|(name, _)| !NOT_COMPARED.contains(&name.as_str()));
    let options: String =
        options.flat_map(|(name, value)| [name, ":", value.get(), "\n"]).collect();
    hash(options.as_bytes())
}

fn hash(bytes: &[u8]) -> i64 {
    let digest = sha256(bytes);
    let first = digest.first_chunk::<8>().copied().unwrap_or_default();
    // 0 means that there is none.
    i64::from_be_bytes(first).max(i64::MIN + 1) | 1
}

/// A hash of the id that a client sends for its conversation; 0 if it sends none. Programs may use one key for the
/// provider's cache for several conversations, or another one in each request: its hash is even.
fn client_id(config: &ConversationsConfig, headers: &HeaderMap, extra: &Fields) -> i64 {
    let hash_of =
        |id: &str| Some(id.trim()).filter(|id| !id.is_empty()).map(|id| hash(id.as_bytes()));
    let mut headers = config.id_headers.iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let fields = || {
        config.id_fields.iter().find_map(|name| {
            let id = hash_of(&extra.get::<String>(name).ok()??)?;
            Some(if name == CACHE_KEY { id ^ 1 } else { id })
        })
    };
    headers.find_map(hash_of).or_else(fields).unwrap_or_default()
}

/// Whether the hash of a client's id is one of an id that only one conversation has.
fn names_session(client: i64) -> bool {
    client & 1 == 1
}

/// Whether the client says that it sends the request again.
fn is_resent(headers: &HeaderMap) -> bool {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    count.is_some_and(|count| count.trim().parse::<u32>().is_ok_and(|count| count > 0))
}
