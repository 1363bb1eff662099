//! The life of a node: it renews its lease, learns of other nodes, continues the sessions of nodes that are gone, and hands
//! over its own when it stops.

use super::ClusterNode;
use crate::App;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;
use turnwire_log::store::SessionNumber;
use turnwire_log::store::cluster::Node;

/// How often the lease is renewed at least.
const MAX_RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// How often a node looks for sessions that belong to nobody, although no node has died.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(5);
/// How many sessions are listed at a time.
const ORPHAN_PAGE: usize = 256;
/// How long a node of the same machine has to accept a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl ClusterNode {
    /// Runs until the server stops. Then the server calls [`leave`](Self::leave).
    pub(crate) async fn run(self: Arc<Self>, app: Arc<App>) {
        let node = self.clone();
        app.log.set_append_listener(Box::new(move |head| node.note_append(head)));
        // Whoever acquires a session of a node that is gone continues it, whatever it was acquired for.
        let turns = Arc::downgrade(&app.turns);
        app.log.set_acquire_listener(Box::new(move |session| {
            if let Some(turns) = turns.upgrade() {
                turns.wake(session);
            }
        }));
        let taken = self.listener.lock().take();
        let serve = async {
            if let Some((listener, tls)) = taken {
                self.clone().serve(app.clone(), listener, tls).await;
            }
        };
        tokio::join!(serve, self.renew_lease(&app), self.watch_other_nodes(&app));
    }

    /// Gives all sessions to the other nodes. Nothing may be written afterwards.
    pub(crate) async fn leave(&self) {
        self.close_links();
        if let Err(error) = self.membership.leave().await {
            tracing::warn!(%error, "could not leave the cluster; the other nodes wait until the lease ends");
        }
    }

    async fn renew_lease(self: &Arc<Self>, app: &Arc<App>) {
        let every = (self.membership.ttl() / 5).min(MAX_RENEW_INTERVAL);
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut peers = self.membership.peers();
        let mut warned = HashSet::new();
        let (mut has_orphans, mut looked_at) = (true, None::<Instant>);
        loop {
            ticks.tick().await;
            match self.membership.renew().await {
                Ok(renewal) => has_orphans |= renewal.deaths > 0 || renewal.has_rejoined,
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the lease of this node; will retry");
                    continue;
                }
            }
            let nodes = peers.borrow_and_update().clone();
            has_orphans |= self.remove_ended(&nodes).await;
            self.update_links(&nodes);
            self.compare_settings(&nodes, &mut warned);
            if has_orphans || looked_at.is_none_or(|at| at.elapsed() >= ORPHAN_INTERVAL) {
                (has_orphans, looked_at) = (false, Some(Instant::now()));
                let (node, app) = (self.clone(), app.clone());
                tokio::spawn(async move {
                    if let Err(error) = node.continue_orphans(&app).await {
                        tracing::warn!(%error, "cannot look for sessions of other nodes; will retry");
                    }
                });
            }
        }
    }

    /// Removes nodes of this machine whose process has ended: nobody listens on their address. So a single server that
    /// crashed continues at once after its restart, and not only when the lease of the former process has ended.
    async fn remove_ended(&self, peers: &[Node]) -> bool {
        let own = self.membership.node();
        let mut has_removed = false;
        for peer in peers.iter().filter(|peer| !peer.host.is_empty() && peer.host == own.host) {
            let probe = timeout(PROBE_TIMEOUT, TcpStream::connect(&peer.address)).await;
            let is_gone =
                matches!(probe, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused);
            if is_gone && self.membership.remove_ended(peer).await.is_ok() {
                tracing::info!(
                    node = peer.id,
                    "the process of a node has ended; its sessions are free now"
                );
                has_removed = true;
            }
        }
        has_removed
    }

    fn compare_settings(&self, peers: &[Node], warned: &mut HashSet<String>) {
        let own = self.membership.node();
        for peer in peers.iter().filter(|peer| peer.settings != own.settings) {
            if warned.insert(peer.id.clone()) {
                tracing::warn!(
                    node = peer.id,
                    address = peer.address,
                    version = peer.version,
                    "this node has other settings: agents may behave differently from node to node"
                );
            }
        }
        warned.retain(|id| peers.iter().any(|peer| peer.id == *id));
    }

    /// Continues what nodes that are gone have left.
    async fn continue_orphans(&self, app: &Arc<App>) -> turnwire_log::Result<()> {
        let mut after = SessionNumber(0);
        loop {
            let page = self.store()?.list_orphans(after, ORPHAN_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.number;
            for record in page {
                app.turns.continue_session(record).await?;
            }
        }
    }
}
