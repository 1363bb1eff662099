//! A block of the demo's answer, and its events.

use super::chunks::Chunks;
use super::picture;
use super::tools::DemoCall;
use turnwire_core::event::{
    Chunk, DataBlockDelta, DataBlockEnd, DataBlockStart, TextBlockDelta, TextBlockEnd,
    TextBlockStart, ThinkingBlockDelta, ThinkingBlockEnd, ThinkingBlockStart, ToolCallDelta,
    ToolCallEnd, ToolCallStart,
};
use turnwire_core::{DataBlock, EventKind, Fields, Source};

/// One block.
pub(super) enum DemoBlock<'c> {
    Thinking(Chunks),
    Text(Chunks),
    Picture(Chunks),
    Call(&'c DemoCall, Chunks),
}

impl<'c> DemoBlock<'c> {
    pub(super) fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking(Chunks::Words(text.into()))
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(Chunks::Words(text.into()))
    }

    pub(super) fn picture() -> Self {
        let base64 = match DataBlock::bytes(picture::png(), PNG).source {
            Source::Base64(source) => source.data,
            Source::Url(_) | Source::Other(_) => String::new(),
        };
        Self::Picture(Chunks::Pieces(base64, 1024))
    }

    pub(super) fn call(call: &'c DemoCall) -> Self {
        Self::Call(call, Chunks::Pieces(call.input.clone(), 8))
    }

    pub(super) fn chunks(&self) -> &Chunks {
        match self {
            Self::Thinking(chunks)
            | Self::Text(chunks)
            | Self::Picture(chunks)
            | Self::Call(_, chunks) => chunks,
        }
    }

    pub(super) fn start(&self, id: &str) -> EventKind<'static> {
        let block_id = id.to_owned().into();
        match self {
            Self::Thinking(_) => ThinkingBlockStart { block_id }.into(),
            Self::Text(_) => TextBlockStart { block_id }.into(),
            Self::Picture(_) => {
                let (media_type, name) = (Some(PNG.to_owned()), Some("sunset.png".to_owned()));
                DataBlockStart { block_id, media_type, name }.into()
            }
            Self::Call(call, _) => {
                let tool_call_name = call.tool.name().into();
                ToolCallStart { tool_call_id: block_id, tool_call_name }.into()
            }
        }
    }

    pub(super) fn delta(&self, id: &str, chunk: String) -> EventKind<'static> {
        let (block_id, delta) = (id.to_owned().into(), chunk.into());
        match self {
            Self::Thinking(_) => ThinkingBlockDelta { block_id, delta }.into(),
            Self::Text(_) => TextBlockDelta { block_id, delta }.into(),
            Self::Picture(_) => {
                let (media_type, chunk) = (Some(PNG.to_owned()), Chunk::Data(delta));
                DataBlockDelta { block_id, media_type, chunk }.into()
            }
            Self::Call(..) => ToolCallDelta { tool_call_id: block_id, delta }.into(),
        }
    }

    pub(super) fn end(&self, id: &str) -> EventKind<'static> {
        let (block_id, extra) = (id.to_owned().into(), Fields::default());
        match self {
            Self::Thinking(_) => ThinkingBlockEnd { block_id, extra }.into(),
            Self::Text(_) => TextBlockEnd { block_id, text: None, extra }.into(),
            Self::Picture(_) => DataBlockEnd { block_id, extra }.into(),
            Self::Call(call, _) => {
                ToolCallEnd { tool_call_id: block_id, extra: call.tool.title() }.into()
            }
        }
    }
}

const PNG: &str = "image/png";
