//! The database is away for a while, or fails over to a standby.

use crate::client::Client;
use crate::connection::{Connection, Request};
use crate::harness::{ClusterTest, pause};
use crate::load::{Load, check, print_summary, read_everything};
use crate::nodes::{Cluster, ClusterOptions};
use crate::producer::Producer;
use crate::proxy::Link;
use crate::published_reply::published_reply;
use crate::takeover::{WORDS, check_reply_ends, wait_for_growth};
use crate::users;
use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_testkit::Rng;
use turnwire_testkit::net::SseParser;
use turnwire_testkit::postgres::{PostgresServer, free_port};

/// How long the database is away: longer than a lease.
const AWAY: Duration = Duration::from_secs(4);

/// The longest time until writes go on after the database is back.
const MAX_RECOVERY: Duration = Duration::from_secs(30);

#[test]
fn a_node_survives_a_database_that_is_away_for_a_while() {
    database_is_away(&ClusterOptions::ONE_NODE);
}

#[test]
fn three_nodes_survive_a_database_that_is_away_for_a_while() {
    database_is_away(&ClusterOptions::THREE_NODES);
}

/// Watchers stay connected, producers get 503 with `Retry-After`, and everything goes on when the database is back, also a
/// reply that was being written.
fn database_is_away(options: &ClusterOptions) {
    let Some(cluster) = Cluster::start("a database that is away", options) else { return };
    let test = ClusterTest::new(cluster.addresses());
    let mut client = Client::at(&test, 0);
    let session = test.create_session(&mut client, "external");
    let mut producer = Producer::new(&session.id, 0);
    let mut rng = Rng::new();
    producer.publish(&mut client, &published_reply(&mut rng, "before"));
    let addresses = test.addresses.iter();
    let mut watchers: Vec<Stream> =
        addresses.map(|address| Stream::open(address, &session.id)).collect();
    for watcher in &mut watchers {
        watcher.read_until("before");
    }
    let replying = test.create_session(&mut client, "demo");
    assert!(users::send(&mut client, &replying.id, 0, 0, WORDS, false));
    wait_for_growth(&mut client, &replying.id, 0);

    cluster.nodes.iter().for_each(|node| node.database.set(Link::Cut));
    let begun = Instant::now();
    let events = published_reply(&mut rng, "after");
    let mut refused = 0;
    while begun.elapsed() < AWAY {
        let is_stored = producer.publish_once(&mut client, &events, refused == 0);
        assert!(!is_stored, "it was acknowledged without a database");
        refused += 1;
    }
    assert!(
        test.history.counts()["requests refused with 503"] > 0,
        "nobody was told to come again"
    );
    cluster.nodes.iter().for_each(|node| node.database.set(Link::Open));
    let begun = Instant::now();
    while !producer.publish_once(&mut client, &events, false) {
        assert!(begun.elapsed() < MAX_RECOVERY, "writes do not go on");
    }
    println!("writes go on after {} ms; {refused} were refused", begun.elapsed().as_millis());
    // On the same connections as before.
    for watcher in &mut watchers {
        watcher.read_until("after");
    }
    session.settle();
    check_reply_ends(&mut client, &test, &replying);
    read_everything(&cluster, &test);
    let findings = check(&cluster, &test);
    print_summary(&cluster, &test, &findings);
    assert!(findings.is_empty(), "{findings}");
}

/// A subscription that must not end.
struct Stream {
    connection: Connection,
    parser: SseParser,
}

impl Stream {
    fn open(address: &str, session: &str) -> Self {
        let mut connection = Connection::open(address).unwrap();
        let path = format!("/v1/sessions/{session}/events?raw=true");
        connection.send(&Request::get(path).header("accept", "text/event-stream")).unwrap();
        assert_eq!(connection.read_head().unwrap().status, 200);
        Self { connection, parser: SseParser::default() }
    }

    /// Reads until a reply ends.
    fn read_until(&mut self, reply: &str) {
        let begun = Instant::now();
        loop {
            let chunk = self.connection.read_chunk().unwrap();
            let chunk = chunk.unwrap_or_else(|| panic!("the stream ended before {reply}"));
            let mut events = self.parser.feed(&chunk).into_iter().filter_map(|frame| frame.data);
            let is_end = |event: &String| event.contains("\"REPLY_END\"") && event.contains(reply);
            if events.any(|event| is_end(&event)) {
                return;
            }
            assert!(begun.elapsed() < MAX_RECOVERY, "{reply} does not come");
        }
    }
}

#[test]
fn one_node_goes_on_when_the_database_fails_over() {
    database_fails_over(&ClusterOptions::ONE_NODE);
}

#[test]
fn three_nodes_go_on_when_the_database_fails_over() {
    database_fails_over(&ClusterOptions::THREE_NODES);
}

/// The primary is killed and its synchronous standby promoted, `FAILOVERS` times, while everybody is at work.
fn database_fails_over(options: &ClusterOptions) {
    let what = "a database that fails over";
    let failovers = env::var("FAILOVERS").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let Some(mut primary) = PostgresServer::start(what, &[]) else { return };
    let name = primary.create_database();
    let port = free_port();
    let mut standby = primary.start_standby(what, port).unwrap();
    let both = format!("127.0.0.1:{},127.0.0.1:{port}/", primary.port());
    let url = primary.url(&name).replace(&format!("127.0.0.1:{}/", primary.port()), &both);
    let url = format!("{url}?target_session_attrs=read-write");
    let cluster = Cluster::start_on(options, |_| url.clone());
    let load = Load::start(&cluster, &mut Rng::new());
    for number in 1..=failovers {
        wait_for_progress(&load.test);
        primary.kill();
        let begun = Instant::now();
        standby.promote();
        let promoted = begun.elapsed();
        wait_for_progress(&load.test);
        let (promoted, back) = (promoted.as_millis(), begun.elapsed().as_millis());
        println!("failover {number}: promoted after {promoted} ms, at work after {back} ms");
        let port = primary.port();
        primary = standby;
        standby = primary.start_standby(what, port).unwrap();
    }
    let test = load.test.clone();
    let findings = load.finish(&cluster);
    print_summary(&cluster, &test, &findings);
    assert!(findings.is_empty(), "{findings}");
    drop((cluster, primary, standby));
}

/// Waits until more was acknowledged.
fn wait_for_progress(test: &Arc<ClusterTest>) {
    let count = || test.history.counts().get("events acknowledged").copied().unwrap_or_default();
    let (begun, before) = (Instant::now(), count());
    while count() < before + 50 {
        assert!(begun.elapsed() < MAX_RECOVERY * 2, "nothing is acknowledged");
        pause(Duration::from_millis(10));
    }
}
