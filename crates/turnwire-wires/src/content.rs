//! What a request to a model does not have of the content of its messages, beside the [options](crate::ModelOption) that it
//! does not have. Called by agents, before a message is stored.
//!
//! ```
//! use turnwire_core::{ContentBlock, DataBlock, Msg, Role};
//! use turnwire_wires::Wire;
//!
//! let recording = DataBlock::bytes([0, 1], "audio/wav");
//! let msg = Msg::builder(Role::User).content(vec![recording.into()]).build()?;
//! let left_out = |wire| Wire::named(wire).unwrap().left_out_content(std::slice::from_ref(&msg));
//! assert_eq!(left_out("anthropic"), ["content.audio"]);
//! assert!(left_out("openai-chat").is_empty());
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::client_request::invalid_request;
use crate::model_request::media_type;
use crate::provider::{block_to_item, wire_of_item};
use crate::registry::Wire;
use turnwire_core::{
    ContentBlock, DataBlock, Fields, Msg, Part, Payload, Result, Role, content_blocks,
};

/// A part of a message that may be missing in a request.
enum SentPart<'a> {
    Data(&'a DataBlock),
    /// A part that only one protocol has.
    Item(&'a Fields),
}

/// The data and the unknown parts of what users and tools say.
fn sent_parts(messages: &[Msg]) -> impl Iterator<Item = SentPart<'_>> {
    let blocks = messages.iter().filter(|msg| msg.role() != Role::System).flat_map(|msg| {
        let is_users = msg.role() == Role::User;
        msg.content()
            .iter()
            .filter(move |block| is_users || matches!(block, ContentBlock::ToolResult(_)))
    });
    blocks.flat_map(|block| {
        let (one, parts): (_, &[Part]) = match block {
            ContentBlock::Data(block) => (Some(SentPart::Data(block)), &[]),
            ContentBlock::Other(item) => (Some(SentPart::Item(item)), &[]),
            ContentBlock::ToolResult(result) => match &result.output {
                Payload::Parts(parts) => (None, parts.as_slice()),
                Payload::Text(_) => (None, &[]),
            },
            content_blocks!(Text Thinking Hint ToolCall) => (None, &[]),
        };
        one.into_iter().chain(parts.iter().filter_map(|part| match part {
            Part::Data(block) => Some(SentPart::Data(block)),
            Part::Other(item) => Some(SentPart::Item(item)),
            Part::Text(_) => None,
        }))
    })
}

impl Wire {
    /// The kinds of content that a model of this wire does not get: they are left out, or described by a note. Each is named
    /// once: `content.image`, `content.audio`, `content.video`, `content.file`, or the type of a part that only another
    /// protocol has.
    pub fn left_out_content(&self, messages: &[Msg]) -> Vec<String> {
        let Some(accepts_data) = self.accepts_data else { return Vec::new() };
        let mut names: Vec<String> = Vec::new();
        for part in sent_parts(messages) {
            let name = match part {
                SentPart::Data(block) if accepts_data(block) => continue,
                SentPart::Data(block) => format!("content.{}", kind_of_data(block)),
                SentPart::Item(item) if block_to_item(self.name, item).is_some() => continue,
                SentPart::Item(item) => {
                    let kind: Option<String> = item.get("type").ok().flatten();
                    format!("content.{}", kind.unwrap_or_default())
                }
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn kind_of_data(block: &DataBlock) -> &'static str {
    let kind = media_type(block).unwrap_or_default();
    let families = ["image", "audio", "video"];
    families.into_iter().find(|family| kind.starts_with(family)).unwrap_or("file")
}

/// Refuses files that messages name by an id: only a model of the client's own protocol can read them. `wire` is the
/// protocol of the model.
pub fn check_file_references(wire: &str, messages: &[Msg]) -> Result<()> {
    for part in sent_parts(messages) {
        let SentPart::Item(item) = part else { continue };
        let Some(from) = wire_of_item(item).filter(|from| from != wire) else { continue };
        if has_file_id(item) {
            let kind: Option<String> = item.get("type").ok().flatten();
            return Err(invalid_request(format!(
                "`{}` names a file by its id, which only a model of the protocol {from} can read; send its bytes or its URL",
                kind.unwrap_or_default()
            )));
        }
    }
    Ok(())
}

fn has_file_id(item: &Fields) -> bool {
    let inner = |key: &str| item.get::<Fields>(key).ok().flatten();
    let holders = [Some(item.clone()), inner("file"), inner("source")];
    holders.into_iter().flatten().any(|fields| fields.raw("file_id").is_some())
}
