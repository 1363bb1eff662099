//! Kills the server again and again while everybody uses it.

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
/// The server lives for less than this.
const MAX_LIFETIME: Duration = Duration::from_millis(300);

/// A stop takes less than this.
const MAX_STOP_TIME: Duration = Duration::from_secs(5);

/// Everybody who uses the server.
struct Load {
    writers: Vec<JoinHandle<()>>,
    janitor: JoinHandle<Blobs>,
    watchers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(world: &Arc<Expectations>, rng: &mut Rng) -> Self {
        let mut writers = Vec::new();
        for number in 0..PRODUCERS {
            let (world, rng) = (world.clone(), rng.fork());
            let name = format!("producer{number}");
            writers.push(thread::spawn(move || producer::run(&world, &name, rng)));
        }
        for number in 0..CHATTERS {
            let (world, rng) = (world.clone(), rng.fork());
            let name = format!("chat{number}");
            writers.push(thread::spawn(move || chat_client::run(&world, &name, rng)));
        }
        let watchers = (0..WATCHERS).map(|number| {
            let (world, rng) = (world.clone(), rng.fork());
            thread::spawn(move || watcher::run(&world, number, rng))
        });
        let watchers = watchers.collect();
        let (world, rng) = (world.clone(), rng.fork());
        Self { writers, janitor: thread::spawn(move || maintenance::run(&world, rng)), watchers }
    }
}

/// How a server ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EndMode {
    /// It is killed; now and then it is stopped in order.
    Killed,
    InOrder,
}

/// Runs so many rounds in a folder, and tells what was found.
pub fn run(folder: &Path, world: &Arc<Expectations>, rounds: u64, ends: EndMode) {
    let mut rng = Rng::with_seed(world.seed);
    let mut said = HashMap::new();
    let begun = Instant::now();
    let mut server = Server::start(folder);
    world.server.set_running(&server.address);
    let load = Load::start(world, &mut rng);
    for round in 1..=rounds {
        // The one thing here that time decides: when the server dies.
        thread::sleep(MAX_LIFETIME.mul_f64(rng.f64()));
        if ends == EndMode::InOrder || one_in(&mut rng, 10) {
            stop(server);
            world.count("stops in order", 1);
        } else {
            note_what_is_under_way(world);
            server.kill();
        }
        world.server.set_stopped();
        server = restart(folder, &mut rng, world);
        world.count("rounds", 1);
        LogCheck::new(world, &server.address, &mut said).unwrap().check_touched(&mut rng);
        if !world.has_no_violations() {
            return print_summary(world, round, begun);
        }
        if round % 50 == 0 {
            print_summary(world, round, begun);
        }
        world.server.set_running(&server.address);
    }
    world.server.stop_clients();
    for writer in load.writers {
        writer.join().unwrap();
    }
    let blobs = load.janitor.join().unwrap();
    // Everything has come to rest: whoever still watches comes back to see that.
    server.kill();
    world.server.set_stopped();
    server = Server::start(folder);
    world.server.set_running(&server.address);
    for watcher in load.watchers {
        watcher.join().unwrap();
    }
    LogCheck::new(world, &server.address, &mut said).unwrap().check_all(&blobs);
    stop(server);
    print_summary(world, rounds, begun);
    assert_doctor_finds_nothing(folder);
}

/// Has the server finish what it has begun.
fn stop(server: Server) {
    let begun = Instant::now();
    server.terminate();
    assert!(server.wait().success(), "the server did not stop in order");
    assert!(begun.elapsed() < MAX_STOP_TIME, "it took {:?} to stop", begun.elapsed());
}

/// Starts the server again; sometimes it is killed while it starts, too.
fn restart(folder: &Path, rng: &mut Rng, world: &Expectations) -> Server {
    while one_in(rng, 4) {
        let time = Duration::from_micros(rng.u64(..80_000));
        Server::start_and_kill(folder, || thread::sleep(time));
        world.count("kills while it started", 1);
    }
    Server::start(folder)
}

fn note_what_is_under_way(world: &Expectations) {
    let is_under_way = world.sessions().values().any(|book| {
        book.published.under_way.is_some()
            || book.requests.iter().any(|asked| asked.answer == RecordedAnswer::None)
    });
    world.count("kills while a write was under way", u64::from(is_under_way));
}

/// Nothing may be wrong with the file, or with what is made of the events.
fn assert_doctor_finds_nothing(folder: &Path) {
    let (status, text) = failure_output(turnwire(&["doctor", "--store", &store_url(folder)]));
    assert_eq!(status, Some(0), "{text}");
}

#[expect(clippy::print_stdout, reason = "a long test tells how far it is")]
fn print_summary(world: &Expectations, round: u64, begun: Instant) {
    let Tally { lost, duplicated, reordered, wrong, why, counts } = &*world.tally();
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
