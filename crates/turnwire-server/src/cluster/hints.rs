//! Hints: which node watches which sessions, and what it has to be told.
//!
//! A node tells every other node which sessions it watches and does not own. A node that has appended to such a session
//! sends the new head. Nothing depends on a hint: a node also polls the heads of the sessions that it watches.

use super::ClusterNode;
use super::peers::PeerError;
use crate::App;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use turnwire_log::store::SessionNumber;
use turnwire_log::store::cluster::{Node, SessionHead};

/// How often a node looks which sessions it watches.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait after a node could not be reached.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The sessions that a node watches.
type Watched = Arc<HashSet<SessionNumber>>;

/// What a node tells another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct News {
    /// The id of the node that tells it.
    pub(super) from: String,
    /// New heads of sessions.
    pub(super) heads: Vec<SessionHead>,
    /// Which sessions it watches, if that has changed.
    pub(super) interest: Option<InterestChange>,
}

/// A change of the sessions that a node watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InterestChange {
    /// Whether those in `added` are all.
    is_complete: bool,
    added: Vec<SessionNumber>,
    removed: Vec<SessionNumber>,
}

impl InterestChange {
    /// From what the other node knows to what is watched now. `None` if nothing has changed.
    fn between(known: Option<&Watched>, now: &Watched) -> Option<Self> {
        let Some(known) = known else {
            return Some(Self {
                is_complete: true,
                added: now.iter().copied().collect(),
                removed: Vec::new(),
            });
        };
        if Arc::ptr_eq(known, now) {
            return None;
        }
        let added: Vec<_> = now.difference(known).copied().collect();
        let removed: Vec<_> = known.difference(now).copied().collect();
        let has_changed = !added.is_empty() || !removed.is_empty();
        has_changed.then_some(Self { is_complete: false, added, removed })
    }
}

/// Which sessions other nodes watch.
#[derive(Default)]
pub(super) struct Interests {
    by_session: RwLock<HashMap<SessionNumber, Vec<Arc<str>>>>,
    by_node: Mutex<HashMap<Arc<str>, HashSet<SessionNumber>>>,
    /// So that a commit that nobody elsewhere watches costs nothing.
    is_any: AtomicBool,
}

impl Interests {
    pub(super) fn apply(&self, node: &str, change: InterestChange) {
        let mut nodes = self.by_node.lock();
        let mut sessions = self.by_session.write();
        let node: Arc<str> = node.into();
        let watched = nodes.entry(node.clone()).or_default();
        let removed =
            if change.is_complete { watched.iter().copied().collect() } else { change.removed };
        for session in removed {
            watched.remove(&session);
            remove_node(&mut sessions, session, &node);
        }
        for session in change.added {
            if watched.insert(session) {
                sessions.entry(session).or_default().push(node.clone());
            }
        }
        self.is_any.store(!sessions.is_empty(), Ordering::Release);
    }

    /// Forgets nodes that are gone.
    pub(super) fn retain(&self, peers: &[Node]) {
        let mut nodes = self.by_node.lock();
        let mut sessions = self.by_session.write();
        nodes.retain(|node, watched| {
            let is_there = peers.iter().any(|peer| *peer.id == **node);
            if !is_there {
                for session in watched.iter() {
                    remove_node(&mut sessions, *session, node);
                }
            }
            is_there
        });
        self.is_any.store(!sessions.is_empty(), Ordering::Release);
    }

    fn nodes_of(&self, session: SessionNumber) -> Vec<Arc<str>> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.by_session.read().get(&session).cloned().unwrap_or_default()
    }
}

fn remove_node(
    sessions: &mut HashMap<SessionNumber, Vec<Arc<str>>>,
    session: SessionNumber,
    node: &Arc<str>,
) {
    if let Some(nodes) = sessions.get_mut(&session) {
        nodes.retain(|other| other != node);
        if nodes.is_empty() {
            sessions.remove(&session);
        }
    }
}

/// What has to be sent to other nodes.
#[derive(Default)]
pub(super) struct Hints {
    links: RwLock<HashMap<String, Arc<Link>>>,
    watched: RwLock<Watched>,
}

/// The way to one node.
struct Link {
    node: Node,
    /// The latest head of each session.
    pending: Mutex<HashMap<SessionNumber, SessionHead>>,
    has_news: Notify,
    closed: CancellationToken,
}

impl ClusterNode {
    /// Events became durable: nodes that watch the session are told.
    pub(super) fn note_append(&self, head: SessionHead) {
        for node in self.interests.nodes_of(head.session) {
            if let Some(link) = self.hints.links.read().get(&*node) {
                link.pending.lock().insert(head.session, head);
                link.has_news.notify_one();
            }
        }
    }

    /// Opens ways to new nodes, and closes those to nodes that are gone.
    pub(super) fn update_links(self: &Arc<Self>, peers: &[Node]) {
        self.peers.retain(peers);
        self.interests.retain(peers);
        let mut links = self.hints.links.write();
        links.retain(|id, link| {
            let is_there = peers.iter().any(|peer| peer.id == *id);
            if !is_there {
                link.closed.cancel();
            }
            is_there
        });
        for peer in peers.iter().filter(|peer| !peer.address.is_empty()) {
            if links.contains_key(&peer.id) {
                continue;
            }
            let link = Arc::new(Link {
                node: peer.clone(),
                pending: Mutex::default(),
                has_news: Notify::new(),
                closed: CancellationToken::new(),
            });
            links.insert(peer.id.clone(), link.clone());
            let sender = self.clone();
            tokio::spawn(async move {
                link.closed.run_until_cancelled(sender.send_news(&link)).await;
            });
        }
    }

    /// Closes all ways to other nodes.
    pub(super) fn close_links(&self) {
        self.hints.links.write().drain().for_each(|(_, link)| link.closed.cancel());
    }

    async fn send_news(&self, link: &Link) {
        let mut known: Option<Watched> = None;
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = link.has_news.notified() => {}
                _ = ticks.tick() => {}
            }
            let heads: Vec<SessionHead> =
                link.pending.lock().drain().map(|(_, head)| head).collect();
            let watched = self.hints.watched.read().clone();
            let interest = InterestChange::between(known.as_ref(), &watched);
            if heads.is_empty() && interest.is_none() {
                continue;
            }
            let news = News { from: self.id(), heads, interest };
            let sent: Result<(), PeerError> = self.peers.post(&link.node, "/news", &news).await;
            known = match sent {
                Ok(()) => Some(watched),
                Err(PeerError::Unreachable(why) | PeerError::NoAnswer(why)) => {
                    tracing::debug!(
                        node = link.node.id,
                        why,
                        "a node could not be told of new events"
                    );
                    tokio::time::sleep(RETRY_PAUSE).await;
                    None
                }
            };
        }
    }

    /// Looks which sessions are watched here, and asks the store for their heads from time to time.
    pub(super) async fn watch_other_nodes(&self, app: &App) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        let mut polls = tokio::time::interval(self.config.poll.0);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    let watched: HashSet<_> = app.log.watched_elsewhere().into_iter().collect();
                    if **self.hints.watched.read() != watched {
                        *self.hints.watched.write() = Arc::new(watched);
                    }
                }
                _ = polls.tick() => {
                    if let Err(error) = app.log.poll_watched().await {
                        tracing::warn!(%error, "cannot look for events of other nodes; will retry");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(numbers: &[i64]) -> Watched {
        Arc::new(numbers.iter().map(|number| SessionNumber(*number)).collect())
    }

    #[test]
    fn changes_of_interest_lead_to_what_is_watched() {
        let interests = Interests::default();
        let of = |session| interests.nodes_of(SessionNumber(session)).len();
        let (one, two) = (watched(&[1, 2]), watched(&[2, 3]));
        assert_eq!(InterestChange::between(Some(&one), &one), None);
        assert_eq!(InterestChange::between(Some(&one), &watched(&[2, 1])), None);
        interests.apply("a", InterestChange::between(None, &one).unwrap());
        interests.apply("b", InterestChange::between(None, &one).unwrap());
        assert_eq!([of(1), of(2), of(3)], [2, 2, 0]);
        interests.apply("a", InterestChange::between(Some(&one), &two).unwrap());
        assert_eq!([of(1), of(2), of(3)], [1, 2, 1]);
        // After an error everything is told again.
        interests.apply("a", InterestChange::between(None, &one).unwrap());
        assert_eq!([of(1), of(2), of(3)], [2, 2, 0]);
        interests.retain(&[Node { id: "b".to_owned(), ..Node::default() }]);
        assert_eq!([of(1), of(2), of(3)], [1, 1, 0]);
        interests.retain(&[]);
        assert!(interests.by_session.read().is_empty() && interests.by_node.lock().is_empty());
    }
}
