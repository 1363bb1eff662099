//! What an agent is to Turnwire, and the offline `demo`.
//!
//! An agent is handed a [`ReplyRequest`], and emits events through a [`Journal`]: each commit returns when
//! its events are durable, so whatever an agent does after it cannot be taken back by a crash. It
//! keeps nothing between two calls. A reply that waits for a person, or whose process died, goes on
//! from what the log has.
//!
//! ```
//! use async_trait::async_trait;
//! use tokio_util::sync::CancellationToken;
//! use turnwire_agent::{Demo, Halt, Journal, Replier, Turn};
//! use turnwire_core::{Event, Folder, ModelCalls, Msg};
//!
//! /// Keeps the events, and folds them into messages.
//! #[derive(Default)]
//! struct Memory {
//!     events: Vec<Event<'static>>,
//!     folder: Folder,
//! }
//!
//! #[async_trait]
//! impl Journal for Memory {
//!     async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), Halt> {
//!         for event in events {
//!             self.folder.push(&event).map_err(|error| Halt::Failed(error.to_string()))?;
//!             self.events.push(event);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Halt> {
//! let mut journal = Memory::default();
//! let turn = Turn {
//!     session_id: "s".to_owned(),
//!     reply_id: "r".to_owned(),
//!     history: vec![Msg::user("alice", "How is the weather?")],
//!     partial: None,
//!     calls: ModelCalls::default(),
//!     subs: Vec::new(),
//!     rules: Vec::new(),
//!     input: None,
//!     stop: CancellationToken::new(),
//! };
//! Demo::with_rate(0.0).reply(turn, &mut journal).await?;
//!
//! let reply = journal.folder.get("r").unwrap();
//! assert!(reply.text("").unwrap().contains("18 °C"));
//! assert_eq!(journal.events.last().unwrap().kind.type_name(), "REPLY_END");
//! # Ok(())
//! # }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`agent`] | an agent of your own |
//! | [`conversation`] | a conversation with it, in memory |
//! | [`plan`], `run` | the loop: what to do next, from the log alone; and doing it |
//! | [`model`], [`tool`], [`permission`] | what it asks, what it can do, what it may do |
//! | [`mcp`] | tools of MCP servers |
//! | [`sub_agent`] | an agent as a tool of another |
//! | [`structured`] | answers that have a form |
//! | [`schema`] | JSON Schemas from outside, compiled and checked within bounds |
//! | [`middleware`] | what stands around the model, the tools and the events |
//! | [`hints`] | what a reply is told from outside |
//! | [`compaction`] | conversations that are longer than the model's window |
//! | [`replier`] | what anything that replies is to the server |
//! | [`demo`] | the agent that needs no key and no network |
//! | [`client_context`] | what a client brings to a turn beside its words |
//! | [`http_client`] | the HTTP client that MCP servers and links are asked with |
//! | [`fn@close_reply`] | ending a reply that cannot go on |

pub mod agent;
mod agent_loop;
mod call_ids;
pub mod client_context;
mod close_reply;
pub mod compaction;
mod config;
pub mod conversation;
pub mod demo;
pub mod hints;
pub mod http_client;
pub mod mcp;
pub mod middleware;
pub mod model;
pub mod permission;
pub mod plan;
pub mod replier;
pub mod schema;
pub mod structured;
pub mod sub_agent;
pub mod tool;
mod tool_names;
mod truncate;

pub use agent::{Agent, AgentBuilder};
pub use call_ids::{is_random_id, tool_call_ids};
pub use client_context::{ClientContext, ClientTool};
pub use close_reply::close_reply;
pub use conversation::Conversation;
pub use demo::DemoAgent;
pub use mcp::McpServer;
pub use replier::{AgentError, Journal, Replier, ReplyRequest, SubAgentReply};
pub use sub_agent::AgentTool;
pub use truncate::RESULT_LIMIT;
