//! One model call: the request, streaming its events into the log, and its failures.

use super::call_groups::CallGroups;
use super::custom_calls::CustomCalls;
use super::{AgentLoop, Flow};
use crate::call_ids::CallIds;
use crate::middleware::EditableRequest;
use crate::model::{ModelError, ModelRequest};
use crate::places::{insert_messages, split_entries};
use crate::plan::OfferedTools;
use crate::replier::AgentError;
use crate::sent_history::apply_answers;
use crate::structured::{AnswerToolRewriter, was_corrected};
use crate::truncate::truncate_results;
use futures_util::StreamExt;
use std::borrow::Cow;
use std::pin::pin;
use turnwire_core::event::{ModelCallEnd, ModelCallStart};
use turnwire_core::{ContentBlock, ErrorType, Event, FinishedReason, Msg, Role};
use turnwire_wires::model_options::ResponseFormat;
use turnwire_wires::model_request::{
    PREFILL, ToolChoice, ToolDefinition, is_prefill, is_prefill_block,
};
use turnwire_wires::{ModelOption, ModelOptions};

/// The most events that wait for a commit. Above it, the model's stream is not read.
const MAX_PENDING_EVENTS: usize = 4096;

/// What has arrived of a model's answer.
#[derive(Default)]
struct Received {
    /// Events that are not committed yet.
    events: Vec<Event<'static>>,
    /// The error that ended the answer.
    error: Option<ModelError>,
    has_ended: bool,
}

impl Received {
    fn add(&mut self, next: Option<Result<Event<'static>, ModelError>>) {
        match next {
            Some(Ok(event)) => self.events.push(event),
            Some(Err(error)) => (self.error, self.has_ended) = (Some(error), true),
            None => self.has_ended = true,
        }
    }

    fn has_room(&self) -> bool {
        !self.has_ended && self.events.len() < MAX_PENDING_EVENTS
    }
}

impl AgentLoop<'_> {
    /// Discards the output of an interrupted model call, which is then repeated.
    pub(super) async fn discard_model_call(
        &mut self,
        blocks: Vec<String>,
    ) -> Result<Flow, AgentError> {
        let mut events = crate::close_reply::end_open_blocks(&self.reply);
        let end = ModelCallEnd {
            finished_reason: FinishedReason::Interrupted,
            discard: blocks,
            ..ModelCallEnd::default()
        };
        events.push(self.event(end));
        self.commit(events).await?;
        Ok(Flow::Continue)
    }

    /// The prefix of the block ids of the next model call. A repeated call gets another prefix.
    pub(super) fn block_prefix(&self) -> String {
        format!("{}-{}-", self.request.reply_id, self.model_calls.started + 1)
    }

    /// Builds the request, and the rewriter for the answer tool.
    async fn build_request(
        &mut self,
        tools: OfferedTools,
    ) -> Result<(EditableRequest, Option<AnswerToolRewriter>), AgentError> {
        self.add_middleware_hints().await?;
        let mut specs: Vec<ToolDefinition> = match tools {
            OfferedTools::All => self.config.tool_definitions(&self.client),
            OfferedTools::None => Vec::new(),
        };
        self.compact(&specs).await?;
        let (mut options, _) = self.config.model_options(&self.client);
        let mut tool_choice = self.tool_choice(&options, &specs);
        if options.tool_choice.as_ref().is_some_and(|choice| *choice != tool_choice) {
            options.forget_original(ModelOption::ToolChoice);
        }
        if specs.is_empty() {
            options.remove(ModelOption::ToolChoice);
            options.remove(ModelOption::ParallelToolCalls);
        }
        let (mut output, mut rewriter) = (None, None);
        match self.answer_schema() {
            Some(shape) if self.has_native_output(&options) => {
                let format = options.response_format.take();
                output = Some(shape.output_as(format.as_ref()));
                match format {
                    // The schema is the agent's own.
                    None | Some(ResponseFormat::Text) => {
                        options.remove(ModelOption::ResponseFormat);
                    }
                    format => options.response_format = format,
                }
            }
            Some(shape) => {
                let answer = shape.answer_tool(&self.config.tool_definitions(&self.client));
                let has_choice = matches!(tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
                if !has_choice || was_corrected(&self.reply) {
                    tool_choice = if specs.is_empty() || was_corrected(&self.reply) {
                        ToolChoice::Tool(answer.name.clone())
                    } else {
                        ToolChoice::Required
                    };
                }
                options.remove(ModelOption::ResponseFormat);
                options.forget_original(ModelOption::ToolChoice);
                rewriter = Some(AnswerToolRewriter::new(answer.name.clone(), &self.block_prefix()));
                specs.push(answer);
            }
            None => {}
        }
        let mut settings = self.config.model_settings.clone();
        settings.temperature = options.temperature.or(settings.temperature);
        let custom_calls = CustomCalls::new(self.config, &self.client);
        let call_groups = CallGroups::new(self.config, &self.client);
        let messages = call_groups.rename_calls(self.model_messages());
        let messages = custom_calls.to_functions(messages);
        let mut request =
            EditableRequest { messages, tools: specs, tool_choice, output, settings, options };
        for middleware in self.config.middleware.iter() {
            middleware.before_model(&mut request, &self.context).await;
        }
        Ok((request, rewriter))
    }

    /// Adds the hints of the middleware. A repeated model call does not add them again.
    async fn add_middleware_hints(&mut self) -> Result<(), AgentError> {
        let mut hints = Vec::new();
        for middleware in self.config.middleware.iter() {
            hints.extend(middleware.hints(&self.reply, &self.context).await);
        }
        for (at, hint) in hints.iter_mut().enumerate() {
            if hint.id.is_empty() {
                hint.id = format!("{}-hint-{}-{at}", self.request.reply_id, self.model_calls.ended);
            }
        }
        self.add_hints(hints).await
    }

    /// Calls the model, and commits its events as they arrive.
    pub(super) async fn call_model(&mut self, tools: OfferedTools) -> Result<Flow, AgentError> {
        self.has_unread_hints = false;
        let (request, mut rewriter) = self.build_request(tools).await?;
        if self.context.stop_reason().is_some() {
            return Err(AgentError::Stopped);
        }
        let prefix = self.block_prefix();
        let core = self.config;
        let ask = ModelRequest {
            reply_id: &self.request.reply_id,
            block_prefix: &prefix,
            messages: &request.messages,
            tools: &request.tools,
            tool_choice: &request.tool_choice,
            output: request.output.as_ref(),
            settings: &request.settings,
            options: &request.options,
        };
        let before = self.reply.content().len();
        let stop = self.request.stop.clone();
        // Created once: polling a new future for each token would cost more than the token.
        let mut stopped = pin!(stop.cancelled());
        let opened = tokio::select! {
            biased;
            () = &mut stopped => return Err(AgentError::Stopped),
            opened = crate::tool_names::stream_with_provider_names(&*core.model, ask) => opened,
        };
        // It holds the whole conversation, and the answer may take minutes.
        drop(request);
        let mut answer = match opened {
            Ok(answer) => answer,
            Err(error) => {
                let start = ModelCallStart { model_name: core.model.name().to_owned() };
                self.commit(vec![self.event(start)]).await?;
                return self.fail_model_call(error).await;
            }
        };
        let messages = self.request.history.iter().chain([&self.reply]);
        let depth = self.journal.sub_agent_depth();
        let mut call_ids = CallIds::new(&prefix, depth, messages, self.journal.used_call_ids());
        let mut call_groups = CallGroups::new(self.config, &self.client);
        let mut custom_calls = CustomCalls::new(self.config, &self.client);
        let mut received = Received::default();
        loop {
            if received.events.is_empty() {
                if received.has_ended {
                    break;
                }
                tokio::select! {
                    biased;
                    () = &mut stopped => return Err(AgentError::Stopped),
                    next = answer.next() => received.add(next),
                }
                continue;
            }
            // The next events arrive while these become durable.
            let events = std::mem::take(&mut received.events);
            let events = events.into_iter().flat_map(|event| custom_calls.read_event(event));
            let events = events.map(|event| call_groups.add_group(event));
            let events = events.map(|event| call_ids.rewrite_ids(event));
            let events = match &mut rewriter {
                Some(rewriter) => events.map(|event| rewriter.rewrite(event)).collect(),
                None => events.collect(),
            };
            let events = self.filter_and_apply(events);
            let mut commit = pin!(self.journal.commit(events));
            loop {
                tokio::select! {
                    biased;
                    done = &mut commit => {
                        done?;
                        break;
                    }
                    next = answer.next(), if received.has_room() => received.add(next),
                }
            }
        }
        self.is_model_silent = self.reply.content().len() == before;
        match received.error {
            Some(error) => self.fail_model_call(error).await,
            None if self.model_calls.open_blocks.is_some() => {
                let why = "the model's answer is incomplete";
                self.fail_model_call(ModelError::new(ErrorType::Upstream, why)).await
            }
            None => Ok(Flow::Continue),
        }
    }

    /// Ends a failed model call: keeps its output, closes what is open.
    async fn fail_model_call(&mut self, error: ModelError) -> Result<Flow, AgentError> {
        let mut events = crate::close_reply::end_open_blocks(&self.reply);
        events.push(self.event(ModelCallEnd {
            finished_reason: FinishedReason::Error,
            error: Some(error.into()),
            ..ModelCallEnd::default()
        }));
        self.commit(events).await?;
        Ok(Flow::Continue)
    }

    /// The messages for the model: system prompt, conversation, and the reply so far. Long results are
    /// truncated, old messages are replaced by a summary; everything else is as in the log.
    pub(super) fn model_messages(&self) -> Vec<Msg> {
        let reply = Some(&self.reply).filter(|reply| !reply.content().is_empty());
        let messages = crate::compaction::model_view(self.request.history.iter().chain(reply));
        let limit = self.config.result_limit;
        let messages = messages.into_iter().map(|msg| match truncate_results(&msg, limit) {
            Cow::Owned(truncated) => truncated,
            Cow::Borrowed(_) => msg,
        });
        let mut messages = join_prefills(messages);
        apply_answers(&mut messages);
        let (sent, blocks_before) = &self.sent;
        sent.apply(&mut messages, self.entries_since(*blocks_before));
        let messages = insert_messages(messages, self.later_system_messages());
        self.config.system_messages(&self.client).into_iter().chain(messages).collect()
    }

    /// The client's system messages inside of the conversation, each with the number of entries that follow it now.
    fn later_system_messages(&self) -> Vec<(usize, Msg)> {
        let system = self.client.system.iter();
        let mut system = system.filter_map(|it| Some((it.following?, it.to_msg()))).peekable();
        if system.peek().is_none() {
            return Vec::new();
        }
        let since = self.entries_since(self.blocks_before_client);
        system.map(|(following, msg)| (following + since, msg)).collect()
    }

    /// How many entries the reply has since a request that came after so many of its blocks.
    fn entries_since(&self, blocks_before: usize) -> usize {
        // What the user said beside the results came with the same request.
        let is_said = |block: &&ContentBlock| matches!(block, ContentBlock::Hint(hint) if hint.source.as_deref() == Some("user"));
        let blocks = self.reply.content().iter().skip(blocks_before);
        let since = blocks.skip_while(|block| blocks_before > 0 && is_said(block)).cloned();
        split_entries(&[Msg::assistant("", since.collect::<Vec<_>>())]).len()
    }

    /// The tool choice of the next model call. What the client requires holds until there is a call: then the model
    /// must be able to answer.
    fn tool_choice(&self, options: &ModelOptions, tools: &[ToolDefinition]) -> ToolChoice {
        let choice = options.tool_choice.clone().unwrap_or_default();
        if tools.is_empty() {
            return ToolChoice::Auto;
        }
        let blocks = self.reply.content().get(self.blocks_before_client..).unwrap_or_default();
        if !blocks.iter().any(|block| matches!(block, ContentBlock::ToolCall(_))) {
            return choice;
        }
        match choice {
            ToolChoice::Allowed { names, .. } => ToolChoice::Allowed { required: false, names },
            ToolChoice::None => ToolChoice::None,
            ToolChoice::Auto
            | ToolChoice::Required
            | ToolChoice::Tool(_)
            | ToolChoice::Other(_) => ToolChoice::Auto,
        }
    }

    /// Whether the provider gets the schema: it can enforce one, or the client asked for a format that the provider's
    /// protocol has.
    fn has_native_output(&self, options: &ModelOptions) -> bool {
        let model = &self.config.model;
        let wire = model.wire().map(|(wire, _)| wire);
        match &options.response_format {
            None | Some(ResponseFormat::Text) => model.has_schema_mode(),
            Some(format) => {
                let has_it = |wire| options.is_from(wire) || format.is_native_to(wire);
                model.takes_response_format() && wire.is_none_or(has_it)
            }
        }
    }
}

/// Joins the beginning of an answer that a client gave with the rest: the model wrote on without a break.
fn join_prefills(messages: impl Iterator<Item = Msg>) -> Vec<Msg> {
    let mut joined: Vec<Msg> = Vec::new();
    for msg in messages.map(join_prefill_blocks) {
        match joined.last_mut().filter(|last| is_prefill(last) && msg.role() == Role::Assistant) {
            Some(begun) => *begun = continue_message(begun, &msg),
            None => joined.push(msg),
        }
    }
    joined
}

/// Joins the beginning of an answer behind tool results with the text that follows it.
fn join_prefill_blocks(msg: Msg) -> Msg {
    if !msg.content().iter().any(is_prefill_block) {
        return msg;
    }
    let mut blocks: Vec<ContentBlock> = Vec::new();
    for block in msg.content() {
        if let Some(ContentBlock::Text(begun)) = blocks.last_mut()
            && begun.rest.raw(PREFILL).is_some()
            && let ContentBlock::Text(next) = block
        {
            begun.text.push_str(&next.text);
        } else {
            blocks.push(block.clone());
        }
    }
    msg.to_builder().content(blocks).build().unwrap_or(msg)
}

fn continue_message(begun: &Msg, rest: &Msg) -> Msg {
    let mut blocks = begun.content().to_vec();
    let mut more = rest.content().iter().cloned().peekable();
    if let Some(ContentBlock::Text(last)) = blocks.last_mut()
        && let Some(ContentBlock::Text(next)) =
            more.next_if(|block| matches!(block, ContentBlock::Text(_)))
    {
        last.text.push_str(&next.text);
    }
    blocks.extend(more);
    rest.to_builder().content(blocks).build().unwrap_or_else(|_| rest.clone())
}
