#![cfg_attr(docsrs, feature(doc_cfg))]
// Our own enums are matched without `_`, so that the compiler finds the places for a new variant.
#![warn(clippy::wildcard_enum_match_arm)]
#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what is in it |
//! |---|---|
//! | [`log`] | all sessions over an engine: create, open, list, delete |
//! | [`session`] | one session: change it, read it, watch its head |
//! | [`loaded_session`] | the in-memory state of an open session, and transactions on it |
//! | [`cluster`] | the membership of this process in a cluster |
//! | [`store`] | the trait of engines, and the rows that they store |
//! | [`memory`] | the engine in memory |
//! | [`sqlite`] | the SQLite engine |
//! | [`postgres`] | the Postgres engine |
//! | [`mod@conformance`] | the tests that every engine must pass |
//! | [`search`] | search queries with limits |
//! | [`visible_sessions`] | which sessions of a tenant a caller may see |
//! | [`message_pages`] | all messages of a session, page by page |
//! | [`client_history`] | recognises a conversation that a client sends as its history |
//! | [`cost`] | cost of model calls, and usage totals |
//! | [`transfer`] | export and import as lines of JSON |
//! | [`mod@copy`] | copies all of a store to another engine, and compares the two |
//! | [`doctor`] | compares messages with their events, and repairs them |
//! | [`projection`] | the version of the fold in stored messages |
//! | [`fair_queue`] | a semaphore that is fair between tenants |
//! | [`private_file`] | files that only their owner may read |
//! | [`error`] | the errors |

pub mod client_history;
pub mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy;
pub mod cost;
pub mod doctor;
pub mod error;
pub mod fair_queue;
pub mod loaded_session;
pub mod log;
pub mod memory;
pub mod message_pages;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod private_file;
pub mod projection;
pub mod search;
pub mod session;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql_integers;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
mod tail_cache;
pub mod transfer;
pub mod visible_sessions;

pub use cost::Cost;
pub use error::{Error, Result};
pub use fair_queue::FairQueue;
pub use loaded_session::{HistoryInput, OpenReply, PendingCalls, PushOutcome, Transaction};
pub use log::Log;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use projection::FOLD_VERSION;
pub use search::SearchQuery;
pub use session::{HeadState, Receipt, RunningAppends, Session, Snapshot};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::Store;
pub use visible_sessions::{SessionPattern, VisibleSessions};
