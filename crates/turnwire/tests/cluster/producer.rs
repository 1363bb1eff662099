//! An external agent that publishes random replies, and repeats what was not acknowledged.

use crate::checker::Violation;
use crate::client::Client;
use crate::connection::Request;
use crate::harness::{ClusterTest, pause};
use crate::history::Append;
use crate::published_reply::published_reply;
use std::time::Duration;
use turnwire_testkit::one_in;

/// About so many events per session.
const EVENTS_PER_SESSION: usize = 250;

/// The longest pause between two requests.
const MAX_PAUSE: Duration = Duration::from_millis(40);

/// Publishes sessions until the test ends.
pub fn run(client: &mut Client) {
    while !client.test.is_ending() {
        let session = client.test.clone().create_session(client, "external");
        let mut producer = Producer::new(&session.id, client.test.next_number());
        let (mut sent, mut replies) = (0, 0);
        while sent < EVENTS_PER_SESSION && !client.test.is_ending() {
            replies += 1;
            let mut events =
                published_reply(&mut client.rng, &format!("{}-r{replies}", session.id));
            while !events.is_empty() {
                let size = client.rng.usize(1..=16).min(events.len());
                let batch: Vec<(String, String)> = events.drain(..size).collect();
                producer.publish(client, &batch);
                sent += size;
                if one_in(&mut client.rng, 4) {
                    read_elsewhere(client, &session.id);
                }
                pause(MAX_PAUSE.mul_f64(client.rng.f64()));
            }
        }
        session.settle();
    }
}

/// Another node has what was just acknowledged.
fn read_elsewhere(client: &mut Client, session: &str) {
    client.move_on();
    client.test.clone().view(client, session);
}

/// One writer of one session.
pub struct Producer {
    session: String,
    writer: usize,
    fence: u64,
}

impl Producer {
    pub fn new(session: &str, writer: usize) -> Self {
        Self { session: session.to_owned(), writer, fence: 1 }
    }

    /// Another process continues.
    pub fn raise_fence(&mut self) {
        self.fence += 1;
    }

    /// Sends events once. Returns whether they were acknowledged.
    pub fn publish_once(
        &mut self,
        client: &mut Client,
        events: &[(String, String)],
        is_first_attempt: bool,
    ) -> bool {
        let history = &client.test.clone().history;
        let body = events.iter().map(|(_, json)| json.as_str()).collect::<Vec<_>>().join("\n");
        let path = format!("/v1/sessions/{}/events", self.session);
        let request = Request::new("POST", path, body)
            .header("turnwire-producer", format!("{}.{}", self.session, self.fence))
            .header("content-type", "application/x-ndjson");
        let began = history.now();
        let Some(answer) = client.call_once(&request) else {
            // A returning producer may be another process.
            if one_in(&mut client.rng, 3) {
                self.raise_fence();
            }
            return false;
        };
        let acknowledged = history.now();
        let (json, count) = (answer.json(), events.len() as u64);
        let (stored, repeated) = (json["stored"].as_u64(), json["repeated"].as_u64());
        let total = stored.zip(repeated).map(|(stored, repeated)| stored + repeated);
        let is_whole = stored == Some(count) || repeated == Some(count);
        if answer.status != 200 || total != Some(count) || !is_whole {
            let why = format!("{count} events were answered {}: {}", answer.status, answer.text());
            history.record(&self.session, |session| session.wrong.push((Violation::Wrong, why)));
            return true;
        }
        if is_first_attempt && repeated != Some(0) {
            // The owner stored them and broke off, and the node that has the client sent them again.
            history.count("first attempts that a node repeated", 1);
        }
        if !is_first_attempt {
            let was_stored = repeated == Some(count);
            let what = if was_stored {
                "retried appends that were stored"
            } else {
                "retried appends that were not"
            };
            history.count(what, 1);
        }
        let append = Append {
            began,
            acknowledged,
            writer: self.writer,
            names: events.iter().map(|(id, _)| id.clone()).collect(),
            head: ClusterTest::acknowledged_head(&json),
            is_exact: stored == Some(count),
        };
        history.record(&self.session, |session| session.appends.push(append));
        history.count("events acknowledged", count);
        true
    }

    /// Sends events until they are acknowledged.
    pub fn publish(&mut self, client: &mut Client, events: &[(String, String)]) {
        let mut is_first_attempt = true;
        while !self.publish_once(client, events, is_first_attempt) {
            is_first_attempt = false;
        }
    }
}
