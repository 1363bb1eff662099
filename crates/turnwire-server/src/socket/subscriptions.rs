//! The subscriptions of a socket.

use super::blocks;
use super::writer::{Outgoing, Sender};
use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::stream::{EndCondition, Framing, Merge, SessionSubscriber, StartPosition, StreamFormat};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use turnwire_log::Session;
use turnwire_wires::Wire;
use turnwire_wires::blocks::DisplayMode;

/// How many sessions one socket may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 256;

/// The subscriptions of a socket.
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
    /// Ends it. When this returns, no more frames of it are sent.
    async fn end(self) {
        self.cancel.cancel();
        let _ = self.task.await;
    }
}

impl Subscriptions {
    pub fn new(app: Arc<App>, wire: &'static Wire, out: Sender) -> Self {
        Self { app, wire, out, open: HashMap::new() }
    }

    /// Prepares a subscription, which replaces an earlier one of the same session.
    pub async fn prepare(
        &mut self,
        session: &Arc<Session>,
        start: StartPosition,
        merge: Merge,
    ) -> ApiResult<SessionSubscriber> {
        self.remove(session.id()).await;
        self.check_room()?;
        let display = DisplayMode::default();
        let format = StreamFormat { wire: self.wire, framing: Framing::WebSocket, merge, display };
        let streams = self.app.streams.clone();
        // The socket closes when the credentials expire, with all its subscriptions. New
        // credentials before that keep it open.
        Ok(SessionSubscriber::new(
            session.clone(),
            format,
            start,
            EndCondition::Never,
            None,
            streams,
        )
        .await?)
    }

    /// An error if no more subscriptions fit.
    pub fn check_room(&mut self) -> ApiResult<()> {
        self.open.retain(|_, subscription| !subscription.task.is_finished());
        if self.open.len() < MAX_SUBSCRIPTIONS {
            return Ok(());
        }
        Err(ApiError::too_many(format!(
            "this socket has {MAX_SUBSCRIPTIONS} subscriptions already"
        ))
        .hint("unsubscribe from some sessions, or open another socket"))
    }

    /// Whether there is a subscription of a session.
    pub fn is_subscribed(&self, session: &str) -> bool {
        self.open.get(session).is_some_and(|subscription| !subscription.task.is_finished())
    }

    /// Starts to send events.
    pub fn start(&mut self, subscriber: SessionSubscriber) {
        let over = CancellationToken::new();
        let id = subscriber.session().key().id.clone();
        let task = tokio::spawn(forward_events(subscriber, self.out.clone(), over.clone()));
        self.open.insert(id, Subscription { cancel: over, task });
    }

    /// Ends the subscription of a session. Returns whether there was one.
    pub async fn remove(&mut self, session: &str) -> bool {
        let Some(subscription) = self.open.remove(session) else { return false };
        subscription.end().await;
        true
    }

    /// Ends subscriptions that are no longer allowed. When this returns, no more frames of them are
    /// sent.
    pub async fn retain_allowed(&mut self, may_watch: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        self.open.retain(|_, subscription| !subscription.task.is_finished());
        let lost: Vec<Arc<str>> = self.open.keys().filter(|id| !may_watch(id)).cloned().collect();
        for session in &lost {
            self.remove(session).await;
        }
        lost
    }

    /// Tells the client that a subscription has ended.
    pub fn ended_message(&self, session: &str, error: &ApiError) -> String {
        subscription_ended(self.wire, session, error)
    }

    /// Ends all subscriptions.
    pub async fn end(&mut self) {
        for (_, subscription) in self.open.drain() {
            subscription.end().await;
        }
    }
}

/// Sends the events of a subscription until it ends.
async fn forward_events(mut subscriber: SessionSubscriber, out: Sender, over: CancellationToken) {
    loop {
        let bytes = tokio::select! {
            biased;
            () = over.cancelled() => return,
            bytes = subscriber.next() => bytes,
        };
        let sent = match bytes {
            Some(Ok(bytes)) if bytes.is_empty() => continue,
            Some(Ok(bytes)) => Outgoing::Lines(bytes),
            Some(Err(error)) => Outgoing::Text(subscription_ended(
                subscriber.wire(),
                subscriber.session().id(),
                &error.into(),
            )),
            // The socket closes anyway when the server stops.
            None if !subscriber.session().head_state().is_deleted => return,
            None => {
                let gone = turnwire_log::Error::NoSession.into();
                Outgoing::Text(subscription_ended(
                    subscriber.wire(),
                    subscriber.session().id(),
                    &gone,
                ))
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

/// Tells the client that a subscription has ended.
fn subscription_ended(wire: &Wire, session: &str, error: &ApiError) -> String {
    if wire.name == blocks::WIRE {
        return blocks::subscription_ended(session, error);
    }
    let (code, message) = (error.name(), error.message());
    json!({"type": "unsubscribed", "session_id": session, "code": code, "message": message})
        .to_string()
}
