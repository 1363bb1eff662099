//! Digests of a conversation, to recognise it when a client sends its history again.
//!
//! Clients of model APIs keep their own history and send all of it with each request. They change it
//! on the way: they trim white space, join or split texts, drop thinking, move caching marks, and
//! replace system prompts. So a conversation is compared by its content only, as alternating
//! [steps](HistoryStep) of input and answer, and each state of it has a [`HistoryDigest`] that
//! includes the state before.
//!
//! ```
//! use turnwire_core::Msg;
//! use turnwire_log::client_history::{HistoryDigest, history_steps};
//!
//! let root = HistoryDigest::root("tenant", "agent", "holder");
//! let digest = |messages: &[Msg]| {
//!     history_steps(messages).iter().fold(root, |digest, step| digest.with_step(step))
//! };
//! let sent = [Msg::system("", "Be brief."), Msg::user("ann", "Hi!\n"), Msg::assistant("a", "Hello, Ann.")];
//! let again = [Msg::user("", "Hi!"), Msg::assistant("", "Hello, "), Msg::assistant("", "Ann.")];
//! assert_eq!(digest(&sent), digest(&again));
//! assert_ne!(digest(&sent), digest(&again[..2]));
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use turnwire_core::{ContentBlock, Fields, Json, Msg, Part, Payload, Role, Source, ToolCall};

/// Text that programs add to user messages and change from turn to turn. It does not count.
const CONTEXT_TAGS: [&str; 3] = ["system-reminder", "environment_context", "turn_context"];

/// A digest of a conversation up to the end of a step. Two conversations of different tenants, agents
/// or holders of credentials never have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HistoryDigest(pub [u8; 16]);

impl HistoryDigest {
    /// The digest of an empty conversation.
    pub fn root(tenant: &str, agent: &str, holder: &str) -> Self {
        let mut hasher = Sha256::new();
        for part in [tenant, agent, holder] {
            add_part(&mut hasher, part.as_bytes());
        }
        Self::from_hasher(hasher)
    }

    /// The digest after one more step.
    #[must_use]
    pub fn with_step(self, step: &HistoryStep) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update([u8::from(step.is_answer)]);
        add_part(&mut hasher, step.text.as_bytes());
        for data in &step.data {
            add_part(&mut hasher, data);
        }
        for call in &step.calls {
            hasher.update(b"call");
            add_part(&mut hasher, call.name.as_bytes());
            add_part(&mut hasher, call.input.as_bytes());
        }
        for result in &step.results {
            hasher.update(b"result");
            add_part(&mut hasher, result.content.as_bytes());
        }
        Self::from_hasher(hasher)
    }

    /// The digest of a call that the client executes, for clients that send results without their history. `self` is the
    /// digest of an empty conversation.
    #[must_use]
    pub fn with_call(self, id: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(b"call id");
        add_part(&mut hasher, id.as_bytes());
        Self::from_hasher(hasher)
    }

    fn from_hasher(hasher: Sha256) -> Self {
        let mut digest = [0; 16];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        Self(digest)
    }
}

fn add_part(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_le_bytes());
    hasher.update(part);
}

/// A step of a conversation: everything that comes in before an answer, or an answer. What clients
/// change is left out: white space, thinking, ids, system prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryStep {
    /// Whether it is an answer of the assistant. Tool results are input.
    pub is_answer: bool,
    /// How many of the messages end with this step.
    pub message_count: usize,
    text: String,
    data: Vec<[u8; 32]>,
    calls: Vec<StepCall>,
    results: Vec<StepResult>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StepCall {
    id: String,
    name: String,
    input: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StepResult {
    id: String,
    content: String,
}

impl HistoryStep {
    /// The answer of which these are the texts, with the calls that the client executes.
    pub(crate) fn answer<'a>(
        texts: impl Iterator<Item = &'a str>,
        calls: impl Iterator<Item = &'a ToolCall>,
    ) -> Self {
        let mut step = Self { is_answer: true, ..Self::default() };
        texts.for_each(|text| step.add_text(text));
        step.calls.extend(calls.map(StepCall::new));
        step
    }

    /// The text of an answer that has nothing else, without white space. An answer at the end of a request is the
    /// beginning that the model continues.
    pub fn prefill_text(&self) -> Option<&str> {
        let is_text = self.is_answer && self.calls.is_empty() && !self.text.is_empty();
        is_text.then_some(&self.text)
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.data.is_empty()
            && self.calls.is_empty()
            && self.results.is_empty()
    }

    fn add_text(&mut self, text: &str) {
        self.text.extend(text.split_whitespace());
    }

    fn add_block(&mut self, block: &ContentBlock) {
        if self.is_answer
            && let Some(text) = answer_text(block)
        {
            return self.add_text(text);
        }
        match block {
            ContentBlock::Text(block) if !self.is_answer => {
                self.add_text(&without_context_tags(&block.text));
            }
            ContentBlock::Data(block) if !self.is_answer => {
                self.data.push(source_digest(&block.source));
            }
            ContentBlock::ToolCall(call) => self.calls.push(StepCall::new(call)),
            ContentBlock::ToolResult(result) => self.results.push(StepResult {
                id: result.id.clone(),
                content: payload_content(&result.output),
            }),
            // Such as a file by its id.
            ContentBlock::Other(item) if !self.is_answer => self.data.push(item_digest(item)),
            // Clients drop thinking and what they do not know.
            ContentBlock::Text(_)
            | ContentBlock::Data(_)
            | ContentBlock::Thinking(_)
            | ContentBlock::Hint(_)
            | ContentBlock::Other(_) => {}
        }
    }

    /// Sorts the results like the calls that they answer: clients may send them in any order.
    fn sort_results(&mut self, calls: &[StepCall]) {
        let place = |result: &StepResult| calls.iter().position(|call| call.id == result.id);
        self.results.sort_by_key(|result| place(result).unwrap_or(usize::MAX));
    }
}

/// The text of a block of an answer, as clients send it back. Audio comes back as its provider's id, without its transcript.
pub(crate) fn answer_text(block: &ContentBlock) -> Option<&str> {
    const AUDIO_ID: &str = "audio_id";
    match block {
        ContentBlock::Text(block) => block.rest.raw(AUDIO_ID).is_none().then_some(&block.text),
        ContentBlock::Data(block) => block.rest.raw(AUDIO_ID).map(Json::text),
        ContentBlock::Thinking(_)
        | ContentBlock::Hint(_)
        | ContentBlock::ToolCall(_)
        | ContentBlock::ToolResult(_)
        | ContentBlock::Other(_) => None,
    }
}

impl StepCall {
    fn new(call: &ToolCall) -> Self {
        let is_item = call.rest.raw("item_type").is_some();
        let input = if is_item { json_without_nulls(&call.input) } else { None };
        let input = canonical_json(input.as_deref().unwrap_or(&call.input));
        Self { id: call.id.clone(), name: call.name.clone(), input }
    }
}

/// The steps of a conversation.
pub fn history_steps<'m>(messages: impl IntoIterator<Item = &'m Msg>) -> Vec<HistoryStep> {
    let mut steps: Vec<HistoryStep> = Vec::new();
    let mut current = HistoryStep::default();
    let mut count = 0;
    let mut finish = |step: &mut HistoryStep, count: usize| {
        let mut done = std::mem::take(step);
        if done.is_empty() {
            return;
        }
        done.message_count = count;
        let calls = steps.last().map(|before| before.calls.as_slice()).unwrap_or_default();
        done.sort_results(calls);
        match steps.last_mut() {
            // Only an empty step was between them.
            Some(before) if before.is_answer == done.is_answer => before.merge(done),
            _ => steps.push(done),
        }
    };
    for msg in messages {
        if msg.role() != Role::System {
            for block in msg.content() {
                let is_answer = msg.role() == Role::Assistant
                    && !matches!(block, ContentBlock::ToolResult(_) | ContentBlock::Hint(_));
                if is_answer != current.is_answer {
                    finish(&mut current, count);
                    current.is_answer = is_answer;
                }
                current.add_block(block);
            }
        }
        count += 1;
    }
    finish(&mut current, count);
    steps
}

impl HistoryStep {
    /// Whether this is an answer with calls, and the other step has results of them and nothing else, in messages of its
    /// own.
    fn is_followed_by_results(&self, results: &Self) -> bool {
        let is_own = |result: &StepResult| self.calls.iter().any(|call| call.id == result.id);
        self.is_answer
            && !self.calls.is_empty()
            && results.text.is_empty()
            && results.data.is_empty()
            && results.results.iter().all(is_own)
            && self.message_count < results.message_count
    }

    fn merge(&mut self, other: Self) {
        self.message_count = other.message_count;
        self.text.push_str(&other.text);
        self.data.extend(other.data);
        self.calls.extend(other.calls);
        self.results.extend(other.results);
    }
}

/// The first `count` answers with calls and the results behind each of them, as one answer and one input: some clients put
/// each result behind its call. `None` if the steps are not such answers and results.
///
/// ```
/// use turnwire_core::{Msg, Role, ToolCall, ToolResult};
/// use turnwire_log::client_history::{history_steps, join_calls};
///
/// let call = |id| Msg::builder(Role::Assistant).content(vec![ToolCall::new(id, "f", "{}").into()]).build();
/// let result = |id| Msg::builder(Role::Tool).content(vec![ToolResult::success(id, "done").into()]).build();
/// let apart = [call("a")?, result("a")?, call("b")?, result("b")?];
/// let together = [call("a")?, call("b")?, result("a")?, result("b")?];
/// assert_eq!(join_calls(&history_steps(&apart), 2).unwrap().to_vec(), history_steps(&together));
/// assert_eq!(join_calls(&history_steps(&together), 2), None);
/// # Ok::<(), turnwire_core::Error>(())
/// ```
pub fn join_calls(steps: &[HistoryStep], count: usize) -> Option<[HistoryStep; 2]> {
    let steps = steps.get(..2 * count).filter(|_| count > 1)?;
    let mut joined: Option<[HistoryStep; 2]> = None;
    for pair in steps.chunks_exact(2) {
        let [answer, results] = pair else { return None };
        if !answer.is_followed_by_results(results) {
            return None;
        }
        let Some([calls, all_results]) = &mut joined else {
            joined = Some([answer.clone(), results.clone()]);
            continue;
        };
        if !answer.text.is_empty() || !answer.data.is_empty() {
            return None;
        }
        // The messages of these calls move before all results.
        let messages = answer.message_count.checked_sub(all_results.message_count);
        let message_count = calls.message_count + messages.filter(|count| *count > 0)?;
        calls.merge(answer.clone());
        calls.message_count = message_count;
        all_results.merge(results.clone());
    }
    let [calls, mut results] = joined?;
    results.sort_results(&calls.calls);
    Some([calls, results])
}

/// A text without the elements that programs add and change.
pub fn without_context_tags(text: &str) -> Cow<'_, str> {
    let mut rest = Cow::Borrowed(text);
    for tag in CONTEXT_TAGS {
        if !text.contains('<') {
            break;
        }
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        while let Some(start) = rest.find(&open)
            && let Some(length) = rest.get(start..).and_then(|from| from.find(&close))
        {
            rest.to_mut().replace_range(start..start + length + close.len(), "");
        }
    }
    rest
}

fn source_digest(source: &Source) -> [u8; 32] {
    match source {
        Source::Base64(source) => {
            let mut hasher = Sha256::new();
            source.data.split_ascii_whitespace().for_each(|part| hasher.update(part));
            hasher.finalize().into()
        }
        Source::Url(source) => Sha256::digest(source.url.as_bytes()).into(),
        Source::Other(source) => {
            Sha256::digest(canonical_json(&serde_json::to_string(source).unwrap_or_default()))
                .into()
        }
    }
}

/// Caching marks move from request to request.
fn item_digest(item: &Fields) -> [u8; 32] {
    let mut item = item.clone();
    item.remove("cache_control");
    Sha256::digest(canonical_json(Json::from(item).text())).into()
}

fn payload_content(payload: &Payload) -> String {
    let mut content = String::new();
    match payload {
        Payload::Text(text) => content.extend(text.split_whitespace()),
        Payload::Parts(parts) => {
            for part in parts {
                match part {
                    Part::Text(block) => content.extend(block.text.split_whitespace()),
                    Part::Data(block) => {
                        content.extend(source_digest(&block.source).map(char::from));
                    }
                    Part::Other(item) => content.extend(item_digest(item).map(char::from)),
                }
            }
        }
    }
    content
}

/// JSON with sorted keys and `1.0` as `1`, because clients write it again; another text without white
/// space.
fn canonical_json(text: &str) -> String {
    let text = if text.trim().is_empty() { "{}" } else { text };
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            normalize_numbers(&mut value);
            value.sort_all_objects();
            value.to_string()
        }
        Err(_) => text.split_whitespace().collect(),
    }
}

/// The input of a call that has an item of its own: programs write fields that the item does not have as null.
fn json_without_nulls(text: &str) -> Option<String> {
    fn remove_nulls(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(remove_nulls),
            Value::Object(fields) => {
                fields.retain(|_, value| !value.is_null());
                fields.values_mut().for_each(remove_nulls);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    remove_nulls(&mut value);
    Some(value.to_string())
}

fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Numbers above 2^53 are not exact in many clients, and stay as they are.
            if let Some(float) = number.as_f64().filter(|float| float.abs() < 9e15)
                && let Some(float) = serde_json::Number::from_f64(float)
            {
                *value = Value::Number(float);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
