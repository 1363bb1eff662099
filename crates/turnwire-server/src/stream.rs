//! Events on their way out.
//!
//! A watcher has a place in the log of its own, and reads on from there. Far behind, it reads the
//! log (`backlog`); near the end it takes what was encoded once for all who watch the same session in
//! the same shape (`feed`). A hint that there is more carries nothing, so a lost one costs time and
//! no event; and a watcher that does not read costs no memory.
//!
//! The answer to a request in another protocol is about one reply only, and in its client's words: a
//! [`Follow`].

mod backlog;
mod cache;
mod feed;
mod follow;
mod token;
mod watcher;
mod whose;
mod writer;

pub use cache::BacklogCache;
pub use feed::Feeds;
pub use follow::{ReplyPosition, AnswerEnd, ReplyStream, NextFrames, PausePolicy, SERVER_STOPPING, ReplyStreamOptions};
pub use token::{ResumePoint, resolve_token};
pub use watcher::{StreamContext, StartPosition, EndCondition, Subscriber};
pub use writer::{Framing, Merge, StreamFormat};
