//! The traits between the server and an agent: a [`Replier`] gets a [`ReplyRequest`] and commits events
//! through a [`Journal`].
//!
//! ```
//! use async_trait::async_trait;
//! use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest};
//! use turnwire_core::event::{ReplyEnd, ReplyStart, TextBlockDelta, TextBlockEnd, TextBlockStart};
//! use turnwire_core::{Event, EventKind, Fields, Role};
//!
//! /// Repeats the user's message.
//! struct Echo;
//!
//! #[async_trait]
//! impl Replier for Echo {
//!     fn description(&self) -> &str {
//!         "Repeats your message"
//!     }
//!
//!     fn model_name(&self) -> &str {
//!         "echo"
//!     }
//!
//!     async fn run(
//!         &self,
//!         request: ReplyRequest,
//!         journal: &mut dyn Journal,
//!     ) -> Result<(), AgentError> {
//!         let text = request.history.last().and_then(|msg| msg.text("\n")).unwrap_or_default();
//!         let (session_id, id) = (request.session_id, format!("{}-1", request.reply_id));
//!         let block_id = || id.clone().into();
//!         let start = ReplyStart { session_id, name: "echo".to_owned(), role: Role::Assistant };
//!         let kinds: [EventKind<'_>; 5] = [
//!             start.into(),
//!             TextBlockStart { block_id: block_id() }.into(),
//!             TextBlockDelta { block_id: block_id(), delta: text.into() }.into(),
//!             TextBlockEnd { block_id: block_id(), text: None, extra: Fields::default() }.into(),
//!             ReplyEnd::default().into(),
//!         ];
//!         // One commit: a crash leaves all of the reply or nothing, so there is nothing to continue.
//!         let events = kinds.map(|kind| Event::new(request.reply_id.clone(), kind));
//!         journal.commit(events.into()).await
//!     }
//! }
//! # struct CheckingJournal;
//! # #[async_trait]
//! # impl Journal for CheckingJournal {
//! #     async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
//! #         let mut msg = turnwire_core::Msg::reply("r", "");
//! #         for event in &events {
//! #             msg.append_event(event).unwrap();
//! #         }
//! #         assert_eq!(msg.text("").as_deref(), Some("hi"));
//! #         Ok(())
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! #     let history = vec![turnwire_core::Msg::user("alice", "hi")];
//! #     Echo.run(ReplyRequest::new("s", "r", history), &mut CheckingJournal).await.unwrap();
//! # }
//! ```

use crate::client_context::ClientContext;
use crate::hints::HintStore;
use async_trait::async_trait;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::{SubAgent, TokenCounts};
use turnwire_core::{Event, ModelCalls, Msg, PermissionRule};
use turnwire_wires::model_request::ToolKind;
use turnwire_wires::{ModelOption, ModelOptions, check_file_references};

/// A request to start a reply or to continue one.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The session.
    pub session_id: String,
    /// The id of the reply, and of the message that it becomes.
    pub reply_id: String,
    /// The conversation before this reply, without replaced messages. The last message is the one to
    /// answer.
    pub history: Vec<Msg>,
    /// The reply as it is in the log. `None`: it has no events yet.
    pub partial: Option<Msg>,
    /// The progress of its model calls.
    pub model_calls: ModelCalls,
    /// The open replies of its sub-agents.
    pub sub_replies: Vec<SubAgentReply>,
    /// Rules that users accepted in this session.
    pub accepted_rules: Vec<PermissionRule>,
    /// What the reply waited for: a `USER_CONFIRM_RESULT` or an `EXTERNAL_EXECUTION_RESULT`. It is in the
    /// log and in `partial` already. `None` at the start, and after a restart.
    pub input: Option<Event<'static>>,
    /// Cancelled to stop the reply. The agent then returns; its caller closes the reply.
    pub stop: CancellationToken,
}

impl ReplyRequest {
    /// A request to start a new reply. Set the other fields to continue one:
    /// `ReplyRequest { partial, ..ReplyRequest::new(…) }`.
    pub fn new(
        session_id: impl Into<String>,
        reply_id: impl Into<String>,
        history: Vec<Msg>,
    ) -> Self {
        Self {
            session_id: session_id.into(),
            reply_id: reply_id.into(),
            history,
            partial: None,
            model_calls: ModelCalls::default(),
            sub_replies: Vec::new(),
            accepted_rules: Vec::new(),
            input: None,
            stop: CancellationToken::new(),
        }
    }
}

/// An open reply of a sub-agent.
#[derive(Debug, Clone)]
pub struct SubAgentReply {
    /// The message so far.
    pub msg: Msg,
    /// The progress of its model calls.
    pub model_calls: ModelCalls,
    /// Which sub-agent it is, and the call it works for.
    pub agent: SubAgent,
}

/// Makes the events of a reply durable.
#[async_trait]
pub trait Journal: Send {
    /// Appends events, all or none, and returns when they are durable. Fills in missing ids and times.
    /// Skips an event whose id is already in an open reply. After an error nothing more can be committed:
    /// return the error.
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError>;

    /// The reply and the progress of its model calls, if others added hints to it since the last call.
    /// An agent that takes updates before each model call sends the model what is in the log.
    async fn take_updates(&mut self) -> Result<Option<(Msg, ModelCalls)>, AgentError> {
        Ok(None)
    }

    /// Commits the end of the reply, unless there are new [updates](Self::take_updates). Returns whether
    /// the reply has ended.
    async fn commit_end(&mut self, events: Vec<Event<'static>>) -> Result<bool, AgentError> {
        self.commit(events).await.map(|()| true)
    }

    /// The store for hints of this session. `None`: the agent's own store.
    fn hints(&self) -> Option<Arc<dyn HintStore>> {
        None
    }

    /// Call ids that the session used in messages outside the request's history. New calls get other
    /// ids.
    fn used_call_ids(&self) -> &[String] {
        &[]
    }

    /// The number of agents above this one: 0 for the agent of the session.
    fn sub_agent_depth(&self) -> u32 {
        0
    }
}

/// A summary of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The summary.
    pub text: String,
    /// What it cost.
    pub usage: TokenCounts,
}

/// Why an agent cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The reply was stopped.
    #[error("stopped")]
    Stopped,
    /// The log cannot be written, or another process owns the session now.
    #[error("the log cannot be written: {0}")]
    LogLost(String),
    /// The agent failed, or emitted an invalid event.
    #[error("the agent failed: {0}")]
    Failed(String),
}

/// An agent as the server sees it: replies to messages. [`Agent`](crate::Agent) implements it.
#[async_trait]
pub trait Replier: Send + Sync + 'static {
    /// A one-line description for people.
    fn description(&self) -> &str;

    /// The name of its model: `WIRE:MODEL`, or a word such as `demo`.
    fn model_name(&self) -> &str;

    /// What the agent cannot use at the moment, such as an MCP server that is down: a sentence each. It replies all the
    /// same.
    fn unavailable(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks what a client sends along with its message: an error if the answer would be wrong without it, such as a
    /// tool choice that the model cannot be given. Returns the names of options and tools that have no effect.
    fn check_client(&self, client: &ClientContext) -> Result<Vec<String>, String> {
        let options = client.options();
        let checked = options.check_answer("", &ModelOptions::default());
        checked.map_err(|error| error.message().to_owned())?;
        let set =
            ModelOption::ALL.iter().copied().filter(|option| options.differs_from_default(*option));
        // The form of the answer is every agent's own matter.
        let set = set.filter(|option| *option != ModelOption::ResponseFormat);
        let set = set.map(|option| options.client_name(option).to_owned());
        let hosted = client.tools.iter().filter(|tool| tool.kind == ToolKind::Hosted);
        Ok(set.chain(hosted.map(|tool| format!("tools.{}", tool.name))).collect())
    }

    /// Checks the content of the messages that a client sends: an error if the answer would be wrong without a part of it.
    /// Returns the kinds of content that have no effect, such as `content.audio`.
    fn check_content(&self, messages: &[Msg]) -> Result<Vec<String>, String> {
        check_file_references("", messages).map_err(|error| error.message().to_owned())?;
        Ok(Vec::new())
    }

    /// Summarizes a conversation, for a client that continues with the summary. `None`: this agent cannot.
    async fn summarize(&self, _conversation: &[Msg]) -> Result<Option<Summary>, AgentError> {
        Ok(None)
    }

    /// Starts or continues a reply. Returns after it committed a `REPLY_END`, or a `REQUIRE_…` event: then
    /// it is called again with the answer.
    async fn run(&self, request: ReplyRequest, journal: &mut dyn Journal)
    -> Result<(), AgentError>;
}
