//! Converts messages between Anthropic's format and ours. One reply of ours with tools is several messages of theirs:
//! assistant messages, and user messages with the tool results between them.

use super::NAME;
use super::content;
use super::decode::{parse_stop_reason, update_token_counts};
use crate::json::fields;
use crate::model_request::to_json_list;
use crate::provider;
use crate::provider::has_failed;
use turnwire_core::event::TokenCounts;
use turnwire_core::{
    ContentBlock, Error, ErrorKind, Fields, Json, Msg, MsgBuilder, Payload, Result, Role,
    ToolResult, Usage,
};

pub(super) fn encode(messages: &[Msg]) -> Vec<Json> {
    let mut written = Vec::new();
    for msg in messages {
        let mut run: (&'static str, Vec<Json>) = ("", Vec::new());
        for block in msg.content() {
            let Some((role, fields)) = encode_block(msg.role(), block) else { continue };
            if run.0 != role {
                written.extend(encode_message(&run));
                run = (role, Vec::new());
            }
            run.1.push(fields.into());
        }
        written.extend(encode_message(&run));
    }
    written
}

fn encode_message((role, blocks): &(&'static str, Vec<Json>)) -> Option<Json> {
    if blocks.is_empty() {
        return None;
    }
    Some(fields! { "role": *role, "content": to_json_list(blocks) }.into())
}

/// A block, and its role in Anthropic's format.
fn encode_block(role: Role, block: &ContentBlock) -> Option<(&'static str, Fields)> {
    let fields = match block {
        ContentBlock::Text(block) if block.text.is_empty() => return None,
        ContentBlock::Text(block) => content::write_text(block),
        ContentBlock::Thinking(block) => content::write_thinking(block)?,
        ContentBlock::Data(block) => content::write_data(block)?,
        ContentBlock::ToolCall(call) => content::write_call(call, &call.id),
        ContentBlock::ToolResult(block) => return Some(("user", encode_result(block))),
        ContentBlock::Other(item) => provider::block_to_item(NAME, item)?,
        // A hint has no equivalent; in a request it is a user message.
        ContentBlock::Hint(_) => return None,
    };
    let role = match role {
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
    };
    Some((role, fields))
}

fn encode_result(block: &ToolResult) -> Fields {
    let content = match &block.output {
        Payload::Text(text) => text.as_str().into(),
        Payload::Parts(parts) => to_json_list(&content::write_parts(parts, |_| None)),
    };
    content::write_result(&block.id, content, has_failed(&block.state))
}

pub(super) fn decode(text: &str) -> Result<Vec<Msg>> {
    let json = Json::parse(text)?;
    let list: Vec<Fields> =
        if json.text().starts_with('[') { json.parse_as()? } else { vec![json.parse_as()?] };
    let mut reader = MessageReader::default();
    for (at, fields) in list.into_iter().enumerate() {
        reader.read_message(fields).map_err(|error| error.at(format!("[{at}]")))?;
    }
    reader.end_reply()?;
    Ok(reader.messages)
}

/// Reads messages. Consecutive assistant messages, and the tool results between them, become one reply.
#[derive(Default)]
struct MessageReader {
    messages: Vec<Msg>,
    /// The reply that may continue: its fields and its blocks.
    reply: Option<(MsgBuilder, Vec<ContentBlock>)>,
}

impl MessageReader {
    fn read_message(&mut self, mut fields: Fields) -> Result<()> {
        let role = take_role(&mut fields)?;
        let blocks = match fields.remove("content") {
            None => Vec::new(),
            Some(json) if json.is_null() => Vec::new(),
            Some(json) if json.text().starts_with('"') => vec![json.parse_as::<String>()?.into()],
            Some(json) => {
                json.parse_as::<Vec<Fields>>()?.into_iter().map(content::read_block).collect()
            }
        };
        if role == Role::Assistant {
            self.reply_content(&mut fields).extend(blocks);
            return Ok(());
        }
        let (results, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| matches!(block, ContentBlock::ToolResult(_)));
        if !results.is_empty() {
            self.reply_content(&mut Fields::default()).extend(results);
        }
        if !blocks.is_empty() {
            self.end_reply()?;
            self.messages.push(Msg::builder(role).content(blocks).build()?);
        }
        Ok(())
    }

    /// The blocks of the current reply. Its fields come from its first message.
    fn reply_content(&mut self, fields: &mut Fields) -> &mut Vec<ContentBlock> {
        let (_, content) = self.reply.get_or_insert_with(|| (reply_builder(fields), Vec::new()));
        content
    }

    fn end_reply(&mut self) -> Result<()> {
        if let Some((msg, content)) = self.reply.take() {
            self.messages.push(msg.content(content).build()?);
        }
        Ok(())
    }
}

fn take_role(fields: &mut Fields) -> Result<Role> {
    let word: Option<String> = fields.take("role")?;
    match word.as_deref() {
        Some("user") => Ok(Role::User),
        Some("assistant") => Ok(Role::Assistant),
        Some("system") => Ok(Role::System),
        Some(word) => Err(Error::new(
            ErrorKind::NotAMessage,
            format!("unknown role `{word}`: expected user, assistant or system"),
        )),
        None => Err(Error::new(ErrorKind::NotAMessage, "`role` is missing")),
    }
}

/// Starts a reply with the fields of a response: id, stop reason and tokens.
fn reply_builder(fields: &mut Fields) -> MsgBuilder {
    let mut msg = Msg::builder(Role::Assistant);
    if let Ok(Some(id)) = fields.take::<String>("id") {
        msg = msg.id(id);
    }
    if let Ok(Some(word)) = fields.take::<String>("stop_reason") {
        msg = msg.finished_reason(parse_stop_reason(&word));
    }
    if let Some(counted) = fields.remove("usage").filter(|counted| !counted.is_null()) {
        let mut counts = TokenCounts::default();
        update_token_counts(counted.text(), &mut counts);
        msg = msg.usage(Usage {
            input_tokens: counts.input_tokens,
            output_tokens: counts.output_tokens,
            cache_input_tokens: counts.cache_input_tokens,
            cache_creation_input_tokens: counts.cache_creation_input_tokens,
            rest: Fields::default(),
        });
    }
    msg
}
