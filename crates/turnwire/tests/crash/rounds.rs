//! Kills the server repeatedly under load.

use crate::check::LogCheck;
use crate::expectations::{Expectations, RecordedAnswer, Tally};
use crate::maintenance::{self, Blobs};
use crate::server::{Server, failure_output, store_url, turnwire};
use crate::{chat_client, producer, watcher};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use turnwire_testkit::{Rng, one_in};

const PRODUCERS: usize = 3;
const CHATTERS: usize = 3;
const WATCHERS: usize = 6;
/// The longest life of a server.
const MAX_LIFETIME: Duration = Duration::from_millis(300);

/// The longest shutdown.
const MAX_STOP_TIME: Duration = Duration::from_secs(5);

/// All clients of the server.
struct Load {
    writers: Vec<JoinHandle<()>>,
    client: JoinHandle<Blobs>,
    watchers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(expected: &Arc<Expectations>, rng: &mut Rng) -> Self {
        let mut writers = Vec::new();
        for number in 0..PRODUCERS {
            let (expected, rng) = (expected.clone(), rng.fork());
            let name = format!("producer{number}");
            writers.push(thread::spawn(move || producer::run(&expected, &name, rng)));
        }
        for number in 0..CHATTERS {
            let (expected, rng) = (expected.clone(), rng.fork());
            let name = format!("chat{number}");
            writers.push(thread::spawn(move || chat_client::run(&expected, &name, rng)));
        }
        let watchers = (0..WATCHERS).map(|number| {
            let (expected, rng) = (expected.clone(), rng.fork());
            thread::spawn(move || watcher::run(&expected, number, rng))
        });
        let watchers = watchers.collect();
        let (expected, rng) = (expected.clone(), rng.fork());
        Self { writers, client: thread::spawn(move || maintenance::run(&expected, rng)), watchers }
    }
}

/// How a server ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EndMode {
    /// Killed; sometimes shut down.
    Killed,
    InOrder,
}

/// Runs rounds in a folder, and prints a summary.
pub fn run(folder: &Path, expected: &Arc<Expectations>, rounds: u64, ends: EndMode) {
    let mut rng = Rng::with_seed(expected.seed);
    let mut known_replies = HashMap::new();
    let begun = Instant::now();
    let mut server = Server::start(folder);
    expected.server.set_running(&server.address);
    let load = Load::start(expected, &mut rng);
    for round in 1..=rounds {
        // The only random time here: when the server dies.
        thread::sleep(MAX_LIFETIME.mul_f64(rng.f64()));
        if ends == EndMode::InOrder || one_in(&mut rng, 10) {
            stop(server);
            expected.count("stops in order", 1);
        } else {
            note_what_is_under_way(expected);
            server.kill();
        }
        expected.server.set_stopped();
        server = restart(folder, &mut rng, expected);
        expected.count("rounds", 1);
        LogCheck::new(expected, &server.address, &mut known_replies)
            .unwrap()
            .check_touched(&mut rng);
        if !expected.has_no_violations() {
            return print_summary(expected, round, begun);
        }
        if round % 50 == 0 {
            print_summary(expected, round, begun);
        }
        expected.server.set_running(&server.address);
    }
    expected.server.stop_clients();
    for writer in load.writers {
        writer.join().unwrap();
    }
    let blobs = load.client.join().unwrap();
    // Everything has settled: subscribers reconnect to see that.
    server.kill();
    expected.server.set_stopped();
    server = Server::start(folder);
    expected.server.set_running(&server.address);
    for watcher in load.watchers {
        watcher.join().unwrap();
    }
    LogCheck::new(expected, &server.address, &mut known_replies).unwrap().check_all(&blobs);
    stop(server);
    print_summary(expected, rounds, begun);
    assert_doctor_finds_nothing(folder);
}

/// Shuts the server down.
fn stop(server: Server) {
    let begun = Instant::now();
    server.terminate();
    assert!(server.wait().success(), "the server did not stop in order");
    assert!(begun.elapsed() < MAX_STOP_TIME, "it took {:?} to stop", begun.elapsed());
}

/// Starts the server again; sometimes kills it during the start.
fn restart(folder: &Path, rng: &mut Rng, expected: &Expectations) -> Server {
    while one_in(rng, 4) {
        let time = Duration::from_micros(rng.u64(..80_000));
        Server::start_and_kill(folder, || thread::sleep(time));
        expected.count("kills while it started", 1);
    }
    Server::start(folder)
}

fn note_what_is_under_way(expected: &Expectations) {
    let is_under_way = expected.sessions().values().any(|session| {
        session.published.under_way.is_some()
            || session.requests.iter().any(|keyed| keyed.answer == RecordedAnswer::None)
    });
    expected.count("kills while a write was under way", u64::from(is_under_way));
}

/// `turnwire doctor` finds nothing in the store.
fn assert_doctor_finds_nothing(folder: &Path) {
    let (status, text) = failure_output(turnwire(&["doctor", "--store", &store_url(folder)]));
    assert_eq!(status, Some(0), "{text}");
}

#[expect(clippy::print_stdout, reason = "a long test tells how far it is")]
fn print_summary(expected: &Expectations, round: u64, begun: Instant) {
    let Tally { lost, duplicated, reordered, wrong, why, counts } = &*expected.tally();
    let time = begun.elapsed().as_secs();
    println!(
        "round {round}, {time} s: lost {lost}, duplicated {duplicated}, reordered {reordered}, \
         otherwise wrong {wrong}"
    );
    for (what, count) in counts {
        println!("  {count:>9} {what}");
    }
    for why in why {
        println!("  {}", why.chars().take(2000).collect::<String>());
    }
}
