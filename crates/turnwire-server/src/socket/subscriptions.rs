//! The sessions that a socket watches.

use super::blocks;
use super::writer::{Outgoing, Sender};
use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::stream::{EndCondition, Framing, Merge, StartPosition, StreamFormat, Subscriber};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use turnwire_log::Session;
use turnwire_wires::Wire;
use turnwire_wires::stream::DisplayMode;

/// How many sessions one socket may watch.
const MOST: usize = 256;

/// The sessions that a socket watches.
pub(super) struct Subscriptions {
    app: Arc<App>,
    wire: &'static Wire,
    out: Sender,
    open: HashMap<Arc<str>, Subscription>,
}

struct Subscription {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Subscription {
    /// When this returns, nothing more comes.
    async fn end(self) {
        self.cancel.cancel();
        let _ = self.task.await;
    }
}

impl Subscriptions {
    pub fn new(app: Arc<App>, wire: &'static Wire, out: Sender) -> Self {
        Self { app, wire, out, open: HashMap::new() }
    }

    /// Gets ready to watch a session, in place of what was watched of it before.
    pub async fn prepare(
        &mut self,
        session: &Arc<Session>,
        start: StartPosition,
        merge: Merge,
    ) -> ApiResult<Subscriber> {
        self.remove(session.id()).await;
        self.check_room()?;
        let display = DisplayMode::default();
        let shape = StreamFormat { wire: self.wire, framing: Framing::WebSocket, merge, display };
        let streams = self.app.streams.clone();
        // The socket itself ends when the credentials expire, and all that it watches with it: new
        // credentials that come before let it go on.
        Ok(Subscriber::new(session.clone(), shape, start, EndCondition::Never, None, streams)
            .await?)
    }

    /// An error when no more sessions can be watched.
    pub fn check_room(&mut self) -> ApiResult<()> {
        self.open.retain(|_, subscription| !subscription.task.is_finished());
        if self.open.len() < MOST {
            return Ok(());
        }
        Err(ApiError::too_many(format!("this socket watches {MOST} sessions already"))
            .hint("unsubscribe from some, or open another socket"))
    }

    /// Whether a session is watched.
    pub fn is_subscribed(&self, session: &str) -> bool {
        self.open.get(session).is_some_and(|subscription| !subscription.task.is_finished())
    }

    /// Watches.
    pub fn start(&mut self, watcher: Subscriber) {
        let over = CancellationToken::new();
        let id = watcher.session().key().id.clone();
        let task = tokio::spawn(forward_events(watcher, self.out.clone(), over.clone()));
        self.open.insert(id, Subscription { cancel: over, task });
    }

    /// Watches a session no longer. Whether it did.
    pub async fn remove(&mut self, session: &str) -> bool {
        let Some(subscription) = self.open.remove(session) else { return false };
        subscription.end().await;
        true
    }

    /// Watches no longer what may not be watched. When this returns, nothing more of it comes.
    pub async fn retain_allowed(&mut self, may_watch: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        self.open.retain(|_, subscription| !subscription.task.is_finished());
        let lost: Vec<Arc<str>> = self.open.keys().filter(|id| !may_watch(id)).cloned().collect();
        for session in &lost {
            self.remove(session).await;
        }
        lost
    }

    /// What a client is told of a session that it cannot watch any longer.
    pub fn ended_message(&self, session: &str, error: &ApiError) -> String {
        subscription_ended(self.wire, session, error)
    }

    /// Watches nothing any more.
    pub async fn end(&mut self) {
        for (_, subscription) in self.open.drain() {
            subscription.end().await;
        }
    }
}

/// Hands on what there is, and what comes.
async fn forward_events(mut watcher: Subscriber, out: Sender, over: CancellationToken) {
    loop {
        let bytes = tokio::select! {
            biased;
            () = over.cancelled() => return,
            bytes = watcher.next() => bytes,
        };
        let sent = match bytes {
            Some(Ok(bytes)) if bytes.is_empty() => continue,
            Some(Ok(bytes)) => Outgoing::Lines(bytes),
            Some(Err(error)) => Outgoing::Text(subscription_ended(
                watcher.wire(),
                watcher.session().id(),
                &error.into(),
            )),
            // The socket closes anyway when the server stops.
            None if !watcher.session().head_state().is_deleted => return,
            None => {
                let gone = turnwire_log::Error::NoSession.into();
                Outgoing::Text(subscription_ended(watcher.wire(), watcher.session().id(), &gone))
            }
        };
        let is_last = matches!(sent, Outgoing::Text(_));
        tokio::select! {
            biased;
            () = over.cancelled() => return,
            sent = out.send(sent) => if sent.is_err() || is_last { return },
        }
    }
}

/// What a client is told of a session that it cannot watch any longer.
fn subscription_ended(wire: &Wire, session: &str, error: &ApiError) -> String {
    if wire.name == blocks::WIRE {
        return blocks::subscription_ended(session, error);
    }
    let (code, message) = (error.name(), error.message());
    json!({"type": "unsubscribed", "session_id": session, "code": code, "message": message})
        .to_string()
}
