//! Periodic tasks: evict idle sessions from memory, and apply retention. Started by `Server::run`, or by the program that
//! serves the router itself.

use crate::App;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use turnwire_log::log::now_ms;
use turnwire_log::store::Retention;

/// How often idle sessions are evicted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

impl App {
    /// Evicts idle sessions from memory, and deletes what the settings of `retention` say, until [`shutdown`](Self::shutdown)
    /// is cancelled. [`Server`](crate::Server) runs this; a program that serves [`router`](crate::router) itself spawns it.
    pub async fn run_maintenance(self: Arc<Self>) {
        let every = self.config.retention.every.0.max(Duration::from_secs(1));
        let mut sweep = interval_at(Instant::now() + SWEEP_INTERVAL, SWEEP_INTERVAL);
        let mut retain = interval_at(Instant::now() + every, every);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        retain.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                _ = sweep.tick() => {
                    if let Err(error) = self.log.evict_idle().await {
                        tracing::warn!(%error, "cannot give up the leases of idle sessions");
                    }
                    self.turns.forget_unloaded();
                }
                _ = retain.tick() => apply_retention(&self).await,
            }
        }
    }
}

/// Applies retention, unless another node does it.
async fn apply_retention(app: &App) {
    if let Some(cluster) = &app.cluster {
        let claimed = match cluster.store() {
            Ok(store) => {
                store.claim_task("retention", &cluster.id(), app.config.retention.every.0).await
            }
            Err(error) => Err(error),
        };
        match claimed {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "retention failed; it will be retried");
                return;
            }
        }
    }
    let config = &app.config.retention;
    let now = now_ms();
    let before =
        |age: Duration| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let retention = Retention {
        before_ms: config.age.as_ref().map(|age| before(age.0)),
        max_bytes: config.bytes.as_ref().map(|bytes| bytes.bytes() as u64),
        keys_before_ms: Some(before(config.keys.0)),
        blobs_before_ms: Some(config.blobs.0).filter(|age| !age.is_zero()).map(before),
    };
    match app.log.apply_retention(retention).await {
        Ok(removed) if removed.events > 0 || removed.blobs > 0 => {
            let (events, bytes, blobs) = (removed.events, removed.bytes, removed.blobs);
            tracing::info!(events, bytes, blobs, "retention removed old data");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "retention failed; it will be retried"),
    }
}
