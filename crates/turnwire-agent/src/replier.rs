//! The trait: history, the partial reply and an input in; events out, committed through a journal.
//!
//! ```
//! use async_trait::async_trait;
//! use turnwire_agent::{Halt, Journal, Replier, Turn};
//! use turnwire_core::event::{ReplyEnd, ReplyStart, TextBlockDelta, TextBlockEnd, TextBlockStart};
//! use turnwire_core::{Event, EventKind, Fields, Role};
//!
//! /// Says what was said.
//! struct Echo;
//!
//! #[async_trait]
//! impl Replier for Echo {
//!     fn about(&self) -> &str {
//!         "Says what was said"
//!     }
//!
//!     fn model(&self) -> &str {
//!         "echo"
//!     }
//!
//!     async fn reply(&self, turn: Turn, journal: &mut dyn Journal) -> Result<(), Halt> {
//!         let heard = turn.history.last().and_then(|msg| msg.text("\n")).unwrap_or_default();
//!         let (session_id, id) = (turn.session_id, format!("{}-1", turn.reply_id));
//!         let block_id = || id.clone().into();
//!         let start = ReplyStart { session_id, name: "echo".to_owned(), role: Role::Assistant };
//!         let kinds: [EventKind<'_>; 5] = [
//!             start.into(),
//!             TextBlockStart { block_id: block_id() }.into(),
//!             TextBlockDelta { block_id: block_id(), delta: heard.into() }.into(),
//!             TextBlockEnd { block_id: block_id(), text: None, extra: Fields::default() }.into(),
//!             ReplyEnd::default().into(),
//!         ];
//!         // One commit: a crash leaves all of the reply or none, so there is nothing to go on from.
//!         let events = kinds.map(|kind| Event::new(turn.reply_id.clone(), kind));
//!         journal.commit(events.into()).await
//!     }
//! }
//! # struct Nowhere;
//! # #[async_trait]
//! # impl Journal for Nowhere {
//! #     async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), Halt> {
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
//! #     let turn = Turn {
//! #         session_id: "s".to_owned(),
//! #         reply_id: "r".to_owned(),
//! #         history: vec![turnwire_core::Msg::user("alice", "hi")],
//! #         partial: None,
//! #         calls: turnwire_core::ModelCalls::default(),
//! #         subs: Vec::new(),
//! #         rules: Vec::new(),
//! #         input: None,
//! #         stop: tokio_util::sync::CancellationToken::new(),
//! #     };
//! #     Echo.reply(turn, &mut Nowhere).await.unwrap();
//! # }
//! ```

use crate::hints::HintStore;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use turnwire_core::event::SubAgent;
use turnwire_core::{Event, ModelCalls, Msg, PermissionRule};

/// What an agent is asked to do: begin a reply, or go on with one.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The session.
    pub session_id: String,
    /// The reply: the id of the message that it becomes.
    pub reply_id: String,
    /// The conversation before this reply, without what was superseded. The last message is the one
    /// to answer.
    pub history: Vec<Msg>,
    /// The reply as the log has it. `None`: nothing of it was emitted yet.
    pub partial: Option<Msg>,
    /// How far its model calls have come.
    pub model_calls: ModelCalls,
    /// The replies of its sub-agents that are open.
    pub sub_replies: Vec<SubAgentReply>,
    /// Rules that people accepted in this session.
    pub accepted_rules: Vec<PermissionRule>,
    /// What it was waiting for: a `USER_CONFIRM_RESULT` or an `EXTERNAL_EXECUTION_RESULT` that is in
    /// the log, and in `partial`, already. `None` at the start, and after a restart.
    pub input: Option<Event<'static>>,
    /// Cancelled when the reply is to stop. An agent lets go of what it does; whoever called it
    /// closes the reply.
    pub stop: CancellationToken,
}

/// An open reply of a sub-agent.
#[derive(Debug, Clone)]
pub struct SubAgentReply {
    /// As far as it goes.
    pub msg: Msg,
    /// How far its model calls have come.
    pub model_calls: ModelCalls,
    /// Which sub-agent, and for which call it works.
    pub agent: SubAgent,
}

/// Where the events go.
#[async_trait]
pub trait Journal: Send {
    /// Appends events, all or none, and returns when they are durable. Ids and times are filled in
    /// where they are missing. An event whose id an open reply has already is a repeat: it is passed
    /// over, the others count. After an error nothing more can be committed: return it.
    async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError>;

    /// The reply as the log has it, and how far its model calls have come, where others have put hints
    /// into it since this was last asked. An agent that looks before it asks its model sends what the log
    /// has.
    async fn take_updates(&mut self) -> Result<Option<(Msg, ModelCalls)>, AgentError> {
        Ok(None)
    }

    /// Commits the end of the reply, unless there are [news](Self::take_updates) that nobody has read. Whether
    /// the reply has ended.
    async fn commit_end(&mut self, events: Vec<Event<'static>>) -> Result<bool, AgentError> {
        self.commit(events).await.map(|()| true)
    }

    /// Where hints of this session go that come late; `None`: the agent has a place for them.
    fn hints(&self) -> Option<Arc<dyn HintStore>> {
        None
    }

    /// Ids of calls that the session has used in messages that the turn's history does not have. A new
    /// call gets none of them.
    fn used_call_ids(&self) -> &[String] {
        &[]
    }

    /// How many agents stand above the one that writes here.
    fn sub_agent_depth(&self) -> u32 {
        0
    }
}

/// Why an agent cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentError {
    /// Somebody asked it to stop.
    Stopped,
    /// The session belongs to somebody else now, or the log cannot be written.
    LogLost(String),
    /// The agent itself failed, or emitted something that does not fit.
    Failed(String),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::LogLost(why) => write!(f, "the log was lost: {why}"),
            Self::Failed(why) => write!(f, "the agent failed: {why}"),
        }
    }
}

impl std::error::Error for AgentError {}

/// Something that replies.
#[async_trait]
pub trait Replier: Send + Sync + 'static {
    /// What it is, in a line for people.
    fn description(&self) -> &str;

    /// The model behind it, as `WIRE:MODEL`, or a word such as `demo`.
    fn model_name(&self) -> &str;

    /// Replies, or goes on replying. Returns when the reply has ended (a `REPLY_END` was committed),
    /// or when it waits (a `REQUIRE_…` was): then it is called again with the answer.
    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError>;
}
