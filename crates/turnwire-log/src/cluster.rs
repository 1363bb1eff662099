//! Membership of this process in a cluster: the node that it is, its lease, and the other nodes.
//!
//! The server joins when it starts and calls [`Cluster::renew`] again and again. [`NodeLease`] answers whether what this
//! process has in memory of its sessions is certainly the latest state: [`Session`](crate::Session) asks it before it
//! answers from memory. See [`store::cluster`](crate::store::cluster) for the rules.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use turnwire_log::cluster::Cluster;
//! use turnwire_log::store::{Store, cluster::Node};
//! use turnwire_log::{Log, PostgresStore};
//!
//! # async fn example() -> turnwire_log::Result<()> {
//! let store: Arc<dyn Store> = Arc::new(PostgresStore::open("postgres://localhost/turnwire").await?);
//! let cluster = Cluster::join(store.clone(), Node::default(), Duration::from_secs(10)).await?;
//! let log = Log::in_cluster(store, cluster.lease().clone());
//! // Several times in each 10 seconds:
//! cluster.renew().await?;
//! # Ok(())
//! # }
//! ```

mod clock;
mod node_lease;

pub use node_lease::NodeLease;

use crate::error::{Error, Result};
use crate::store::cluster::{ClusterStore, Node};
use crate::store::{Store, new_epoch};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// The membership of this process.
pub struct Cluster {
    store: Arc<dyn Store>,
    lease: Arc<NodeLease>,
    ttl: Duration,
    /// This node. Its id changes if it was declared dead.
    node: Mutex<Node>,
    /// The other nodes that are alive.
    peers: watch::Sender<Vec<Node>>,
    /// Since when the lease has been valid without a gap.
    valid_since: Mutex<Instant>,
}

/// What a renewal found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewal {
    /// How many nodes this one has declared dead: their sessions are free.
    pub deaths: usize,
    /// Whether this node was declared dead, and has joined again.
    pub has_rejoined: bool,
}

impl Cluster {
    /// Joins the nodes of a store. The id of `node` is chosen here.
    pub async fn join(store: Arc<dyn Store>, node: Node, ttl: Duration) -> Result<Arc<Self>> {
        let node = Node { id: new_epoch()?, ..node };
        let sent_at = Instant::now();
        shared_part(&*store)?.join(&node, ttl).await?;
        let lease = NodeLease::renewable(&node.id);
        lease.extend(sent_at + ttl);
        // What time it is; if that fails, the first renewal learns it.
        let sent = Instant::now();
        if let Ok(renewed) = shared_part(&*store)?.renew(&node.id, ttl).await {
            clock::agree(renewed.now_ms, sent.elapsed());
        }
        Ok(Arc::new(Self {
            store,
            lease: Arc::new(lease),
            ttl,
            node: Mutex::new(node),
            peers: watch::Sender::default(),
            valid_since: Mutex::new(sent_at),
        }))
    }

    /// The lease of this node.
    pub fn lease(&self) -> &Arc<NodeLease> {
        &self.lease
    }

    /// How long a lease is valid without renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// This node.
    pub fn node(&self) -> Node {
        self.node.lock().clone()
    }

    /// The other nodes that are alive, as far as known.
    pub fn peers(&self) -> watch::Receiver<Vec<Node>> {
        self.peers.subscribe()
    }

    /// The part of the store that nodes share.
    pub fn store(&self) -> Result<&dyn ClusterStore> {
        shared_part(&*self.store)
    }

    /// Extends the lease, and declares nodes dead whose lease has expired. If this node was declared dead, it joins again
    /// under another id, and has lost all its sessions.
    ///
    /// After a time in which the database was away, all leases have expired. So a node declares others dead only if
    /// its own lease has been valid without a gap for as long as a lease lasts: then the others had time to renew theirs.
    pub async fn renew(&self) -> Result<Renewal> {
        let store = self.store()?;
        let node = self.node();
        let sent_at = Instant::now();
        // A connection that hangs must not cost the lease: the next attempt gets another one.
        let renewed = timeout(self.ttl / 3, store.renew(&node.id, self.ttl)).await;
        let late = |_| Error::Store("the database did not answer in time".to_owned());
        let renewed = match renewed.map_err(late)? {
            Err(Error::Fenced) => {
                self.rejoin(store, node).await?;
                return Ok(Renewal { has_rejoined: true, deaths: 0 });
            }
            renewed => renewed?,
        };
        clock::agree(renewed.now_ms, sent_at.elapsed());
        let may_judge = {
            let mut valid_since = self.valid_since.lock();
            if !self.lease.is_valid() {
                *valid_since = sent_at;
            }
            valid_since.elapsed() >= self.ttl
        };
        self.lease.extend(sent_at + self.ttl);
        let (mut peers, mut deaths) = (Vec::new(), 0);
        for state in renewed.nodes.into_iter().filter(|state| state.node.id != node.id) {
            if state.has_expired && may_judge && store.declare_dead(&state.node.id).await? {
                tracing::warn!(
                    node = state.node.id,
                    "a node has not renewed its lease; its sessions are free now"
                );
                deaths += 1;
            } else {
                peers.push(state.node);
            }
        }
        peers.sort_by(|one, other| one.id.cmp(&other.id));
        self.peers.send_if_modified(|known| {
            let has_changed = *known != peers;
            *known = peers;
            has_changed
        });
        Ok(Renewal { deaths, has_rejoined: false })
    }

    async fn rejoin(&self, store: &dyn ClusterStore, former: Node) -> Result<()> {
        tracing::warn!(
            "this node was declared dead, because it did not renew its lease in time; joining again"
        );
        let node = Node { id: new_epoch()?, ..former };
        let sent_at = Instant::now();
        store.join(&node, self.ttl).await?;
        self.lease.replace_id(&node.id);
        *self.node.lock() = node;
        *self.valid_since.lock() = sent_at;
        self.lease.extend(sent_at + self.ttl);
        Ok(())
    }

    /// Removes a node whose process is certainly gone. Its sessions are free at once.
    pub async fn remove_ended(&self, node: &Node) -> Result<()> {
        self.store()?.remove_node(&node.id).await
    }

    /// Leaves: other nodes take over the sessions at once. Nothing may be written afterwards.
    pub async fn leave(&self) -> Result<()> {
        let id = self.node().id;
        self.lease.end();
        self.store()?.remove_node(&id).await
    }
}

fn shared_part(store: &dyn Store) -> Result<&dyn ClusterStore> {
    store.cluster().ok_or_else(|| Error::Store("only one process can use this store".to_owned()))
}
