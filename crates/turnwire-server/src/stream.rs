//! Streams events to clients.
//!
//! Each client is a [`Subscriber`] with its own cursor in the log. One that is far behind reads the log (`backlog`);
//! near the head it takes what was encoded once for all subscribers of the session with the same format (`feed`). A
//! wake-up carries no event, so a lost one costs time and nothing else; and a client that does not read costs no memory.
//!
//! | module | content |
//! |---|---|
//! | `subscriber` | the loop of every stream: cursor, wait, read, heartbeat, end |
//! | `session_source` | what a subscriber of a session gets |
//! | `reply_source` | the response to one request, in the client's protocol |
//! | `frame_id` | the ids of its frames |
//! | `held_call` | leaves out what is discarded later |
//! | `pending_calls` | which pending calls a model client has to execute |
//! | `feed`, `backlog`, `backlog_cache` | encoded events that subscribers share |
//! | `writer` | events to bytes |
//! | `snapshot` | the messages as of a cursor |
//! | `resume_token` | `EPOCH.SEQ` |
//! | `sse_response` | the HTTP response of a subscriber |

mod backlog;
mod backlog_cache;
mod feed;
mod frame_id;
mod held_call;
mod pending_calls;
mod reply_source;
mod resume_token;
mod session_source;
mod snapshot;
mod sse_response;
mod subscriber;
mod writer;

pub use backlog_cache::BacklogCache;
pub use feed::Feeds;
pub(crate) use frame_id::{FrameId, ResponseKey, SEPARATOR};
pub use reply_source::{
    CollectedAnswer, PausePolicy, ReplyPosition, ReplySource, ReplyStreamOptions, ReplySubscriber,
    SERVER_STOPPING,
};
pub(crate) use resume_token::token_cursor;
pub use resume_token::{ResumePoint, resolve_token};
pub use session_source::{EndCondition, SessionSource, SessionSubscriber, StartPosition};
pub(crate) use snapshot::{finished_messages_as_of, parse_message};
pub(crate) use sse_response::{sse_response, sse_response_with};
pub use subscriber::{StreamContext, Subscriber};
pub(crate) use writer::write_socket_frame;
pub use writer::{Framing, Merge, StreamFormat};
