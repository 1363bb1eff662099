//! Writes a reply of the demo, and skips what the log already has.

use super::block::DemoBlock;
use super::pace::PacedJournal;
use super::scenes::MODEL_NAME;
use super::tools::{DemoCall, DemoTool};
use crate::plan::is_timeout;
use crate::replier::{AgentError, ReplyRequest};
use turnwire_core::event::{
    ModelCallEnd, ModelCallStart, ReplyEnd, ReplyStart, SubAgent, TokenCounts,
};
use turnwire_core::{
    ContentBlock, Event, EventKind, FinishedReason, Json, Msg, PermissionRule, ReplyError, Role,
    Source, ToolCall, ToolResult, content_blocks,
};

/// A reply being written. Every step first checks the log.
pub(super) struct ReplyWriter<'w, 'j> {
    pub(super) pace: &'w mut PacedJournal<'j>,
    reply_id: String,
    session_id: &'w str,
    name: &'static str,
    /// The identity of a sub-agent.
    agent: Option<Box<SubAgent>>,
    partial: Option<&'w Msg>,
    /// Rules that users accepted in this session.
    pub(super) accepted_rules: &'w [PermissionRule],
    /// Whether the reply continues because a question expired.
    pub(super) is_expired: bool,
    /// The length of the message.
    input_tokens: i64,
    so_far: Counts,
}

/// Counts from the start of the reply, so that ids are the same in every run.
#[derive(Default)]
struct Counts {
    /// The output tokens of the model calls. The sum in the partial message shows which calls have ended.
    output_tokens: i64,
    model_calls: u32,
    blocks: u32,
    calls: u32,
    events: u32,
}

/// The progress of a block in the log.
enum Progress {
    NotStarted,
    /// Started, with this many bytes.
    Begun(usize),
    Ended,
}

impl<'w, 'j> ReplyWriter<'w, 'j> {
    pub(super) fn new(
        request: &'w ReplyRequest,
        question: &str,
        pace: &'w mut PacedJournal<'j>,
    ) -> Self {
        Self {
            pace,
            reply_id: request.reply_id.clone(),
            session_id: &request.session_id,
            name: MODEL_NAME,
            agent: None,
            partial: request.partial.as_ref(),
            accepted_rules: &request.accepted_rules,
            is_expired: request.input.as_ref().is_some_and(is_timeout),
            input_tokens: count_words(question),
            so_far: Counts::default(),
        }
    }

    /// The reply of a sub-agent. The log's part of it is not known here, so all of it is written again,
    /// with ids that mark repeats.
    pub(super) fn sub_agent(&mut self, name: &'static str, call: &DemoCall) -> ReplyWriter<'_, 'j> {
        let agent = SubAgent {
            agent_path: Some(format!("{}/{name}", self.name)),
            parent_tool_call_id: Some(call.id.clone()),
        };
        ReplyWriter {
            reply_id: format!("{}-{name}", self.reply_id),
            session_id: self.session_id,
            name,
            agent: Some(Box::new(agent)),
            partial: None,
            accepted_rules: self.accepted_rules,
            is_expired: self.is_expired,
            input_tokens: count_words(&call.input),
            so_far: Counts::default(),
            pace: self.pace,
        }
    }

    pub(super) async fn start(&mut self) -> Result<(), AgentError> {
        if self.partial.is_some_and(|partial| !partial.name().is_empty()) {
            return Ok(());
        }
        let (session_id, name) = (self.session_id.to_owned(), self.name.to_owned());
        self.emit(ReplyStart { session_id, name, role: Role::Assistant }).await
    }

    /// A tool call of the next model call.
    pub(super) fn tool_call(&mut self, tool: DemoTool, input: String) -> DemoCall {
        self.so_far.calls += 1;
        DemoCall { id: format!("{}-call-{}", self.reply_id, self.so_far.calls), tool, input }
    }

    /// One model call and its blocks.
    pub(super) async fn model_call(&mut self, blocks: &[DemoBlock<'_>]) -> Result<(), AgentError> {
        let calls = blocks.iter().any(|block| matches!(block, DemoBlock::Call(..)));
        let reason = if calls { FinishedReason::ToolCalls } else { FinishedReason::Completed };
        self.model_call_with_reason(blocks, reason, None).await
    }

    /// One model call and how it ends.
    pub(super) async fn model_call_with_reason(
        &mut self,
        blocks: &[DemoBlock<'_>],
        finished_reason: FinishedReason,
        error: Option<ReplyError>,
    ) -> Result<(), AgentError> {
        self.so_far.model_calls += 1;
        let ids: Vec<String> = blocks.iter().map(|block| self.block_id(block)).collect();
        // At least one, so that the sum grows with each call.
        let output_tokens = blocks.iter().map(|block| block.chunks().tokens()).sum::<i64>().max(1);
        self.so_far.output_tokens += output_tokens;
        if self.written_tokens() >= self.so_far.output_tokens {
            return Ok(());
        }
        if ids.iter().all(|id| matches!(self.progress(id), Progress::NotStarted)) {
            self.start_model_call().await?;
        }
        for (block, id) in blocks.iter().zip(&ids) {
            let known = match self.progress(id) {
                Progress::Ended => continue,
                Progress::Begun(bytes) => bytes,
                Progress::NotStarted => {
                    self.emit(block.start(id)).await?;
                    0
                }
            };
            for chunk in block.chunks().remaining_after(known) {
                self.emit_delta(block.delta(id, chunk)).await?;
            }
            self.emit(block.end(id)).await?;
        }
        let usage = TokenCounts {
            input_tokens: self.input_tokens,
            output_tokens,
            ..TokenCounts::default()
        };
        self.emit(ModelCallEnd { usage, finished_reason, error, discard: Vec::new() }).await
    }

    async fn start_model_call(&mut self) -> Result<(), AgentError> {
        let mut event = self.event(ModelCallStart { model_name: MODEL_NAME.to_owned() });
        // It leaves no trace in the message: the id marks a repeat.
        event.id = format!("{}-model-{}", self.reply_id, self.so_far.model_calls).into();
        self.pace.push(event).await
    }

    /// Ends the reply as completed.
    pub(super) async fn end(&mut self, structured_output: Option<Json>) -> Result<(), AgentError> {
        let end = ReplyEnd {
            session_id: self.session_id.to_owned(),
            structured_output,
            ..ReplyEnd::default()
        };
        self.emit(end).await
    }

    /// Ends the reply with an error.
    pub(super) async fn end_failed(&mut self, error: ReplyError) -> Result<(), AgentError> {
        let session_id = self.session_id.to_owned();
        self.emit(ReplyEnd { session_id, ..ReplyEnd::failed(error) }).await
    }

    /// The end of the reply, to commit together with other events.
    pub(super) fn end_event(&mut self) -> Event<'static> {
        let session_id = self.session_id.to_owned();
        self.event(ReplyEnd { session_id, ..ReplyEnd::default() })
    }

    pub(super) async fn emit(
        &mut self,
        kind: impl Into<EventKind<'static>>,
    ) -> Result<(), AgentError> {
        let event = self.event(kind);
        self.pace.push(event).await
    }

    pub(super) async fn emit_delta(
        &mut self,
        kind: impl Into<EventKind<'static>>,
    ) -> Result<(), AgentError> {
        let event = self.event(kind);
        self.pace.push_delta(event).await
    }

    pub(super) fn event(&mut self, kind: impl Into<EventKind<'static>>) -> Event<'static> {
        let mut event = Event::new(self.reply_id.clone(), kind);
        if self.agent.is_some() {
            self.so_far.events += 1;
            event.id = format!("{}-{}", self.reply_id, self.so_far.events).into();
            event.agent.clone_from(&self.agent);
        }
        event
    }

    /// The call in the log.
    pub(super) fn known_call(&self, call: &DemoCall) -> Option<&'w ToolCall> {
        self.partial?.blocks::<ToolCall>().find(|known| known.id == call.id)
    }

    /// The result in the log.
    pub(super) fn known_result(&self, call: &DemoCall) -> Option<&'w ToolResult> {
        self.partial?.blocks::<ToolResult>().find(|known| known.id == call.id)
    }

    fn block_id(&mut self, block: &DemoBlock<'_>) -> String {
        match block {
            DemoBlock::Call(call, _) => call.id.clone(),
            DemoBlock::Thinking(_) | DemoBlock::Text(_) | DemoBlock::Picture(_) => {
                self.so_far.blocks += 1;
                format!("{}-block-{}", self.reply_id, self.so_far.blocks)
            }
        }
    }

    fn written_tokens(&self) -> i64 {
        self.partial.and_then(Msg::usage).map_or(0, |usage| usage.output_tokens)
    }

    fn progress(&self, id: &str) -> Progress {
        let content = self.partial.map(Msg::content).unwrap_or_default();
        let found = content.iter().find_map(|block| match block {
            ContentBlock::Text(block) if block.id == id => {
                Some((block.text.len(), &block.finished_at))
            }
            ContentBlock::Thinking(block) if block.id == id => {
                Some((block.thinking.len(), &block.finished_at))
            }
            ContentBlock::Data(block) if block.id == id => match &block.source {
                Source::Base64(source) => Some((source.data.len(), &block.finished_at)),
                Source::Url(_) | Source::Other(_) => Some((0, &block.finished_at)),
            },
            ContentBlock::ToolCall(call) if call.id == id => {
                Some((call.input.len(), &call.finished_at))
            }
            content_blocks!(Text Thinking Data ToolCall ToolResult Hint Other) => None,
        });
        match found {
            None => Progress::NotStarted,
            Some((_, Some(_))) => Progress::Ended,
            Some((bytes, None)) => Progress::Begun(bytes),
        }
    }
}

fn count_words(text: &str) -> i64 {
    i64::try_from(text.split_whitespace().count()).unwrap_or(i64::MAX)
}
