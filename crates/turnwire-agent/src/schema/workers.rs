//! Schemas are compiled and checked on threads of their own: a few at once, each with a deadline.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long one piece of work may take. Steps are counted too; this is for a machine that is very slow.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many pieces of work run at once at the most, on a machine with many processors.
const MAX_CONCURRENT: usize = 4;

/// When work that starts now has to be done.
pub(super) fn deadline() -> Instant {
    Instant::now() + DEADLINE
}

/// Runs work on a thread for blocking work, once it is its turn. Nothing if it panicked.
pub(crate) async fn run_on_worker<T: Send + 'static>(
    work: impl FnOnce(Instant) -> T + Send + 'static,
) -> Option<T> {
    static TURNS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let turns = TURNS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(processors.min(MAX_CONCURRENT)))
    });
    // The permit moves into the work: who is no longer waited for still takes up a thread.
    let permit = turns.clone().acquire_owned().await.ok()?;
    let work = tokio::task::spawn_blocking(move || {
        let done = work(deadline());
        drop(permit);
        done
    });
    work.await.ok()
}
