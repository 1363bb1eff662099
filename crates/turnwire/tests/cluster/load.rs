//! All clients of a cluster at once, and the check of what they saw.

use crate::checker::{Findings, Violation, check_runs, check_session};
use crate::client::Client;
use crate::harness::{ClusterTest, pause};
use crate::nodes::Cluster;
use crate::watcher::WIRES;
use crate::{approvers, producer, reader, users, watcher};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use turnwire_testkit::Rng;

const PRODUCERS: usize = 3;
const USERS: usize = 4;
const APPROVERS: usize = 2;
const READERS: usize = 2;
const WATCHERS: usize = 8;

/// The longest time until every node has what the others have.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Running clients.
pub struct Load {
    pub test: Arc<ClusterTest>,
    writers: Vec<JoinHandle<()>>,
    /// They end when the writers have ended.
    others: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(cluster: &Cluster, rng: &mut Rng) -> Self {
        let test = ClusterTest::new(cluster.addresses());
        let mut start = |count: usize, run: fn(&mut Client, usize)| -> Vec<JoinHandle<()>> {
            let clients = (0..count).map(|number| {
                let mut client = Client::new(&test, rng.fork());
                thread::spawn(move || run(&mut client, number))
            });
            clients.collect()
        };
        let mut writers = start(PRODUCERS, |client, _| producer::run(client));
        writers.extend(start(USERS, |client, _| users::run(client)));
        let mut others = start(APPROVERS, |client, _| approvers::run(client));
        others.extend(start(READERS, |client, _| reader::run(client)));
        others.extend(start(WATCHERS, |client, number| {
            watcher::run(client, WIRES[number % WIRES.len()]);
        }));
        Self { test, writers, others }
    }

    /// Waits until everything has come to rest, reads everything from every node, and checks.
    pub fn finish(self, cluster: &Cluster) -> Findings {
        let test = self.test;
        test.end();
        self.writers.into_iter().for_each(|writer| writer.join().unwrap());
        test.rest();
        self.others.into_iter().for_each(|other| other.join().unwrap());
        read_everything(cluster, &test);
        check(cluster, &test)
    }
}

/// Reads the logs of all sessions from each node.
pub fn read_everything(cluster: &Cluster, test: &ClusterTest) {
    for address in cluster.addresses() {
        let node = ClusterTest::new(vec![address.clone()]);
        let mut client = Client::new(&node, Rng::new());
        for session in test.sessions() {
            let begun = Instant::now();
            let log = loop {
                if let Some(log) = reader::read_log(&mut client, &session.id) {
                    break log;
                }
                assert!(begun.elapsed() < READ_TIMEOUT, "{address} does not read {}", session.id);
                pause(Duration::from_millis(20));
            };
            test.history.record(&session.id, |history| history.last_logs.push(log));
        }
    }
}

/// Checks everything that was recorded so far.
pub fn check(cluster: &Cluster, test: &ClusterTest) -> Findings {
    let (runs, mut findings) = (cluster.tool_runs(), Findings::default());
    for (name, session) in &*test.history.sessions() {
        check_session(name, session, &runs, &mut findings);
    }
    check_runs(&runs, &mut findings);
    for why in test.history.reports() {
        findings.report(Violation::Wrong, why);
    }
    findings
}

/// Prints what the clients did.
#[expect(clippy::print_stdout, reason = "a long test tells how far it is")]
pub fn print_summary(cluster: &Cluster, test: &ClusterTest, findings: &Findings) {
    for (what, count) in test.history.counts() {
        println!("  {count:>9} {what}");
    }
    println!("  {:>9} tool runs", cluster.tool_runs().values().sum::<u64>());
    println!("{findings}");
    for why in &findings.described {
        println!("  {}", why.chars().take(3000).collect::<String>());
    }
}
