//! The durable log of sessions.
//!
//! | module | what is in it |
//! |---|---|
//! | [`store`] | what an engine does |
//! | [`memory`] | an engine that forgets everything when it ends |
//! | [`sqlite`] | an engine in one file |
//! | [`log`] | all sessions over an engine |
//! | [`session`] | one session: change it, read it, wait for more |
//! | [`transfer`] | sessions as lines of JSON, out and in |
//! | [`doctor`] | whether messages are what their events say |
//! | [`private_file`] | files that only their owner may read |
//! | [`reach`] | which sessions of a tenant a caller may see |
//! | [`search`] | what people search for, with bounds |
//! | [`walk`] | all messages, some at a time |
//! | [`fair_queue`] | limits at once that stay fair between tenants |
//! | [`live`] | what is known of a session while it is used |
//! | [`mod@conformance`] | the tests that every engine must pass |
//! | [`error`] | what can go wrong |

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod cost;
pub mod doctor;
pub mod error;
pub mod fair_queue;
pub mod loaded_session;
pub mod log;
pub mod memory;
pub mod message_pages;
pub mod private_file;
pub mod projection;
pub mod search;
pub mod session;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
mod tail_cache;
pub mod transfer;
pub mod visible_sessions;

pub use cost::Cost;
pub use error::{Error, Result};
pub use fair_queue::FairQueue;
pub use loaded_session::{OpenReply, PendingCalls, PushOutcome, Transaction};
pub use log::Log;
pub use memory::MemoryStore;
pub use projection::FOLD_VERSION;
pub use search::SearchQuery;
pub use session::{HeadState, Receipt, Session, Snapshot};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::Store;
pub use visible_sessions::{SessionPattern, VisibleSessions};
