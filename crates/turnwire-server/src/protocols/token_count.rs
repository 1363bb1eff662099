//! Estimates the tokens of a request: `POST /v1/responses/input_tokens` and `POST /v1/messages/count_tokens`.
//!
//! The rule is that of compaction ([`estimate_tokens`]); instructions, and each tool with its schema, count as text. The
//! agent's own prompt and tools are not counted.

use crate::error::ApiResult;
use crate::stream::parse_message;
use turnwire_agent::compaction::{BYTES_PER_TOKEN, estimate_tokens};
use turnwire_core::{Head, Json, Msg};
use turnwire_log::Session;
use turnwire_log::store::MessageQuery;

/// A tool of a client.
pub(super) struct ToolText<'r> {
    pub(super) name: &'r str,
    pub(super) description: &'r str,
    pub(super) schema: Option<&'r Json>,
}

/// The tokens of the messages of a request and of what is sent along with them.
pub(super) fn estimate_request<'r>(
    messages: &[Msg],
    instructions: Option<&str>,
    output_schema: Option<&Json>,
    tools: impl Iterator<Item = ToolText<'r>>,
) -> usize {
    let message_tokens: usize =
        messages.iter().map(|msg| estimate_tokens(std::slice::from_ref(msg))).sum();
    let json_bytes = |json: Option<&Json>| json.map_or(0, |json| json.text().len());
    let tool_bytes =
        |tool: ToolText<'r>| tool.name.len() + tool.description.len() + json_bytes(tool.schema);
    let tools: usize = tools.map(tool_bytes).sum();
    let bytes = instructions.map_or(0, str::len) + json_bytes(output_schema) + tools;
    message_tokens + bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The tokens of the history of a session up to a place.
pub(super) async fn estimate_history(session: &Session, end: Head) -> ApiResult<usize> {
    let (mut tokens, mut before) = (0, end.next());
    loop {
        let page = session.list_messages(&MessageQuery::page_before(before)).await?;
        let Some(oldest) = page.first() else { return Ok(tokens) };
        before = oldest.first;
        let counted = page.iter().filter(|stored| !stored.superseded);
        let messages: Vec<Msg> = counted.filter_map(|stored| parse_message(&stored.json)).collect();
        tokens += estimate_tokens(&messages);
    }
}
