//! Random faults while everybody is at work: nothing is lost, doubled, reordered or stale, and nothing happens twice.

use crate::faults::PlannedFault;
use crate::load::{Load, check, print_summary};
use crate::nodes::{Cluster, ClusterOptions, LEASE};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};
use turnwire_testkit::Rng;

/// How many rounds there are by default.
const ROUNDS: u64 = 10;

/// How often a long run looks at what it has.
const ROUNDS_PER_CHECK: u64 = 20;

#[test]
fn one_node_loses_and_repeats_nothing_under_random_faults() {
    run(&ClusterOptions::ONE_NODE);
}

#[test]
fn three_nodes_lose_and_repeat_nothing_under_random_faults() {
    run(&ClusterOptions::THREE_NODES);
}

#[test]
fn three_nodes_behind_pgbouncer_lose_and_repeat_nothing_under_random_faults() {
    run(&ClusterOptions::BEHIND_PGBOUNCER);
}

#[test]
fn three_nodes_whose_clocks_differ_lose_and_repeat_nothing_under_random_faults() {
    run(&ClusterOptions::WRONG_CLOCKS);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|value| value.parse().ok())
}

fn run(options: &ClusterOptions) {
    let rounds = number("CLUSTER_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("TURNWIRE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{} nodes, {rounds} rounds, seed {seed}", options.nodes);
    let Some(mut cluster) = Cluster::start("a cluster under random faults", options) else {
        return;
    };
    let done = catch_unwind(AssertUnwindSafe(|| run_rounds(&cluster, rounds, seed)));
    if done.is_err() {
        let kept = cluster.keep_logs();
        panic!("seed {seed}, the logs are in {}: {done:?}", kept.display());
    }
}

fn run_rounds(cluster: &Cluster, rounds: u64, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let begun = Instant::now();
    let load = Load::start(cluster, &mut rng);
    for round in 1..=rounds {
        // Work without faults, for a moment.
        thread::sleep(Duration::from_millis(rng.u64(100..600)));
        let faults = PlannedFault::random(&mut rng, cluster.nodes.len());
        println!("round {round}, {:.1} s: {faults:?}", begun.elapsed().as_secs_f64());
        for fault in &faults {
            fault.apply(cluster);
        }
        let time = faults.iter().map(|fault| fault.time(&mut rng, LEASE)).max();
        thread::sleep(time.unwrap_or_default());
        cluster.nodes.iter().for_each(crate::nodes::Node::heal);
        if round % ROUNDS_PER_CHECK == 0 {
            let findings = check(cluster, &load.test);
            println!("round {round}: {findings}");
            assert!(findings.is_empty(), "{:?}", findings.described);
        }
    }
    let test = load.test.clone();
    let findings = load.finish(cluster);
    print_summary(cluster, &test, &findings);
    println!("{rounds} rounds in {:.1} s", begun.elapsed().as_secs_f64());
    assert!(findings.is_empty(), "{findings}");
}
