//! This process as a node of a cluster: several processes over one database that any client may talk to.
//!
//! Every session has at most one owner. What changes a session runs at its owner: `operation` sends it there. Reads and
//! streams are served by any node from the database. Nodes tell each other which sessions have new events (`hints`);
//! a lost hint costs a poll interval, never an event. `docs/design.md` has the reasons.
//!
//! | module | content |
//! |---|---|
//! | `operation` | what only the owner of a session can do, and how it gets there |
//! | `members` | renews the lease, continues the sessions of nodes that are gone |
//! | `hints` | which node watches what, and who is told of new events |
//! | `peers` | requests to other nodes |
//! | `listener` | requests of other nodes |
//! | `tickets` | tickets that any node accepts |
//! | `tls` | the certificates of nodes |

mod hints;
mod listener;
mod members;
pub(crate) mod operation;
mod peers;
pub(crate) mod tickets;
mod tls;

use crate::StartError;
use crate::config::{ClusterConfig, Config};
use hints::{Hints, Interests};
use peers::Peers;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use turnwire_log::cluster::Cluster;
use turnwire_log::store::Store;
use turnwire_log::store::cluster::Node;
use turnwire_log::{Log, store};

/// The membership of this process, and its connections to the other nodes.
pub struct ClusterNode {
    membership: Arc<Cluster>,
    config: ClusterConfig,
    peers: Peers,
    /// Sessions that other nodes watch.
    interests: Interests,
    /// What other nodes have to be told.
    hints: Hints,
    /// Taken when the node starts to serve.
    listener: parking_lot::Mutex<Option<(TcpListener, TlsAcceptor)>>,
}

impl ClusterNode {
    /// Joins the cluster of a store. `None` if only one process can use the store.
    async fn join(
        config: &Config,
        store: &Arc<dyn Store>,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let Some(shared) = store.cluster() else { return Ok(None) };
        let failed = |error: turnwire_log::Error| {
            StartError::new(format!("cannot join the cluster: {error}"))
        };
        let secret = shared.secret().await.map_err(failed)?;
        let identity = tls::NodeIdentity::generate()?;
        let wanted = config.cluster.listen.unwrap_or_else(|| {
            SocketAddr::new(shared.local_address().unwrap_or(IpAddr::from([127, 0, 0, 1])), 0)
        });
        let listener = TcpListener::bind(wanted).await.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) = listener.map_err(|error| {
            StartError::new(format!("cannot listen on {wanted} for other nodes: {error}"))
                .hint("set `cluster.listen` to a free address that the other nodes reach")
        })?;
        let node = Node {
            id: String::new(),
            address: config.cluster.advertise.clone().unwrap_or_else(|| address.to_string()),
            certificate: identity.fingerprint,
            host: host_identity(),
            settings: config.digest(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let membership = Cluster::join(store.clone(), node, config.cluster.lease.0).await;
        Ok(Some(Arc::new(Self {
            membership: membership.map_err(failed)?,
            config: config.cluster.clone(),
            peers: Peers::new(&secret),
            interests: Interests::default(),
            hints: Hints::default(),
            listener: parking_lot::Mutex::new(Some((listener, identity.acceptor))),
        })))
    }

    /// Joins the cluster of a store, if it can be shared, and opens its log.
    pub async fn open_log(
        config: &Config,
        store: Arc<dyn Store>,
    ) -> Result<(Arc<Log>, Option<Arc<Self>>), StartError> {
        let node = Self::join(config, &store).await?;
        let log = match &node {
            Some(node) => Log::in_cluster(store, node.membership.lease().clone()),
            // Only this process has the store; its pid names it in the lease.
            None => Log::new(store, format!("pid-{}", std::process::id())),
        };
        Ok((Arc::new(log), node))
    }

    /// The part of the store that nodes share.
    pub(crate) fn store(&self) -> turnwire_log::Result<&dyn store::cluster::ClusterStore> {
        self.membership.store()
    }

    /// The id of this node.
    pub(crate) fn id(&self) -> String {
        self.membership.node().id
    }
}

/// What nodes have in common that share their network addresses, loopback included. Empty if the system does not say.
fn host_identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    match network {
        Some(network) if !boot.is_empty() => format!("{} {}", boot.trim(), network.display()),
        _ => String::new(),
    }
}
