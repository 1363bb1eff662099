//! How long a session stays without an owner, and what a node may do that has lost its sessions.

use crate::client::Client;
use crate::connection::{Connection, Request};
use crate::harness::{ClusterTest, KnownSession, pause};
use crate::history::LogEvent;
use crate::load::{check, print_summary, read_everything};
use crate::nodes::{Cluster, ClusterOptions, LEASE};
use crate::producer::Producer;
use crate::published_reply::published_reply;
use crate::reader::read_log;
use crate::users;
use crate::watcher::{WatchedWire, Watcher};
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use turnwire_testkit::Rng;

/// Makes the demo agent speak for some seconds.
pub const WORDS: &str = "long 1500";

/// What a take-over may take longer than promised, on a machine that does other things as well.
const SLACK: Duration = Duration::from_secs(5);

/// How long a node hangs.
const HANG: Duration = Duration::from_secs(4);

fn start_cluster(what: &str) -> Option<(Cluster, Arc<ClusterTest>)> {
    let cluster = Cluster::start(what, &ClusterOptions::THREE_NODES)?;
    let test = ClusterTest::new(cluster.addresses());
    Some((cluster, test))
}

fn finish(cluster: &Cluster, test: &ClusterTest) {
    read_everything(cluster, test);
    let findings = check(cluster, test);
    print_summary(cluster, test, &findings);
    assert!(findings.is_empty(), "{findings}");
}

/// Publishes to a session through node 0, which owns it from then on, ends that node, and measures until another node
/// has stored the next events.
fn measure_takeover(what: &str, end: impl FnOnce(&Cluster)) -> Option<Duration> {
    let (cluster, test) = start_cluster(what)?;
    let mut owner = Client::at(&test, 0);
    let session = test.create_session(&mut owner, "external");
    let mut producer = Producer::new(&session.id, 0);
    let mut rng = Rng::new();
    producer.publish(&mut owner, &published_reply(&mut rng, "before"));
    end(&cluster);
    let begun = Instant::now();
    producer.publish(&mut Client::at(&test, 1), &published_reply(&mut rng, "after"));
    let time = begun.elapsed();
    println!("{what}: {} ms, lease {} ms", time.as_millis(), LEASE.as_millis());
    session.settle();
    cluster.nodes[0].heal();
    finish(&cluster, &test);
    Some(time)
}

#[test]
fn another_node_takes_over_when_the_lease_of_a_killed_node_ends() {
    let time = measure_takeover("take-over after SIGKILL", |cluster| cluster.nodes[0].kill());
    assert!(time.is_none_or(|time| time < LEASE + SLACK), "{time:?}");
}

#[test]
fn a_node_that_shuts_down_hands_its_sessions_over_at_once() {
    let time = measure_takeover("take-over after SIGTERM", |cluster| cluster.nodes[0].terminate());
    assert!(time.is_none_or(|time| time < SLACK), "{time:?}");
}

#[test]
fn a_reply_of_a_killed_node_goes_on_at_another() {
    let Some((cluster, test)) = start_cluster("a reply of a killed node") else { return };
    let mut owner = Client::at(&test, 0);
    let session = test.create_session(&mut owner, "demo");
    assert!(users::send(&mut owner, &session.id, 0, 0, WORDS, false));
    let mut other = Client::at(&test, 1);
    wait_for_growth(&mut other, &session.id, 0);
    cluster.nodes[0].kill();
    let begun = Instant::now();
    let head = read_log(&mut other, &session.id).unwrap().len();
    wait_for_growth(&mut other, &session.id, head);
    println!(
        "the reply goes on after {} ms, lease {} ms",
        begun.elapsed().as_millis(),
        LEASE.as_millis()
    );
    assert!(begun.elapsed() < LEASE + SLACK, "{:?}", begun.elapsed());
    check_reply_ends(&mut other, &test, &session);
    cluster.nodes[0].heal();
    finish(&cluster, &test);
}

/// Waits until the demo agent has spoken. It says what it says without a take-over.
pub fn check_reply_ends(client: &mut Client, test: &ClusterTest, session: &KnownSession) {
    users::wait_until_idle(client, &session.id);
    session.settle();
    let undisturbed = test.create_session(client, "demo");
    assert!(users::send(client, &undisturbed.id, 0, 0, WORDS, false));
    users::wait_until_idle(client, &undisturbed.id);
    undisturbed.settle();
    for session in [session, &undisturbed] {
        users::check_replies(client, &session.id);
    }
}

pub fn wait_for_growth(client: &mut Client, session: &str, head: usize) -> Vec<LogEvent> {
    let begun = Instant::now();
    loop {
        if let Some(log) = read_log(client, session).filter(|log| log.len() > head) {
            return log;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{session} stays at {head}");
        pause(Duration::from_millis(10));
    }
}

#[test]
fn a_node_that_hangs_longer_than_its_lease_writes_nothing_when_it_wakes() {
    let Some((cluster, test)) = start_cluster("a node that hangs") else { return };
    let mut owner = Client::at(&test, 0);
    // The demo agent speaks on this node, and a producer publishes through it.
    let demo_session = test.create_session(&mut owner, "demo");
    let session = test.create_session(&mut owner, "external");
    assert!(users::send(&mut owner, &demo_session.id, 0, 0, WORDS, false));
    let mut rng = Rng::new();
    let mut producer = Producer::new(&session.id, 1);
    let mut events = published_reply(&mut rng, "reply");
    let late = events.split_off(events.len() / 2);
    producer.publish(&mut owner, &events);

    cluster.nodes[0].pause();
    // A write that reaches the node while it hangs: it is read when the node wakes.
    let address = cluster.addresses()[0].clone();
    let stale = events.first().map(|(_, json)| json.replace("reply-0", "stale")).unwrap();
    let path = format!("/v1/sessions/{}/events", session.id);
    let request = Request::new("POST", path, stale)
        .header("turnwire-producer", format!("{}.1", session.id))
        .header("content-type", "application/x-ndjson");
    let sent = thread::spawn(move || Connection::open(&address)?.call(&request));
    // Another node takes both sessions over meanwhile.
    let mut other = Client::at(&test, 1);
    let (published, at) = (Instant::now(), read_log(&mut other, &demo_session.id).unwrap().len());
    producer.raise_fence();
    producer.publish(&mut other, &late);
    println!("the producer goes on after {} ms", published.elapsed().as_millis());
    wait_for_growth(&mut other, &demo_session.id, at);
    thread::sleep(HANG.saturating_sub(published.elapsed()));
    cluster.nodes[0].resume();

    // The old fence is refused, or nobody answers: in no case it is stored.
    match sent.join().unwrap() {
        Ok(answer) => assert!(matches!(answer.status, 409 | 503), "{}", answer.text()),
        Err(error) => assert!(error.kind() != ErrorKind::InvalidData, "{error}"),
    }
    check_reply_ends(&mut other, &test, &demo_session);
    let log = read_log(&mut other, &session.id).unwrap();
    assert!(log.iter().all(|event| event.name != "stale"), "the late write was stored");
    session.settle();
    finish(&cluster, &test);
}

#[test]
fn watchers_of_a_node_that_hangs_come_back_elsewhere() {
    let Some((cluster, test)) = start_cluster("watchers of a node that hangs") else { return };
    let mut writer = Client::at(&test, 1);
    let session = test.create_session(&mut writer, "external");
    let mut producer = Producer::new(&session.id, 0);
    let mut rng = Rng::new();
    producer.publish(&mut writer, &published_reply(&mut rng, "before"));
    let watchers: Vec<_> = [WatchedWire::Raw, WatchedWire::Merged, WatchedWire::WebSocket]
        .into_iter()
        .map(|wire| {
            let mut client = Client::at(&test, 0);
            let mut watcher = Watcher::new(test.clone(), session.clone(), wire);
            thread::spawn(move || watcher.follow(&mut client))
        })
        .collect();
    wait_until_all_have(&test, &session.id, "before", watchers.len());
    cluster.nodes[0].pause();
    producer.publish(&mut writer, &published_reply(&mut rng, "after"));
    session.settle();
    for watcher in watchers {
        watcher.join().unwrap();
    }
    cluster.nodes[0].resume();
    finish(&cluster, &test);
}

/// Waits until so many watchers have received the events of a reply.
fn wait_until_all_have(test: &ClusterTest, session: &str, reply: &str, watchers: usize) {
    let begun = Instant::now();
    loop {
        let (mut head, mut arrived) = (0, 0);
        test.history.record(session, |history| {
            let is_of_reply = |name: &String| name.starts_with(reply);
            let appends =
                history.appends.iter().filter(|append| append.names.iter().any(is_of_reply));
            head = appends.map(|append| append.head).max().unwrap_or_default();
            arrived = history.shown.iter().filter(|shown| shown.seq == head).count();
        });
        if head > 0 && arrived >= watchers {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{arrived} watchers have {reply}");
        pause(Duration::from_millis(10));
    }
}

#[test]
fn a_session_is_read_and_written_at_every_node() {
    let Some((cluster, test)) = start_cluster("every node") else { return };
    let session = test.create_session(&mut Client::at(&test, 0), "external");
    let mut producer = Producer::new(&session.id, 0);
    let mut rng = Rng::new();
    for round in 0..10 {
        let mut writer = Client::at(&test, round % cluster.nodes.len());
        producer.publish(&mut writer, &published_reply(&mut rng, &format!("r{round}")));
        // The check at the end knows which of these would be stale.
        for node in 0..cluster.nodes.len() {
            assert!(read_log(&mut Client::at(&test, node), &session.id).is_some(), "node {node}");
        }
    }
    session.settle();
    finish(&cluster, &test);
}
