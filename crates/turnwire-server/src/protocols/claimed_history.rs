//! Converts the history that a client sends to messages of the log.
//!
//! A client splits a reply into messages: a call, its result, the rest. The log has one message per reply, so they
//! are joined again. Every message is marked: only the client says that it is part of the conversation.

use crate::error::{ApiError, ApiResult};
use turnwire_core::{ContentBlock, Msg, MsgBuilder, Role, ToolCallState};
use turnwire_wires::model_request::PREFILL;

/// In the metadata of a message: nobody but the client says that it is part of the conversation.
const CLAIMED: &str = "claimed";

/// The messages of a client's history as messages of the log. System prompts are left out: they belong to the request.
pub(crate) fn to_log_messages(history: &[Msg]) -> ApiResult<Vec<Msg>> {
    let mut messages = Vec::new();
    let mut reply: Vec<ContentBlock> = Vec::new();
    for msg in history {
        match msg.role() {
            Role::System => {}
            Role::Assistant => reply.extend(msg.content().iter().cloned().map(settle_call)),
            Role::User | Role::Tool => {
                let (results, content): (Vec<_>, Vec<_>) = msg
                    .content()
                    .iter()
                    .cloned()
                    .partition(|block| matches!(block, ContentBlock::ToolResult(_)));
                reply.extend(results);
                if !content.is_empty() {
                    messages.extend(claimed_reply(std::mem::take(&mut reply))?);
                    messages.push(claimed(msg.to_builder(), Role::User, content)?);
                }
            }
        }
    }
    messages.extend(claimed_reply(reply)?);
    Ok(messages)
}

/// The same with system messages, for a conversation that has them outside of requests.
pub(crate) fn to_conversation(history: &[Msg]) -> ApiResult<Vec<Msg>> {
    let mut messages = Vec::new();
    for part in
        history.chunk_by(|one, next| [one, next].iter().all(|msg| msg.role() != Role::System))
    {
        match part {
            [msg] if msg.role() == Role::System => {
                messages.push(claimed(msg.to_builder(), Role::System, msg.content().to_vec())?);
            }
            part => messages.extend(to_log_messages(part)?),
        }
    }
    Ok(messages)
}

/// The beginning of an answer that a client gives, as a message of the log.
pub(crate) fn to_prefill(messages: &[Msg]) -> ApiResult<Option<Msg>> {
    let begun = to_log_messages(messages)?.into_iter().next();
    let marked = begun.map(|msg| msg.to_builder().metadata(PREFILL, true).build());
    marked.transpose().map_err(|error| invalid_message(&error))
}

fn claimed_reply(blocks: Vec<ContentBlock>) -> ApiResult<Option<Msg>> {
    if blocks.is_empty() {
        return Ok(None);
    }
    claimed(Msg::builder(Role::Assistant), Role::Assistant, blocks).map(Some)
}

fn claimed(msg: MsgBuilder, role: Role, blocks: Vec<ContentBlock>) -> ApiResult<Msg> {
    let msg = msg.name(role.to_string()).content(blocks);
    msg.metadata(CLAIMED, true).build().map_err(|error| invalid_message(&error))
}

fn invalid_message(error: &turnwire_core::Error) -> ApiError {
    ApiError::bad_request(format!("a message of the history is invalid: {error}"))
}

/// A call of the history has been executed, or never will be.
fn settle_call(block: ContentBlock) -> ContentBlock {
    match block {
        ContentBlock::ToolCall(mut call) => {
            call.state = ToolCallState::Finished;
            ContentBlock::ToolCall(call)
        }
        ContentBlock::Text(_)
        | ContentBlock::Thinking(_)
        | ContentBlock::Hint(_)
        | ContentBlock::Data(_)
        | ContentBlock::ToolResult(_)
        | ContentBlock::Other(_) => block,
    }
}
