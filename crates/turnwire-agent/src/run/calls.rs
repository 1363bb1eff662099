//! The calls of one round: refused, handed over, asked for, run.

use super::{Flow, Run};
use crate::plan::{Began, Todo};
use crate::replier::Halt;
use crate::subagent::Above;
use crate::tool::{Given, Out, Piece, Said, Tool, ToolError};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{
    Chunk, RequireExternalExecution, RequireUserConfirm, ToolResultDataDelta, ToolResultEnd,
    ToolResultStart, ToolResultTextDelta,
};
use turnwire_core::{DataBlock, Event, Fields, Part, Source, ToolCall, ToolResultState};

/// How much of what tools say may wait to be committed.
const WAITING: usize = 256;

/// A tool that has come to its end.
type Done = (String, Result<Given, ToolError>);

impl Run<'_> {
    /// Does what is to be done about calls. A person is asked first, and the client is handed what is
    /// its own, so that nobody waits for a tool that has nothing to do with it.
    pub(super) async fn work_on(&mut self, todos: Vec<(ToolCall, Todo)>) -> Result<Flow, Halt> {
        let mut events = Vec::new();
        let (mut asked, mut handed, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (mut call, todo) in todos {
            match todo {
                Todo::Refuse(state, why) => {
                    events.push(self.start_of(&call));
                    events.push(self.text_of(&call.id, why));
                    events.push(self.end_of(&call.id, state, Fields::default()));
                }
                Todo::Interrupt => {
                    let (_, result) =
                        self.reply.tool_calls().find(|(own, _)| own.id == call.id).unzip();
                    if let Some(result) = result.flatten() {
                        events.extend(crate::closing::interrupt(&self.reply, result));
                    }
                }
                Todo::AskFor(rules) => {
                    call.suggested_rules = rules;
                    asked.push(call);
                }
                // The result comes in one piece, with its own beginning.
                Todo::HandOver => handed.push(call),
                Todo::Run(began) => {
                    if began == Began::No {
                        events.push(self.start_of(&call));
                    }
                    runs.push(call);
                }
            }
        }
        let waits = !asked.is_empty() || !handed.is_empty();
        if !handed.is_empty() {
            events.push(self.event(RequireExternalExecution { tool_calls: handed }));
        }
        if !asked.is_empty() {
            events.push(self.event(RequireUserConfirm { tool_calls: asked }));
        }
        self.commit(events).await?;
        let flow = self.run_all(runs).await?;
        Ok(if waits { Flow::Wait } else { flow })
    }

    fn start_of(&self, call: &ToolCall) -> Event<'static> {
        let (tool_call_id, tool_call_name) = (call.id.clone().into(), call.name.clone().into());
        self.event(ToolResultStart { tool_call_id, tool_call_name })
    }

    fn text_of(&self, call_id: &str, text: String) -> Event<'static> {
        let (tool_call_id, delta) = (call_id.to_owned().into(), text.into());
        self.event(ToolResultTextDelta { tool_call_id, delta })
    }

    fn end_of(&self, call_id: &str, state: ToolResultState, metadata: Fields) -> Event<'static> {
        let mut event =
            self.event(ToolResultEnd { tool_call_id: call_id.to_owned().into(), state });
        event.metadata = metadata;
        event
    }

    /// Runs tools: those that may, beside each other. What they say is committed as it comes.
    async fn run_all(&mut self, calls: Vec<ToolCall>) -> Result<Flow, Halt> {
        if calls.is_empty() {
            return Ok(Flow::GoOn);
        }
        let (sender, mut pieces) = mpsc::channel(WAITING);
        let launch = Launch { sender, stop: self.turn.stop.clone(), above: Arc::new(self.above()) };
        let mut queue: VecDeque<(ToolCall, Arc<dyn Tool>)> = VecDeque::new();
        let mut running: JoinSet<Done> = JoinSet::new();
        for call in calls {
            let Some(tool) = self.tool(&call.name) else { continue };
            if tool.spec().concurrent {
                launch.start(&mut running, call, tool, self);
            } else {
                queue.push_back((call, tool));
            }
        }
        let mut flow = Flow::GoOn;
        // What is left behind by a tool that has ended says nothing more here.
        let mut over: HashSet<String> = HashSet::new();
        let stop = self.turn.stop.clone();
        // What is to become durable with the end of a result.
        let mut last: HashMap<String, Vec<Event<'static>>> = HashMap::new();
        // The tasks are ended when this set is dropped, however that comes about.
        loop {
            if running.is_empty() {
                let Some((call, tool)) = queue.pop_front() else { break };
                launch.start(&mut running, call, tool, self);
            }
            let (mut said, mut ended) = (Vec::new(), Vec::new());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Halt::Stopped),
                Some(piece) = pieces.recv() => said.push(piece),
                Some(done) = running.join_next() => ended.push(done),
            }
            // Those that have ended by now have said everything by now: it comes before their end. It
            // is among what waits now; what others say meanwhile can wait for its turn.
            while let Some(done) = running.try_join_next() {
                ended.push(done);
            }
            while said.len() <= WAITING
                && let Ok(piece) = pieces.try_recv()
            {
                said.push(piece);
            }
            let (mut events, mut told) = (Vec::new(), Vec::new());
            for Piece { call_id, said } in said {
                if over.contains(&call_id) {
                    continue;
                }
                match said {
                    Said::Text(text) => events.push(self.text_of(&call_id, text)),
                    Said::Part(part) => events.push(self.part_of(&call_id, *part)),
                    Said::Events(more, durable) => {
                        events.extend(more);
                        told.push(durable);
                    }
                    Said::Last(more) => last.entry(call_id).or_default().extend(more),
                }
            }
            for done in ended {
                match done {
                    Ok((_, Ok(Given::Waits))) => flow = Flow::Wait,
                    Ok((call, given)) => {
                        events.extend(last.remove(&call).unwrap_or_default());
                        events.extend(self.given(&call, given));
                        over.insert(call);
                    }
                    Err(error) => return Err(Halt::Failed(format!("a tool broke down: {error}"))),
                }
            }
            self.commit(events).await?;
            for durable in told {
                // Who does not wait for it any more was given up.
                let _ = durable.send(());
            }
        }
        Ok(flow)
    }

    /// What agents that work for this reply are told.
    fn above(&self) -> Above {
        Above {
            session_id: self.turn.session_id.clone(),
            name: self.core.name.clone(),
            depth: self.journal.depth(),
            rules: self.turn.rules.clone(),
            subs: self.turn.subs.clone(),
            input: self.turn.input.clone(),
            hints: self.journal.hints(),
        }
    }

    fn part_of(&self, call_id: &str, part: Part) -> Event<'static> {
        match part {
            Part::Text(block) => self.text_of(call_id, block.text),
            Part::Data(DataBlock { source, .. }) => {
                let (media_type, chunk) = match source {
                    Source::Base64(source) => (source.media_type, Chunk::Data(source.data.into())),
                    Source::Url(source) => (source.media_type, Chunk::Url(source.url.into())),
                    Source::Other(_) => (None, Chunk::Data(String::new().into())),
                };
                self.event(ToolResultDataDelta {
                    tool_call_id: call_id.to_owned().into(),
                    block_id: String::new().into(),
                    media_type,
                    chunk,
                })
            }
            _ => self.text_of(call_id, String::new()),
        }
    }

    /// What a tool gave at its end.
    fn given(&self, call_id: &str, given: Result<Given, ToolError>) -> Vec<Event<'static>> {
        let mut events = Vec::new();
        let state = match given {
            Ok(Given::Nothing | Given::Waits) => ToolResultState::Success,
            Ok(Given::Text(text)) => {
                if !text.is_empty() {
                    events.push(self.text_of(call_id, text));
                }
                ToolResultState::Success
            }
            Ok(Given::Parts(parts)) => {
                events.extend(parts.into_iter().map(|part| self.part_of(call_id, part)));
                ToolResultState::Success
            }
            Ok(Given::Background(note)) => {
                events.push(self.text_of(call_id, note));
                ToolResultState::Running
            }
            Err(error) => {
                events.push(self.text_of(call_id, error.message().to_owned()));
                ToolResultState::Error
            }
        };
        events.push(self.end_of(call_id, state, Fields::default()));
        events
    }
}

/// What every tool gets.
struct Launch {
    sender: mpsc::Sender<Piece>,
    stop: CancellationToken,
    above: Arc<Above>,
}

impl Launch {
    fn start(
        &self,
        running: &mut JoinSet<Done>,
        call: ToolCall,
        tool: Arc<dyn Tool>,
        run: &Run<'_>,
    ) {
        let (id, reply) = (call.id.clone(), &run.reply);
        // Calls stay where they are once they run, so this is the same after a crash.
        let place = reply.tool_calls().position(|(own, _)| own.id == id).unwrap_or_default();
        let out = Out {
            call_id: id.clone(),
            sender: self.sender.clone(),
            stop: self.stop.clone(),
            later: run.later(&call),
            above: self.above.clone(),
            sub_reply_id: format!("{}.{place}", reply.id()),
        };
        running.spawn(async move {
            let limit = tool.spec().time_limit;
            // A tool that panics is a tool that failed.
            let work = tokio::spawn(async move { tool.run(call, out).await });
            let mut work = AbortOnDrop(work);
            let done = match limit {
                None => (&mut work.0).await,
                Some(limit) => {
                    let Ok(done) = tokio::time::timeout(limit, &mut work.0).await else {
                        let why = format!("The call took longer than {limit:?} and was given up.");
                        return (id, Err(ToolError::new(why)));
                    };
                    done
                }
            };
            let broke = |_| Err(ToolError::new("The tool broke down."));
            (id, done.unwrap_or_else(broke))
        });
    }
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
