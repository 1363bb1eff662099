//! Converts MCP results into tool output.

use crate::tool::{ToolError, ToolOutput};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use turnwire_core::{DataBlock, Part, TextBlock};

/// Converts the result of a call.
pub(super) fn tool_output(result: CallToolResult) -> Result<ToolOutput, ToolError> {
    let is_error = result.is_error == Some(true);
    let mut parts: Vec<Part> = result.content.into_iter().map(to_part).collect();
    // Structured content repeats the text, if there is any.
    if parts.is_empty()
        && let Some(structured) = result.structured_content
    {
        parts.push(text(structured.to_string()));
    }
    if !is_error {
        return Ok(ToolOutput::from_parts(parts));
    }
    let words: Vec<String> = parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Text(block) => Some(block.text),
            Part::Data(_) | Part::Other(_) => None,
        })
        .collect();
    let words = words.join("\n");
    Err(ToolError::new(if words.is_empty() { "The call failed.".to_owned() } else { words }))
}

fn to_part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(block) => text(block.text),
        ContentBlock::Image(image) => data(image.data, image.mime_type),
        ContentBlock::Audio(audio) => data(audio.data, audio.mime_type),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text: contents, .. } => {
                text(format!("{uri}\n{contents}"))
            }
            ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                data(blob, mime_type.unwrap_or_else(|| "application/octet-stream".to_owned()))
            }
            _ => text("(a resource of an unknown type)"),
        },
        // Only the server can resolve its own link.
        ContentBlock::ResourceLink(link) => {
            let title = link.title.unwrap_or(link.name);
            let about = link.description.map(|about| format!(": {about}")).unwrap_or_default();
            text(format!("{title} <{}>{about}", link.uri))
        }
        _ => text("(content of an unknown type)"),
    }
}

fn text(text: impl Into<String>) -> Part {
    Part::Text(TextBlock::new(text))
}

/// Binary data. Invalid base64 becomes a note.
fn data(data: String, media_type: String) -> Part {
    match STANDARD.decode(data) {
        Ok(bytes) => Part::Data(DataBlock::bytes(bytes, media_type)),
        Err(_) => text(format!("({media_type} with invalid base64)")),
    }
}
