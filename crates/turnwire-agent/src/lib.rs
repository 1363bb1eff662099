//! Agents: the agent loop, tools, permission rules, models, MCP, and the offline `demo` agent.
//!
//! [`Agent`] runs a model with tools; [`Replier`] is the trait for agents that need another loop. A replier
//! gets a [`ReplyRequest`] and emits events through a [`Journal`]. A commit returns when its events are
//! durable, so a crash cannot take back what an agent acted on. An agent keeps no state between calls: a
//! reply that waits for a user, or whose process died, continues from the log alone.
//!
//! ```
//! use async_trait::async_trait;
//! use turnwire_agent::{AgentError, DemoAgent, Journal, Replier, ReplyRequest};
//! use turnwire_core::{Event, Folder, Msg};
//!
//! /// Folds events into messages.
//! #[derive(Default)]
//! struct InMemoryJournal(Folder);
//!
//! #[async_trait]
//! impl Journal for InMemoryJournal {
//!     async fn commit(&mut self, events: Vec<Event<'static>>) -> Result<(), AgentError> {
//!         for event in events {
//!             self.0.push(&event).map_err(|error| AgentError::Failed(error.to_string()))?;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), AgentError> {
//! let mut journal = InMemoryJournal::default();
//! let request = ReplyRequest::new("s", "r", vec![Msg::user("alice", "How is the weather?")]);
//! DemoAgent::with_rate(0.0).run(request, &mut journal).await?;
//!
//! let reply = journal.0.get("r").unwrap();
//! assert!(reply.text("").unwrap().contains("18 °C"));
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`agent`] | build an agent and call it |
//! | [`conversation`] | a conversation with an agent, in memory |
//! | [`plan`], `agent_loop` | the loop: the next step, computed from the log alone; and executing it |
//! | [`model`], [`tool`], [`permission`] | models, tools, permission rules |
//! | [`mcp`] | tools of MCP servers (feature `mcp`) |
//! | [`sub_agent`] | an agent as a tool of another agent |
//! | [`structured`] | answers that match a JSON Schema |
//! | [`schema`] | JSON Schemas of clients, compiled and checked within limits |
//! | [`middleware`] | hooks around the model, the tools and the events |
//! | [`hints`] | notes for a running reply |
//! | [`compaction`] | conversations longer than the context window |
//! | [`replier`] | the traits between the server and an agent |
//! | [`demo`] | the offline agent: no key, no network |
//! | [`client_context`] | the tools and context that a client sends with a message |
//! | [`http1`] | HTTP/1.1 responses: head and body framing |
//! | [`http_client`] | the HTTP client for MCP servers and links, and the TLS settings |
//! | [`fn@close_reply`] | ending a reply that cannot continue |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod agent;
mod agent_loop;
mod call_ids;
pub mod client_context;
mod client_options;
mod close_reply;
pub mod compaction;
mod config;
pub mod conversation;
pub mod demo;
pub mod hints;
#[cfg(feature = "http")]
pub mod http1;
#[cfg(any(feature = "http", feature = "mcp"))]
pub mod http_client;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod middleware;
pub mod model;
pub mod permission;
mod places;
pub mod plan;
pub mod replier;
mod request_metadata;
pub mod schema;
pub mod sent_history;
pub mod structured;
pub mod sub_agent;
pub mod tool;
mod tool_names;
mod truncate;

pub use agent::{Agent, AgentBuilder, CallError};
pub use call_ids::{is_random_id, tool_call_ids};
pub use client_context::{ClientContext, ClientTool, SystemMessage};
pub use client_options::ClientOptions;
pub use close_reply::close_reply;
pub use conversation::Conversation;
pub use demo::DemoAgent;
#[cfg(feature = "mcp")]
pub use mcp::McpServer;
pub use model::Model;
#[cfg(feature = "http")]
pub use model::http::HttpModel;
pub use replier::{AgentError, Journal, Replier, ReplyRequest, SubAgentReply, Summary};
pub use sent_history::{SentAnswer, SentHistory};
pub use sub_agent::AgentTool;
pub use tool::{Tool, ToolContext, ToolError, ToolOutput, function};
pub use truncate::RESULT_LIMIT;
// What the methods of an agent take and return, so that a program needs no other crate of Turnwire.
pub use turnwire_core::{
    Behavior, ContentBlock, Event, EventKind, FinishedReason, Folder, Json, Msg, Role, ToolCall,
    ToolResult,
};
