//! What processes need that use one store together. [`cluster`](crate::cluster) calls it.
//!
//! A node is one run of a process. It has a lease, which it renews. A session belongs to the node that
//! [acquired](super::Store::acquire_lease) it, until that node is declared dead. Only a node whose lease has expired
//! can be declared dead, and a dead node stays dead: it cannot renew its lease and joins again under another id. So a
//! node whose lease is valid can trust what it has in memory of its sessions, and a node that was declared dead loses
//! all of them at once. All times are measured by the clock of the store.

use super::{Fence, SessionNumber, SessionRecord, SessionStatus};
use crate::error::Result;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use turnwire_core::Head;

/// One run of a process that uses the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Random, and another one for each run.
    pub id: String,
    /// Where other nodes reach it: `HOST:PORT`. Empty if it takes no requests of other nodes.
    #[serde(default)]
    pub address: String,
    /// The SHA-256 of its certificate, in hexadecimal digits. Empty: it speaks plain HTTP.
    #[serde(default)]
    pub certificate: String,
    /// What two nodes have in common that share their network addresses, such as loopback. Empty if unknown.
    #[serde(default)]
    pub host: String,
    /// A digest of its settings. Nodes with other settings behave differently.
    #[serde(default)]
    pub settings: String,
    /// Its version of Turnwire.
    #[serde(default)]
    pub version: String,
}

/// A node that has not been declared dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// The node.
    pub node: Node,
    /// Whether its lease has expired, so that it can be declared dead.
    pub has_expired: bool,
}

/// What a node learns when it renews its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// All nodes that were not declared dead.
    pub nodes: Vec<NodeState>,
    /// The clock of the store, in milliseconds since 1970.
    pub now_ms: i64,
}

/// Where the log of a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHead {
    /// The session.
    pub session: SessionNumber,
    /// The seq of its last event.
    pub head: Head,
    /// What the session is doing there.
    pub status: SessionStatus,
}

/// The part of a store that nodes need.
#[async_trait]
pub trait ClusterStore: Send + Sync {
    /// Adds a node, with a lease of this time.
    async fn join(&self, node: &Node, ttl: Duration) -> Result<()>;

    /// Extends the lease of a node, and lists all nodes that were not declared dead. `Fenced` if this one was.
    async fn renew(&self, node: &str, ttl: Duration) -> Result<Renewed>;

    /// Declares a node dead if its lease has expired. Returns whether it is dead now.
    async fn declare_dead(&self, node: &str) -> Result<bool>;

    /// Declares a node dead that has ended, or is about to: the process itself does this when it stops, or one that
    /// knows for certain that the process is gone.
    async fn remove_node(&self, node: &str) -> Result<()>;

    /// The address of this machine from which it reaches the store; other nodes probably reach it there. `None` if the store
    /// is on this machine, or the address is unknown.
    fn local_address(&self) -> Option<IpAddr>;

    /// A secret that all nodes share.
    async fn secret(&self) -> Result<Vec<u8>>;

    /// Gives up sessions, unless another owner has them already.
    async fn release_leases(&self, leases: &[(SessionNumber, Fence)]) -> Result<()>;

    /// The heads of those sessions that exist.
    async fn list_heads(&self, sessions: &[SessionNumber]) -> Result<Vec<SessionHead>>;

    /// Lists sessions with an open reply or a queued message that belong to no living node, in order of creation,
    /// after one of them (`SessionNumber(0)`: from the first). A fork in progress is listed only if its owner is dead.
    async fn list_orphans(&self, after: SessionNumber, limit: usize) -> Result<Vec<SessionRecord>>;

    /// Takes a task that one node at a time does, for some time. Returns whether the node has it now.
    async fn claim_task(&self, task: &str, node: &str, ttl: Duration) -> Result<bool>;

    /// Stores a value that can be taken once, for some time. Returns whether there was room: at most about `max` values wait.
    async fn put_once(&self, key: &str, value: &str, ttl: Duration, max: usize) -> Result<bool>;

    /// Takes such a value. `None` if it was taken, or its time is over.
    async fn take_once(&self, key: &str) -> Result<Option<String>>;
}
