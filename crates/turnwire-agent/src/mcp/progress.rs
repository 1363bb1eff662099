//! Progress notifications of MCP servers.

use parking_lot::Mutex;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{NotificationContext, RoleClient};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, ready};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The most early notifications that are kept, over all calls.
const MAX_EARLY_NOTIFICATIONS: usize = 64;

/// The most notifications of one call that wait to be read. More are dropped.
const MAX_PENDING_NOTIFICATIONS: usize = 64;

/// Our side of a connection: offers nothing to the server, and receives progress.
#[derive(Default)]
pub(super) struct ProgressListener {
    ears: Arc<Mutex<ProgressChannels>>,
}

#[derive(Default)]
struct ProgressChannels {
    open: HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>,
    /// Notifications that arrived before their call was registered.
    early: VecDeque<ProgressNotificationParam>,
}

/// The progress of one call.
pub(super) struct Progress {
    token: ProgressToken,
    steps: mpsc::Receiver<ProgressNotificationParam>,
    ears: Arc<Mutex<ProgressChannels>>,
    furthest: f64,
}

impl ProgressListener {
    /// Subscribes to the progress of a call.
    pub(super) fn subscribe(&self, token: ProgressToken) -> Progress {
        let (sender, steps) = mpsc::channel(MAX_PENDING_NOTIFICATIONS);
        let mut ears = self.ears.lock();
        let (own, others) = std::mem::take(&mut ears.early)
            .into_iter()
            .partition::<VecDeque<_>, _>(|step| step.progress_token == token);
        ears.early = others;
        for step in own {
            let _ = sender.try_send(step);
        }
        ears.open.insert(token.clone(), sender);
        drop(ears);
        Progress { token, steps, ears: self.ears.clone(), furthest: f64::NEG_INFINITY }
    }

    fn dispatch(&self, step: ProgressNotificationParam) {
        let mut ears = self.ears.lock();
        if let Some(sender) = ears.open.get(&step.progress_token) {
            let _ = sender.try_send(step);
            return;
        }
        if ears.early.len() == MAX_EARLY_NOTIFICATIONS {
            ears.early.pop_front();
        }
        ears.early.push_back(step);
    }
}

impl Progress {
    /// The message of the next notification; may be empty.
    pub(super) async fn next(&mut self) -> Option<String> {
        let step = self.steps.recv().await?;
        Some(self.step_message(step))
    }

    /// The message of the next buffered notification.
    pub(super) fn next_buffered(&mut self) -> Option<String> {
        let step = self.steps.try_recv().ok()?;
        Some(self.step_message(step))
    }

    /// Progress only grows: an older notification that arrives late is ignored.
    fn step_message(&mut self, step: ProgressNotificationParam) -> String {
        if step.progress <= self.furthest {
            return String::new();
        }
        self.furthest = step.progress;
        step.message.unwrap_or_default()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ears.lock().open.remove(&self.token);
    }
}

impl ClientHandler for ProgressListener {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("turnwire", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.dispatch(params);
        ready(())
    }
}
