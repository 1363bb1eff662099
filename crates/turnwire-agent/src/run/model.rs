//! One model call.

use super::{Flow, Run};
use crate::call_ids::CallIds;
use crate::cut::cut_results;
use crate::middleware::Request;
use crate::model::{Ask, ModelError};
use crate::plan::Tools;
use crate::replier::Halt;
use crate::structured::{Veil, is_mended};
use futures_util::StreamExt;
use std::pin::pin;
use turnwire_core::event::{ModelCallEnd, ModelCallStart};
use turnwire_core::{ErrorType, Event, FinishedReason, Msg};
use turnwire_wires::request::{ToolDefinition, ToolChoice};

/// How many events wait for a commit at the most: then the model has to wait.
const MOST: usize = 4096;

impl Run<'_> {
    /// Takes back what a broken-off call has said: it is made again.
    pub(super) async fn take_back(&mut self, blocks: Vec<String>) -> Result<Flow, Halt> {
        let mut events = crate::closing::end_blocks(&self.reply);
        let end = ModelCallEnd {
            finished_reason: FinishedReason::Interrupted,
            discard: blocks,
            ..ModelCallEnd::default()
        };
        events.push(self.event(end));
        self.commit(events).await?;
        Ok(Flow::GoOn)
    }

    /// What stands in front of the ids of the next call's blocks. A call that is repeated has another.
    pub(super) fn prefix(&self) -> String {
        format!("{}-{}-", self.turn.reply_id, self.calls.started + 1)
    }

    /// What the model is about to be asked, and what covers the tool for the answer.
    async fn request(&mut self, tools: Tools) -> Result<(Request, Option<Veil>), Halt> {
        self.hints_of_middleware().await?;
        let mut specs: Vec<ToolDefinition> = match tools {
            Tools::All => self.tools(),
            Tools::None => Vec::new(),
        };
        self.compact(&specs).await?;
        let mut tool_choice = ToolChoice::Auto;
        let (mut output, mut veil) = (None, None);
        match self.shape() {
            Some(shape) if self.core.model.has_schema_mode() => {
                output = Some(shape.output().clone());
            }
            Some(shape) => {
                let answer = shape.tool(&self.tools());
                tool_choice = if specs.is_empty() || is_mended(&self.reply) {
                    ToolChoice::Tool(answer.name.clone())
                } else {
                    ToolChoice::Required
                };
                veil = Some(Veil::new(answer.name.clone(), &self.prefix()));
                specs.push(answer);
            }
            None => {}
        }
        let tuning = self.core.tuning.clone();
        let messages = self.messages();
        let mut request = Request { messages, tools: specs, tool_choice, output, tuning };
        for middleware in self.core.middleware.iter() {
            middleware.model(&mut request, &self.context).await;
        }
        Ok((request, veil))
    }

    /// What the middleware tells the model before this call. A call that is repeated is told it once.
    async fn hints_of_middleware(&mut self) -> Result<(), Halt> {
        let mut hints = Vec::new();
        for middleware in self.core.middleware.iter() {
            hints.extend(middleware.hints(&self.reply, &self.context).await);
        }
        for (at, hint) in hints.iter_mut().enumerate() {
            if hint.id.is_empty() {
                hint.id = format!("{}-hint-{}-{at}", self.turn.reply_id, self.calls.ended);
            }
        }
        self.add_hints(hints).await
    }

    /// Asks the model, and passes on what it says as it says it.
    pub(super) async fn ask(&mut self, tools: Tools) -> Result<Flow, Halt> {
        self.has_news = false;
        let (request, mut veil) = self.request(tools).await?;
        if self.context.why().is_some() {
            return Err(Halt::Stopped);
        }
        let prefix = self.prefix();
        let core = self.core;
        let ask = Ask {
            reply_id: &self.turn.reply_id,
            block_prefix: &prefix,
            messages: &request.messages,
            tools: &request.tools,
            tool_choice: &request.tool_choice,
            output: request.output.as_ref(),
            tuning: &request.tuning,
        };
        let before = self.reply.content().len();
        let stop = self.turn.stop.clone();
        // Made once: to wait for it anew with each token costs more than the token.
        let mut stopped = pin!(stop.cancelled());
        let asked = tokio::select! {
            biased;
            () = &mut stopped => return Err(Halt::Stopped),
            asked = crate::names::ask(&*core.model, ask) => asked,
        };
        // It has the whole conversation in it, and the answer may take minutes.
        drop(request);
        let mut answer = match asked {
            Ok(answer) => answer,
            Err(error) => {
                let start = ModelCallStart { model_name: core.model.name().to_owned() };
                self.commit(vec![self.event(start)]).await?;
                return self.failed(error).await;
            }
        };
        let messages = self.turn.history.iter().chain([&self.reply]);
        let depth = self.journal.depth();
        let mut call_ids = CallIds::new(&prefix, depth, messages, self.journal.used_calls());
        let mut waiting: Vec<Event<'static>> = Vec::new();
        let mut broken: Option<ModelError> = None;
        let mut has_ended = false;
        loop {
            if waiting.is_empty() {
                if has_ended {
                    break;
                }
                tokio::select! {
                    biased;
                    () = &mut stopped => return Err(Halt::Stopped),
                    next = answer.next() => match next {
                        Some(Ok(event)) => waiting.push(event),
                        Some(Err(error)) => {
                            broken = Some(error);
                            has_ended = true;
                        }
                        None => has_ended = true,
                    },
                }
                continue;
            }
            // While these become durable, the next ones come.
            let events = std::mem::take(&mut waiting);
            let events = events.into_iter().map(|event| call_ids.rename(event));
            let events = match &mut veil {
                Some(veil) => events.map(|event| veil.cover(event)).collect(),
                None => events.collect(),
            };
            let events = self.pass(events);
            let mut commit = pin!(self.journal.commit(events));
            loop {
                tokio::select! {
                    biased;
                    done = &mut commit => {
                        done?;
                        break;
                    }
                    next = answer.next(), if !has_ended && waiting.len() < MOST => match next {
                        Some(Ok(event)) => waiting.push(event),
                        Some(Err(error)) => {
                            broken = Some(error);
                            has_ended = true;
                        }
                        None => has_ended = true,
                    },
                }
            }
        }
        self.is_silent = self.reply.content().len() == before;
        match broken {
            Some(error) => self.failed(error).await,
            None if self.calls.open_blocks.is_some() => {
                let why = "the model's answer has no end";
                self.failed(ModelError::new(ErrorType::Upstream, why)).await
            }
            None => Ok(Flow::GoOn),
        }
    }

    /// A model call has failed: what it said stays, everything is closed.
    async fn failed(&mut self, error: ModelError) -> Result<Flow, Halt> {
        let mut events = crate::closing::end_blocks(&self.reply);
        events.push(self.event(ModelCallEnd {
            finished_reason: FinishedReason::Error,
            error: Some(error.into()),
            ..ModelCallEnd::default()
        }));
        self.commit(events).await?;
        Ok(Flow::GoOn)
    }

    /// What the model is sent: what it is told, the conversation, and the reply so far. What is too
    /// long for it is cut or summed up; otherwise it is what the log has.
    pub(super) fn messages(&self) -> Vec<Msg> {
        let reply = Some(&self.reply).filter(|reply| !reply.content().is_empty());
        let said = crate::compact::view(self.turn.history.iter().chain(reply));
        let limit = self.core.result_limit;
        let said = said.iter().map(|msg| cut_results(msg, limit).into_owned());
        let system = self.core.system(&self.turn.history);
        system.map(|system| Msg::system("system", system)).into_iter().chain(said).collect()
    }

    fn tools(&self) -> Vec<ToolDefinition> {
        let own = self.core.tools.iter().map(|tool| tool.spec());
        let tool = |spec: &crate::tool::ToolSpec| ToolDefinition {
            name: spec.name.clone(),
            description: spec.description.clone(),
            input_schema: spec.input.clone(),
        };
        own.chain(&self.offered).map(tool).collect()
    }
}
