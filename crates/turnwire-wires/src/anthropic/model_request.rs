//! Writes the body of a request to Anthropic.

use super::content::{self, plain_text};
use super::{NAME, schema};
use crate::cache_marks::CACHE_MARK;
use crate::json::fields;
use crate::model_options::{ModelOption, reduce_to_allowed_tools, write_options};
use crate::model_request::{
    AssistantPart, CallIds, CallOutcome, FIRST_USER_TEXT, LAST_USER_TEXT, ONLY_USER_TEXT,
    PromptMessage, Request, ToolChoice, ToolDefinition, UserPart, accepts_temperature,
    build_prompt, describe_omitted_data, is_name_char, normalize_data, sanitize_call_name,
    to_json_list,
};
use crate::{native, provider};
use std::collections::HashSet;
use turnwire_core::{ContentBlock, DataBlock, Fields, Json, Part, content_blocks};

/// Anthropic requires a token limit.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// The maximum length of a tool name.
const MAX_NAME_LENGTH: usize = 128;

/// How long a conversation must be to mark it for the cache. Anthropic caches nothing below 1024 to 4096 tokens, and writing
/// to the cache has its price.
const MIN_CACHED_BYTES: usize = 16 * 1024;

pub(super) fn build_body(request: &Request<'_>) -> Json {
    let mut system: Vec<Fields> = Vec::new();
    let mut messages =
        Messages { list: Vec::new(), separates_users: request.options.is_from(NAME) };
    let mut calls =
        ReplyWriter { ids: CallIds::new(usize::MAX, is_name_char), tools: request.tools };
    for message in build_prompt(request.messages, request.speaker_format) {
        match message {
            PromptMessage::System(msg) => {
                let blocks = msg.content().iter().filter_map(system_block);
                match native::get(msg.metadata(), NAME) {
                    Some(_) => messages.push("system", blocks),
                    None => system.extend(blocks.filter(|block| !is_blank(block))),
                }
            }
            PromptMessage::User { parts, .. } => {
                messages.push("user", parts.iter().filter_map(user_block));
            }
            PromptMessage::Assistant(parts) => {
                let blocks = parts.iter().filter_map(|part| calls.assistant_block(part));
                messages.push("assistant", blocks);
            }
            PromptMessage::ToolResults(outcomes) => {
                messages.push("user", calls.result_blocks(&outcomes));
            }
        }
    }
    let max_tokens = request.max_tokens().unwrap_or(DEFAULT_MAX_TOKENS);
    let mut body = fields! { "model": request.model, "max_tokens": max_tokens };
    let mut messages = messages.completed(request.ends_with_prefill());
    let caches = wants_cache_marks(request) && messages.is_worth_caching();
    if caches {
        messages.mark_last_input();
        if let Some(block) = system.last_mut() {
            block.insert(CACHE_MARK, fields! { "type": "ephemeral" });
        }
    }
    body.insert_some("system", write_system(&system));
    body.insert("messages", messages.into_json());
    let offered = reduce_to_allowed_tools(request.tools, &request.tool_choice, NAME);
    let tools: Vec<Json> =
        offered.tools.into_iter().filter_map(|tool| tool.write(NAME, write_function)).collect();
    let options = &request.options;
    if !tools.is_empty() {
        body.insert("tools", to_json_list(&tools));
        let is_default = options.is_from(NAME) && *offered.choice == ToolChoice::Auto;
        let is_silent = is_default && options.parallel_tool_calls != Some(false);
        if !is_silent && !options.has_original(NAME, ModelOption::ToolChoice) {
            body.insert("tool_choice", tool_choice(&offered.choice));
        }
    }
    if let Some(output) = request.output
        && !options.has_original(NAME, ModelOption::ResponseFormat)
        // There is no JSON without a schema; a closed schema without properties would allow only `{}`.
        && !request.is_any_json()
    {
        let schema = schema::close_schema(&output.schema);
        let format = fields! { "type": "json_schema", "schema": schema };
        body.insert("output_config", fields! { "format": format });
    }
    if let Some(temperature) = request.temperature()
        && accepts_temperature(request.model, temperature)
    {
        body.insert("temperature", temperature);
    }
    if request.stream {
        body.insert("stream", true);
    }
    write_options(request, NAME, body).into()
}

/// Whether marks for the cache are up to us: a client of this protocol sets its own, or none.
fn wants_cache_marks(request: &Request<'_>) -> bool {
    let has_own = request.options.is_from(NAME) || request.options.cache_control.is_some();
    request.prompt_caching && !has_own && request.extra.raw(CACHE_MARK).is_none()
}

/// The system prompt: a text, or blocks if there are several or one has more than text.
fn write_system(blocks: &[Fields]) -> Option<Json> {
    match blocks {
        [] => None,
        [block] if block.len() == 2 && has_type(block, "text") => block.raw("text").cloned(),
        blocks => Some(to_json_list(&blocks.iter().map(Json::from).collect::<Vec<_>>())),
    }
}

fn system_block(block: &ContentBlock) -> Option<Fields> {
    match block {
        ContentBlock::Text(block) => Some(content::write_text(block)),
        ContentBlock::Other(item) => provider::block_to_item(NAME, item),
        content_blocks!(Thinking Hint Data ToolCall ToolResult) => None,
    }
}

fn write_function(tool: &ToolDefinition) -> Fields {
    let mut fields = fields! { "name": tool.name.as_str() };
    fields.insert_unless_empty("description", &tool.description);
    fields.insert_some("input_schema", tool.written_schema(NAME));
    fields.insert_some("strict", tool.strict.filter(|_| tool.native_to(NAME).is_some()));
    fields
}

fn tool_choice(choice: &ToolChoice) -> Json {
    let kind = match choice {
        // The tools are reduced to the allowed ones.
        ToolChoice::Auto | ToolChoice::Allowed { required: false, .. } => "auto",
        ToolChoice::None => "none",
        ToolChoice::Required | ToolChoice::Allowed { required: true, .. } => "any",
        ToolChoice::Tool(name) => {
            return fields! { "type": "tool", "name": name.as_str() }.into();
        }
        ToolChoice::Other(choice) => return choice.clone(),
    };
    fields! { "type": kind }.into()
}

/// The messages in Anthropic's format: adjacent ones of one role are joined, none is empty, and the first and the last are
/// the user's, unless the last is the beginning of the answer.
struct Messages {
    list: Vec<(&'static str, Vec<Fields>)>,
    /// Adjacent messages of the user stay separate: the client speaks this protocol, and sent them so. Results are joined
    /// with what the user says beside them.
    separates_users: bool,
}

impl Messages {
    fn push(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Fields>) {
        let mut blocks = blocks.into_iter().filter(|block| !is_blank(block)).peekable();
        if blocks.peek().is_none() {
            return;
        }
        let is_separate = |content: &[Fields]| {
            let is_result = |block: &Fields| has_type(block, "tool_result");
            self.separates_users && role == "user" && !content.iter().all(is_result)
        };
        match self.list.last_mut() {
            Some((last, content)) if *last == role && !is_separate(content) => {
                content.extend(blocks);
            }
            _ => self.list.push((role, blocks.collect())),
        }
    }

    /// The messages as Anthropic accepts them.
    fn completed(self, has_prefill: bool) -> Self {
        let mut messages = Self { list: Vec::new(), separates_users: self.separates_users };
        for (role, blocks) in self.without_orphans().list {
            messages.push(role, without_trailing_thinking(role, blocks));
        }
        if messages.list.first().is_some_and(|(role, _)| *role == "assistant") {
            messages.list.insert(0, ("user", vec![plain_text(FIRST_USER_TEXT)]));
        }
        match messages.list.last() {
            None => messages.push("user", [plain_text(ONLY_USER_TEXT)]),
            // If the last block is an item of Anthropic's, the model paused there and continues from it.
            Some(("assistant", blocks))
                if !has_prefill && blocks.last().is_some_and(|block| has_type(block, "text")) =>
            {
                messages.push("user", [plain_text(LAST_USER_TEXT)]);
            }
            Some(_) => {}
        }
        messages
    }

    /// Whether the conversation has earlier replies, and is long enough for the cache.
    fn is_worth_caching(&self) -> bool {
        let has_answer = self.list.iter().any(|(role, _)| *role == "assistant");
        let blocks = self.list.iter().flat_map(|(_, blocks)| blocks);
        let bytes: usize = blocks.map(|block| Json::from(block).text().len()).sum();
        has_answer && bytes >= MIN_CACHED_BYTES
    }

    /// Marks the end of the last input: the next request begins with the same.
    fn mark_last_input(&mut self) {
        let last = self.list.iter_mut().rev().find(|(role, _)| *role == "user");
        if let Some(block) = last.and_then(|(_, blocks)| blocks.last_mut()) {
            block.insert(CACHE_MARK, fields! { "type": "ephemeral" });
        }
    }

    fn into_json(self) -> Json {
        let messages = self.list.iter().map(|(role, blocks)| {
            let blocks: Vec<Json> = blocks.iter().map(Json::from).collect();
            Json::from(fields! { "role": *role, "content": to_json_list(&blocks) })
        });
        to_json_list(&messages.collect::<Vec<_>>())
    }

    /// Removes calls of Anthropic's own tools without a result, and results without a call: Anthropic refuses both, and an
    /// interrupted reply leaves them behind. After the last user message a call stays: its result is still to come.
    fn without_orphans(mut self) -> Self {
        let blocks = || self.list.iter().flat_map(|(_, blocks)| blocks);
        let called: HashSet<String> = blocks().filter_map(server_call_id).collect();
        let answered_ids: HashSet<String> = blocks().filter_map(server_result_id).collect();
        let is_spoken = |(role, blocks): &(&str, Vec<Fields>)| {
            *role == "user" && !blocks.iter().all(|block| has_type(block, "tool_result"))
        };
        let over = self.list.iter().rposition(is_spoken).unwrap_or(0);
        for (at, (_, blocks)) in self.list.iter_mut().enumerate() {
            blocks.retain(|block| match (server_call_id(block), server_result_id(block)) {
                (Some(id), _) => at > over || answered_ids.contains(&id),
                (None, Some(id)) => called.contains(&id),
                (None, None) => true,
            });
        }
        self
    }
}

/// The id of a call to a tool that Anthropic runs itself.
fn server_call_id(block: &Fields) -> Option<String> {
    if has_type(block, "server_tool_use") || has_type(block, "mcp_tool_use") {
        get_string(block, "id")
    } else {
        None
    }
}

/// The id of the call that a result of such a tool is for.
fn server_result_id(block: &Fields) -> Option<String> {
    let kind = get_string(block, "type")?;
    if kind.ends_with("_tool_result") { get_string(block, "tool_use_id") } else { None }
}

fn get_string(block: &Fields, key: &str) -> Option<String> {
    block.get(key).ok().flatten()
}

/// The blocks without thinking at the end: it was cut off, and Anthropic refuses it.
fn without_trailing_thinking(role: &str, mut blocks: Vec<Fields>) -> Vec<Fields> {
    let is_thinking =
        |block: &Fields| has_type(block, "thinking") || has_type(block, "redacted_thinking");
    while role == "assistant" && blocks.last().is_some_and(is_thinking) {
        blocks.pop();
    }
    blocks
}

fn has_type(block: &Fields, kind: &str) -> bool {
    block.raw("type").is_some_and(|word| *word == Json::from(kind))
}

/// Whether a block is text of only white space, which Anthropic refuses.
fn is_blank(block: &Fields) -> bool {
    has_type(block, "text") && get_string(block, "text").is_none_or(|text| text.trim().is_empty())
}

fn user_block(part: &UserPart<'_>) -> Option<Fields> {
    match part {
        UserPart::Text(block) => Some(content::write_text(block)),
        UserPart::Data(block) => Some(data_block(block).unwrap_or_else(|line| line)),
        UserPart::Item(item) => provider::block_to_item(NAME, item),
    }
}

/// An image or a document; the error is a text that says what was left out.
fn data_block(block: &DataBlock) -> Result<Fields, Fields> {
    let cannot = "the model cannot read it";
    normalize_data(block)
        .and_then(|ready| content::write_data(&ready).ok_or(cannot))
        .map_err(|why| plain_text(&describe_omitted_data(block, why)))
}

/// Whether a request has data, not a note that describes it.
pub(super) fn accepts_data(block: &DataBlock) -> bool {
    data_block(block).is_ok()
}

/// Writes the model's messages and their tool results.
struct ReplyWriter<'a> {
    ids: CallIds,
    tools: &'a [ToolDefinition],
}

impl ReplyWriter<'_> {
    fn assistant_block(&mut self, part: &AssistantPart<'_>) -> Option<Fields> {
        match part {
            AssistantPart::Text(block) => Some(content::write_text(block)),
            AssistantPart::Thinking(block) => content::write_thinking(block),
            AssistantPart::Data(block) => {
                Some(plain_text(&describe_omitted_data(block, "it was made by the assistant")))
            }
            AssistantPart::ToolCall(call) => {
                let mut fields = content::write_call(call, &self.ids.next_call_id(&call.id));
                fields
                    .insert("name", &*sanitize_call_name(&call.name, self.tools, MAX_NAME_LENGTH));
                Some(fields)
            }
            AssistantPart::Item(item) => provider::block_to_item(NAME, item),
        }
    }

    /// The tool results, followed by the data of failed calls: a failed result can hold only text.
    fn result_blocks(&mut self, outcomes: &[CallOutcome<'_>]) -> Vec<Fields> {
        let mut failed_data = Vec::new();
        let mut blocks: Vec<Fields> = Vec::new();
        for outcome in outcomes {
            let id = self.ids.next_result_id();
            let has_data = outcome.data().next().is_some();
            let content = if let Some(parts) = outcome.client_parts(NAME) {
                to_json_list(&result_parts(parts))
            } else if has_data && !outcome.is_error() {
                let mut parts = result_parts(outcome.parts());
                parts.extend(outcome.running_note().map(|note| plain_text(&note).into()));
                to_json_list(&parts)
            } else {
                outcome.text().into()
            };
            if has_data && outcome.is_error() {
                let (id, name) = (&outcome.call.id, &outcome.call.name);
                failed_data.push(plain_text(&format!("What the call {id} of {name} gave:")));
                failed_data.extend(
                    outcome.data().map(|block| data_block(block).unwrap_or_else(|line| line)),
                );
            }
            let mut block = content::write_result(&id, content, outcome.is_error());
            if let Some(result) = outcome.result {
                native::add(&mut block, &result.rest, NAME);
            }
            blocks.push(block);
        }
        blocks.extend(failed_data);
        blocks
    }
}

/// The parts of a tool result.
fn result_parts(parts: &[Part]) -> Vec<Json> {
    let blocks = parts.iter().filter_map(|part| user_block(&part.into()));
    blocks.filter(|block| !is_blank(block)).map(Json::from).collect()
}
