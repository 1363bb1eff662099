//! Events on their way out.
//!
//! A watcher has a place in the log of its own, and reads on from there. Far behind, it reads the
//! log (`backlog`); near the end it takes what was encoded once for all who watch the same session in
//! the same shape (`feed`). A hint that there is more carries nothing, so a lost one costs time and
//! no event; and a watcher that does not read costs no memory.
//!
//! The answer to a request in another protocol is about one reply only, and in its client's words: a
//! [`ReplyStream`].

mod backlog;
mod backlog_cache;
mod feed;
mod pending_calls;
mod reply_stream;
mod resume_token;
mod subscriber;
mod writer;

pub use backlog_cache::BacklogCache;
pub use feed::Feeds;
pub use reply_stream::{
    AnswerEnd, NextFrames, PausePolicy, ReplyPosition, ReplyStream, ReplyStreamOptions,
    SERVER_STOPPING,
};
pub use resume_token::{ResumePoint, resolve_token};
pub use subscriber::{EndCondition, StartPosition, StreamContext, Subscriber};
pub use writer::{Framing, Merge, StreamFormat};
