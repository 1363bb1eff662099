//! The tool calls of one round: refuses them, sends them to the client, asks for approval, or runs them.

use super::{AgentLoop, Flow};
use crate::plan::{CallAction, ResultStarted};
use crate::replier::AgentError;
use crate::schema::{self, AnswerError, Schema};
use crate::sub_agent::ParentContext;
use crate::tool::{InputKind, Tool, ToolContext, ToolError, ToolOutput, ToolUpdate, UpdateContent};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{
    RequireExternalExecution, RequireUserConfirm, ToolResultDataDelta, ToolResultEnd,
    ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{DataBlock, Event, Fields, Json, Part, ToolCall, ToolResultState};

/// The most tool updates that wait for a commit.
const MAX_PENDING_UPDATES: usize = 256;

/// The output of a finished tool.
type FinishedTool = (String, Result<ToolOutput, ToolError>);

/// Why an input does not match a schema. `None` also if that cannot be found out.
async fn find_mismatch(schema: Json, input: String) -> Option<String> {
    let check = move |_| {
        let input = if input.trim_ascii().is_empty() { "{}" } else { &*input };
        let value = serde_json::from_str(input).ok()?;
        match Schema::compile(&schema).ok()?.check(&value) {
            Err(AnswerError::Mismatch(why)) => Some(why),
            Ok(()) | Err(AnswerError::TooExpensive(_)) => None,
        }
    };
    let why = schema::run_on_worker(check).await.flatten()?;
    Some(format!("Invalid tool input: it does not match the schema: {why}"))
}

impl AgentLoop<'_> {
    /// Handles calls. Requests approvals and client results first, so that nobody waits for an unrelated
    /// tool.
    pub(super) async fn handle_calls(
        &mut self,
        todos: Vec<(ToolCall, CallAction)>,
    ) -> Result<Flow, AgentError> {
        let mut events = Vec::new();
        let (mut to_confirm, mut for_client, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (mut call, todo) in todos {
            // A person is not asked about a call that cannot run.
            let mismatch = match todo {
                CallAction::AskUser(_) => match self.json_schema_of(&call) {
                    Some(schema) => find_mismatch(schema, call.input.clone()).await,
                    None => None,
                },
                CallAction::Refuse(..)
                | CallAction::Interrupt
                | CallAction::SendToClient
                | CallAction::Run(_) => None,
            };
            let todo = mismatch.map_or(todo, |why| CallAction::Refuse(ToolResultState::Error, why));
            match todo {
                CallAction::Refuse(state, why) => {
                    events.push(self.result_start(&call));
                    events.push(self.result_text(&call.id, why));
                    events.push(self.result_end(&call.id, state, Fields::default()));
                }
                CallAction::Interrupt => {
                    let (_, result) =
                        self.reply.tool_calls().find(|(own, _)| own.id == call.id).unzip();
                    if let Some(result) = result.flatten() {
                        events.extend(crate::close_reply::interrupt_result(&self.reply, result));
                    }
                }
                CallAction::AskUser(rules) => {
                    call.suggested_rules = rules;
                    to_confirm.push(call);
                }
                // The client's result arrives whole, with its own start event.
                CallAction::SendToClient => for_client.push(call),
                CallAction::Run(began) => {
                    if began == ResultStarted::No {
                        events.push(self.result_start(&call));
                    }
                    runs.push(call);
                }
            }
        }
        let waits = !to_confirm.is_empty() || !for_client.is_empty();
        if !for_client.is_empty() {
            events.push(self.event(RequireExternalExecution { tool_calls: for_client }));
        }
        if !to_confirm.is_empty() {
            events.push(self.event(RequireUserConfirm { tool_calls: to_confirm }));
        }
        self.commit(events).await?;
        let flow = self.run_tools(runs).await?;
        Ok(if waits { Flow::Wait } else { flow })
    }

    /// The schema of a call's input.
    fn json_schema_of(&self, call: &ToolCall) -> Option<Json> {
        let spec = self.find_spec(&call.name)?;
        (spec.input_kind == InputKind::Json).then(|| spec.input.clone())
    }

    fn result_start(&self, call: &ToolCall) -> Event<'static> {
        let (tool_call_id, tool_call_name) = (call.id.clone().into(), call.name.clone().into());
        self.event(ToolResultStart { tool_call_id, tool_call_name })
    }

    fn result_text(&self, call_id: &str, text: String) -> Event<'static> {
        let (tool_call_id, delta) = (call_id.to_owned().into(), text.into());
        self.event(ToolResultTextDelta { tool_call_id, delta })
    }

    fn result_end(
        &self,
        call_id: &str,
        state: ToolResultState,
        metadata: Fields,
    ) -> Event<'static> {
        let mut event =
            self.event(ToolResultEnd { tool_call_id: call_id.to_owned().into(), state });
        event.metadata = metadata;
        event
    }

    /// Runs tools, concurrently where allowed. Commits their output as it arrives.
    async fn run_tools(&mut self, calls: Vec<ToolCall>) -> Result<Flow, AgentError> {
        if calls.is_empty() {
            return Ok(Flow::Continue);
        }
        let (sender, mut pieces) = mpsc::channel(MAX_PENDING_UPDATES);
        let launch = ToolLauncher {
            sender,
            stop: self.request.stop.clone(),
            parent: Arc::new(self.parent_context()),
        };
        let mut queue: VecDeque<(ToolCall, Arc<dyn Tool>)> = VecDeque::new();
        let mut running: JoinSet<FinishedTool> = JoinSet::new();
        for call in calls {
            let Some(tool) = self.find_tool(&call.name) else { continue };
            if tool.spec().concurrent {
                launch.start(&mut running, call, tool, self);
            } else {
                queue.push_back((call, tool));
            }
        }
        let mut flow = Flow::Continue;
        // Updates of a tool that has ended are ignored.
        let mut over: HashSet<String> = HashSet::new();
        let stop = self.request.stop.clone();
        // Events to commit together with the end of a result.
        let mut last: HashMap<String, Vec<Event<'static>>> = HashMap::new();
        // Dropping this set ends the tasks.
        loop {
            if running.is_empty() {
                let Some((call, tool)) = queue.pop_front() else { break };
                launch.start(&mut running, call, tool, self);
            }
            let (mut updates, mut ended) = (Vec::new(), Vec::new());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(AgentError::Stopped),
                Some(piece) = pieces.recv() => updates.push(piece),
                Some(done) = running.join_next() => ended.push(done),
            }
            // The tools that have ended by now have sent all their updates: commit those before their end.
            // Updates of other tools that arrive meanwhile wait for the next round.
            while let Some(done) = running.try_join_next() {
                ended.push(done);
            }
            while updates.len() <= MAX_PENDING_UPDATES
                && let Ok(piece) = pieces.try_recv()
            {
                updates.push(piece);
            }
            let (mut events, mut acknowledgements) = (Vec::new(), Vec::new());
            for ToolUpdate { call_id, content } in updates {
                if over.contains(&call_id) {
                    continue;
                }
                match content {
                    UpdateContent::Text(text) => events.push(self.result_text(&call_id, text)),
                    UpdateContent::Part(part) => events.push(self.result_part(&call_id, *part)),
                    UpdateContent::Events(more, durable) => {
                        events.extend(more);
                        acknowledgements.push(durable);
                    }
                    UpdateContent::FinalEvents(more) => {
                        last.entry(call_id).or_default().extend(more);
                    }
                }
            }
            for done in ended {
                match done {
                    Ok((_, Ok(ToolOutput::Waiting))) => flow = Flow::Wait,
                    Ok((call, output)) => {
                        events.extend(last.remove(&call).unwrap_or_default());
                        events.extend(self.output_events(&call, output));
                        over.insert(call);
                    }
                    Err(error) => {
                        return Err(AgentError::Failed(format!("a tool task failed: {error}")));
                    }
                }
            }
            self.commit(events).await?;
            for durable in acknowledgements {
                // The receiver may be gone.
                let _ = durable.send(());
            }
        }
        Ok(flow)
    }

    /// What sub-agents of this reply need to know.
    fn parent_context(&self) -> ParentContext {
        ParentContext {
            session_id: self.request.session_id.clone(),
            name: self.config.name.clone(),
            depth: self.journal.sub_agent_depth(),
            accepted_rules: self.request.accepted_rules.clone(),
            sub_replies: self.request.sub_replies.clone(),
            input: self.request.input.clone(),
            hints: self.journal.hints(),
        }
    }

    fn result_part(&self, call_id: &str, part: Part) -> Event<'static> {
        match part {
            Part::Text(block) => self.result_text(call_id, block.text),
            Part::Data(DataBlock { source, .. }) => {
                let (media_type, chunk) = source.into_chunk().unwrap_or_default();
                self.event(ToolResultDataDelta {
                    tool_call_id: call_id.to_owned().into(),
                    block_id: String::new().into(),
                    media_type,
                    chunk,
                })
            }
            Part::Other(_) => self.result_text(call_id, String::new()),
        }
    }

    /// The events of a tool's output.
    fn output_events(
        &self,
        call_id: &str,
        output: Result<ToolOutput, ToolError>,
    ) -> Vec<Event<'static>> {
        let mut events = Vec::new();
        let state = match output {
            Ok(ToolOutput::Empty | ToolOutput::Waiting) => ToolResultState::Success,
            Ok(ToolOutput::Text(text)) => {
                if !text.is_empty() {
                    events.push(self.result_text(call_id, text));
                }
                ToolResultState::Success
            }
            Ok(ToolOutput::Parts(parts)) => {
                events.extend(parts.into_iter().map(|part| self.result_part(call_id, part)));
                ToolResultState::Success
            }
            Ok(ToolOutput::Background(note)) => {
                events.push(self.result_text(call_id, note));
                ToolResultState::Running
            }
            Err(error) => {
                events.push(self.result_text(call_id, error.message().to_owned()));
                ToolResultState::Error
            }
        };
        events.push(self.result_end(call_id, state, Fields::default()));
        events
    }
}

/// What every tool gets.
struct ToolLauncher {
    sender: mpsc::Sender<ToolUpdate>,
    stop: CancellationToken,
    parent: Arc<ParentContext>,
}

impl ToolLauncher {
    fn start(
        &self,
        running: &mut JoinSet<FinishedTool>,
        call: ToolCall,
        tool: Arc<dyn Tool>,
        run: &AgentLoop<'_>,
    ) {
        let (id, reply) = (call.id.clone(), &run.reply);
        // Calls keep their position once they run, so the id is the same after a crash.
        let place = reply.tool_calls().position(|(own, _)| own.id == id).unwrap_or_default();
        let out = ToolContext {
            call_id: id.clone(),
            sender: self.sender.clone(),
            stop: self.stop.clone(),
            hint_sender: run.hint_sender(&call),
            parent: self.parent.clone(),
            sub_reply_id: format!("{}.{place}", reply.id()),
        };
        running.spawn(async move {
            let limit = tool.spec().time_limit;
            // A panic of a tool is a failed call.
            let work = tokio::spawn(async move { tool.run(call, out).await });
            let mut work = AbortOnDrop(work);
            let done = match limit {
                None => (&mut work.0).await,
                Some(limit) => {
                    let Ok(done) = tokio::time::timeout(limit, &mut work.0).await else {
                        let why = format!("The call exceeded the time limit of {limit:?}.");
                        return (id, Err(ToolError::new(why)));
                    };
                    done
                }
            };
            let broke = |_| Err(ToolError::new("The tool panicked."));
            (id, done.unwrap_or_else(broke))
        });
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
