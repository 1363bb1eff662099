//! Random operations, compared with what a plain model makes of them.
//!
//! A run that fails prints its seed; `TURNWIRE_SEED` runs that one again.

mod compare;
mod expected;
mod random_run;

use super::bench::Bench;
use fastrand::Rng;
use random_run::RandomRun;

const RUNS: u64 = 12;
const STEPS: usize = 150;

pub(super) async fn random_operations_agree_with_a_model(bench: &mut Bench) {
    let given = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| fastrand::u64(..u64::MAX - RUNS));
    let runs = if given.is_some() { 1 } else { RUNS };
    for seed in first..first + runs {
        let note = SeedNote(seed);
        // Each run has tenants of its own, so that one store serves them all.
        let mut run = RandomRun::new(Rng::with_seed(seed), seed);
        for _ in 0..STEPS {
            run.step(bench).await;
        }
        run.compare_all(bench).await;
        bench.reopen().await;
        run.compare_all(bench).await;
        run.delete_everything(bench).await;
        std::mem::forget(note);
    }
}

/// Says on the way out of a panic which run it was.
struct SeedNote(u64);

impl Drop for SeedNote {
    #[expect(clippy::print_stderr, reason = "a test prints its seed")]
    fn drop(&mut self) {
        eprintln!("the model fails; run it again with TURNWIRE_SEED={}", self.0);
    }
}
