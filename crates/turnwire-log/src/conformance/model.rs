//! Random operations, compared with a simple model.
//!
//! A failing run prints its seed; `TURNWIRE_SEED` repeats it.

mod compare;
mod expected;
mod random_run;

use super::harness::Harness;
use fastrand::Rng;
use random_run::RandomRun;

const RUNS: u64 = 12;
const STEPS: usize = 150;

pub(super) async fn random_operations_agree_with_a_model(harness: &mut Harness) {
    let given = std::env::var("TURNWIRE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| fastrand::u64(..u64::MAX - RUNS));
    let runs = if given.is_some() { 1 } else { RUNS };
    for seed in first..first + runs {
        let note = SeedNote(seed);
        // Each run has its own tenants, so that one store serves all runs.
        let mut run = RandomRun::new(Rng::with_seed(seed), seed);
        for _ in 0..STEPS {
            run.step(harness).await;
        }
        run.compare_all(harness).await;
        harness.reopen().await;
        run.compare_all(harness).await;
        run.delete_everything(harness).await;
        std::mem::forget(note);
    }
}

/// Prints the seed when a run panics.
struct SeedNote(u64);

impl Drop for SeedNote {
    #[expect(clippy::print_stderr, reason = "a test prints its seed")]
    fn drop(&mut self) {
        eprintln!("the model fails; run it again with TURNWIRE_SEED={}", self.0);
    }
}
