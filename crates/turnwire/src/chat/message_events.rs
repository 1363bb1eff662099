//! Converts a stored message into the events that would produce it, because the renderer reads only
//! events. Called by `view` for the history of a resumed session.

use turnwire_core::event::{
    Block, DataBlockDelta, DataBlockEnd, DataBlockStart, Message, ReplyEnd, ReplyStart,
    TextBlockDelta, TextBlockEnd, TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd,
    ThinkingBlockStart, ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultDataDelta,
    ToolResultEnd, ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{
    ContentBlock, Event, EventKind, Fields, Msg, Part, Payload, Role, ToolResult, ToolResultState,
};

/// The events of a message. Open blocks stay open, so that later events continue them.
pub(crate) fn message_to_events(msg: &Msg) -> Vec<Event<'static>> {
    if msg.role() != Role::Assistant {
        return vec![Event::new("", Message { message: Box::new(msg.clone()) })];
    }
    let is_over = msg.finished_at().is_some() || msg.finished_reason().is_some();
    let (session_id, name) = (String::new(), msg.name().to_owned());
    let mut kinds = vec![ReplyStart { session_id, name, role: msg.role() }.into()];
    for block in msg.content() {
        push_block(block, is_over, &mut kinds);
    }
    if is_over {
        let end = ReplyEnd {
            finished_reason: msg.finished_reason().cloned().unwrap_or_default(),
            error: msg.error().cloned(),
            structured_output: msg.structured_output().cloned(),
            ..ReplyEnd::default()
        };
        kinds.push(end.into());
    }
    kinds.into_iter().map(|kind| Event::new(msg.id().to_owned(), kind)).collect()
}

fn push_block(block: &ContentBlock, is_over: bool, out: &mut Vec<EventKind<'static>>) {
    let extra = Fields::default;
    match block {
        ContentBlock::Text(text) => {
            let block_id = || text.id.clone().into();
            out.push(TextBlockStart { block_id: block_id() }.into());
            out.push(
                TextBlockDelta { block_id: block_id(), delta: text.text.clone().into() }.into(),
            );
            if is_over || text.finished_at.is_some() {
                out.push(TextBlockEnd { block_id: block_id(), text: None, extra: extra() }.into());
            }
        }
        ContentBlock::Thinking(thinking) => {
            let block_id = || thinking.id.clone().into();
            let delta = thinking.thinking.clone().into();
            out.push(ThinkingBlockStart { block_id: block_id() }.into());
            out.push(ThinkingBlockDelta { block_id: block_id(), delta }.into());
            if is_over || thinking.finished_at.is_some() {
                out.push(ThinkingBlockEnd { block_id: block_id(), extra: extra() }.into());
            }
        }
        ContentBlock::Data(data) => {
            let block_id = || data.id.clone().into();
            let media_type = data.media_type().map(str::to_owned);
            let name = data.name.clone();
            out.push(DataBlockStart { block_id: block_id(), media_type, name }.into());
            if let Some((media_type, chunk)) = data.source.clone().into_chunk() {
                out.push(DataBlockDelta { block_id: block_id(), media_type, chunk }.into());
            }
            if is_over || data.finished_at.is_some() {
                out.push(DataBlockEnd { block_id: block_id(), extra: extra() }.into());
            }
        }
        ContentBlock::ToolCall(call) => {
            let id = || call.id.clone().into();
            let name = call.name.clone().into();
            out.push(ToolCallStart { tool_call_id: id(), tool_call_name: name }.into());
            out.push(ToolCallDelta { tool_call_id: id(), delta: call.input.clone().into() }.into());
            if is_over || call.finished_at.is_some() {
                let title = call.rest.raw("title").map(|title| ("title", title.clone()));
                let extra = title.into_iter().collect();
                out.push(ToolCallEnd { tool_call_id: id(), extra }.into());
            }
        }
        ContentBlock::ToolResult(result) => push_result(result, out),
        ContentBlock::Hint(_) | ContentBlock::Other(_) => {
            out.push(Block { block: Box::new(block.clone()) }.into());
        }
    }
}

fn push_result(result: &ToolResult, out: &mut Vec<EventKind<'static>>) {
    let id = || result.id.clone().into();
    let name = result.name.clone().into();
    out.push(ToolResultStart { tool_call_id: id(), tool_call_name: name }.into());
    match &result.output {
        Payload::Text(text) => {
            out.push(ToolResultTextDelta { tool_call_id: id(), delta: text.clone().into() }.into());
        }
        Payload::Parts(parts) => {
            for part in parts {
                match part {
                    Part::Text(text) => {
                        let delta = text.text.clone().into();
                        out.push(ToolResultTextDelta { tool_call_id: id(), delta }.into());
                    }
                    Part::Data(data) => {
                        let Some((media_type, chunk)) = data.source.clone().into_chunk() else {
                            continue;
                        };
                        let block_id = data.id.clone().into();
                        let tool_call_id = id();
                        let delta =
                            ToolResultDataDelta { tool_call_id, block_id, media_type, chunk };
                        out.push(delta.into());
                    }
                    Part::Other(_) => {}
                }
            }
        }
    }
    if result.state != ToolResultState::Running || result.finished_at.is_some() {
        out.push(ToolResultEnd { tool_call_id: id(), state: result.state.clone() }.into());
    }
}
