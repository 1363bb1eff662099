//! A session in memory: a journal that folds strictly, and scripted answers to approvals and client-side calls.

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnwire_agent::{AgentError, DemoAgent, Journal, Replier, ReplyRequest};
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, UserConfirmResult};
use turnwire_core::{
    Event, EventKind, FixedStamp, Folder, Msg, Outcome, Stamp, ToolCall, ToolCallState, ToolResult,
};

pub const REPLY: &str = "reply";

/// The answer to approvals.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    Yes,
    Edit(&'static str),
    No,
}

/// The log of a session, and its commits.
#[derive(Default)]
pub struct Session {
    /// All events, without repeats.
    pub log: Vec<Event<'static>>,
    /// How many events each commit had.
    pub commits: Vec<usize>,
    /// How many deltas each commit had.
    pub deltas: Vec<usize>,
    pub folder: Folder,
    pub stamp: FixedStamp,
    pub stop: CancellationToken,
    /// The number of commits after which the reply is stopped.
    pub stop_after: Option<usize>,
    /// The number of commits after which appends fail.
    pub lose_after: Option<usize>,
    /// Whether repeats are detected only while the reply is open.
    pub forgets_ended_replies: bool,
}

#[async_trait]
impl Journal for Session {
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
        if self.lose_after == Some(self.commits.len()) {
            return Err(AgentError::LogLost("gone".to_owned()));
        }
        let is_delta = |event: &&Event<'_>| event.kind.type_name().ends_with("_DELTA");
        self.commits.push(events.len());
        self.deltas.push(events.iter().filter(is_delta).count());
        for event in events {
            self.push(event);
        }
        if self.stop_after == Some(self.commits.len()) {
            self.stop.cancel();
        }
        Ok(())
    }
}

impl Session {
    /// A session with these events in its log.
    pub fn with_log(log: &[Event<'static>]) -> Self {
        let mut session = Self::default();
        for event in log {
            session.push(event.clone());
            // New ids must differ from those in the log.
            session.stamp.id();
        }
        session
    }

    /// Appends an event as the log does: read from its JSON, folded strictly, a repeat left out.
    pub fn push(&mut self, event: Event<'static>) {
        let line = event.stamped(&self.stamp).to_json();
        let event = Event::from_json(&line).unwrap().into_owned();
        let ended = self.folder.get(&event.reply_id).is_some_and(|msg| msg.finished_at().is_some());
        assert!(!(self.forgets_ended_replies && ended), "the reply has ended: {line}");
        let outcome = self.folder.push(&event).unwrap_or_else(|error| panic!("{error}: {line}"));
        if outcome != Outcome::Repeated {
            self.log.push(event);
        }
    }

    /// The folded reply, through its JSON.
    pub fn partial(&self) -> Option<Msg> {
        self.folder.get(REPLY).map(|msg| Msg::from_json(&msg.to_json()).unwrap())
    }

    pub fn message(&self) -> &Msg {
        self.folder.get(REPLY).unwrap()
    }

    pub fn messages(&self) -> Vec<Msg> {
        self.folder.messages().cloned().collect()
    }

    /// The events without ids and timestamps.
    pub fn story(&self) -> Vec<EventKind<'static>> {
        self.log.iter().map(|event| event.kind.clone()).collect()
    }

    /// Runs the agent once.
    pub async fn call(&mut self, demo: &DemoAgent, question: &str) -> Result<(), AgentError> {
        let request = ReplyRequest {
            partial: self.partial(),
            input: self.log.last().filter(|event| is_answer(event)).cloned(),
            stop: self.stop.clone(),
            ..ReplyRequest::new("session", REPLY, history(question))
        };
        demo.run(request, self).await
    }

    /// Runs the agent until the reply has ended, and answers its pending calls.
    pub async fn play(&mut self, demo: &DemoAgent, question: &str, answer: Answer) {
        for _ in 0..5 {
            self.call(demo, question).await.unwrap();
            let partial = self.partial().unwrap();
            if partial.finished_at().is_some() {
                return;
            }
            let waiting = partial.blocks::<ToolCall>().find_map(|call| reaction(call, answer));
            self.push(waiting.unwrap_or_else(|| panic!("it neither ends nor waits: {partial:?}")));
        }
        panic!("it asks again and again");
    }
}

pub fn history(question: &str) -> Vec<Msg> {
    vec![
        Msg::user("alice", "json please, weather too"),
        Msg::assistant("demo", "an earlier answer"),
        Msg::user("alice", question),
    ]
}

fn is_answer(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::UserConfirmResult(_) | EventKind::ExternalExecutionResult(_))
}

fn reaction(call: &ToolCall, answer: Answer) -> Option<Event<'static>> {
    match call.state {
        ToolCallState::Asking => {
            let input = match answer {
                Answer::Edit(input) => input,
                Answer::Yes | Answer::No => "",
            };
            let result = ConfirmResult {
                confirmed: !matches!(answer, Answer::No),
                tool_call: ToolCall::new(call.id.clone(), call.name.clone(), input),
                ..ConfirmResult::default()
            };
            Some(Event::new(REPLY, UserConfirmResult { confirm_results: vec![result] }))
        }
        ToolCallState::Submitted => {
            let result = match answer {
                Answer::Yes | Answer::Edit(_) => ToolResult::success(&*call.id, "A quiet page."),
                Answer::No => ToolResult::error(&*call.id, "no network"),
            };
            Some(Event::new(REPLY, ExternalExecutionResult { execution_results: vec![result] }))
        }
        _ => None,
    }
}

/// Runs a whole reply without pauses.
pub async fn play_scene(question: &str, answer: Answer) -> Session {
    let mut session = Session::default();
    session.play(&DemoAgent::with_rate(0.0), question, answer).await;
    session
}
