//! Runs schema work on worker threads: a few jobs at once, each with a deadline.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The time limit of one job, for slow machines. Steps are limited too.
const DEADLINE: Duration = Duration::from_secs(10);

/// The most concurrent jobs, on a machine with many cores.
const MAX_CONCURRENT: usize = 4;

/// The deadline of a job that starts now.
pub(super) fn deadline() -> Instant {
    Instant::now() + DEADLINE
}

/// Runs a job on a blocking thread when it is its turn. `None`: it panicked.
pub(crate) async fn run_on_worker<T: Send + 'static>(
    work: impl FnOnce(Instant) -> T + Send + 'static,
) -> Option<T> {
    static TURNS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let turns = TURNS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(processors.min(MAX_CONCURRENT)))
    });
    // The permit moves into the job: an abandoned job still occupies its thread.
    let permit = turns.clone().acquire_owned().await.ok()?;
    let work = tokio::task::spawn_blocking(move || {
        let done = work(deadline());
        drop(permit);
        done
    });
    work.await.ok()
}
