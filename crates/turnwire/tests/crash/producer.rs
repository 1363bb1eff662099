//! An external agent that publishes random replies, and repeats what was not acknowledged.

use crate::chat_client::send_keyed;
use crate::expectations::{Expectations, Kind, Stage, Violation};
use crate::http::{Client, Request};
use crate::published_reply::published_reply;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use turnwire_testkit::{Rng, one_in};

/// Events per session.
const EVENTS_PER_SESSION: usize = 1500;

pub fn run(expected: &Arc<Expectations>, name: &str, mut rng: Rng) {
    let mut client = Client::new(&expected.server);
    for number in 0.. {
        if expected.server.is_ending() {
            break;
        }
        let id = format!("{name}-{number}");
        expected.create_session(&mut client, &id, Kind::External);
        let mut producer =
            Producer { expected, client: &mut client, session: id.clone(), fence: 1, made: 0 };
        producer.run_replies(&mut rng);
        expected.with_session(&id, |session| session.stage = Stage::Settled);
    }
    expected.count("requests broken off", client.broken);
}

struct Producer<'p> {
    expected: &'p Expectations,
    client: &'p mut Client,
    session: String,
    fence: u64,
    /// How many replies were started.
    made: u64,
}

impl Producer<'_> {
    fn run_replies(&mut self, rng: &mut Rng) {
        let mut to_do: Vec<String> = Vec::new();
        let mut sent = 0;
        while sent < EVENTS_PER_SESSION && !self.expected.server.is_ending() {
            let size = rng.usize(1..=64);
            while to_do.len() < size {
                self.next_reply(rng, &mut to_do);
            }
            sent += self.publish(rng, to_do.drain(..size).collect());
            if one_in(rng, 12) {
                let request = Request::post(
                    format!("/v1/sessions/{}/messages", self.session),
                    &json!({"id": format!("{}-m{sent}", self.session), "content": "are you there?"}),
                );
                send_keyed(self.expected, self.client, &self.session, request);
            }
            self.expected.server.pause(Duration::from_micros(rng.u64(..12_000)));
        }
        // End the open reply.
        for rest in to_do.chunks(64) {
            self.publish(rng, rest.to_vec());
        }
    }

    fn next_reply(&mut self, rng: &mut Rng, to_do: &mut Vec<String>) {
        self.made += 1;
        let events = published_reply(rng, &format!("{}-r{}", self.session, self.made));
        to_do.extend(events.into_iter().map(|(_, json)| json));
    }

    /// Sends events until they are acknowledged, sometimes with repeated ones.
    fn publish(&mut self, rng: &mut Rng, events: Vec<String>) -> usize {
        let count = events.len();
        let (from, end) = self.expected.with_session(&self.session, |session| {
            let from = session.published.sent.len();
            session.published.sent.extend(events);
            (from, from + count)
        });
        let mut attempts = 0;
        loop {
            let again = if one_in(rng, 4) { rng.usize(..6).min(from) } else { 0 };
            let body = self.expected.with_session(&self.session, |session| {
                session.published.under_way = Some(end);
                session.published.sent.get(from - again..end).unwrap_or_default().join("\n")
            });
            let producer = format!("{}.{}", self.session, self.fence);
            let request =
                Request::new("POST", format!("/v1/sessions/{}/events", self.session), body)
                    .header("turnwire-producer", producer)
                    .header("content-type", "application/x-ndjson");
            let Some(answer) = self.client.call_once(&request) else {
                attempts += 1;
                // A returning producer may be another process.
                self.fence += u64::from(one_in(rng, 3));
                continue;
            };
            let json = answer.json();
            let (stored, repeated) = (json["stored"].as_u64(), json["repeated"].as_u64());
            let total = stored.zip(repeated).map(|(stored, repeated)| stored + repeated);
            if answer.status != 200 || total != Some((count + again) as u64) {
                let text = answer.text();
                self.expected.report(Violation::Wrong, format!("{}: {text}", self.session));
                return count;
            }
            // Without a crash everything is new except repeats.
            if repeated != Some(again as u64) && (attempts == 0 || stored != Some(0)) {
                let why = format!("{}: sent {count} and {again} again: {json}", self.session);
                self.expected.report(Violation::Wrong, why);
            }
            if attempts > 0 {
                let was = match stored {
                    Some(0) => "publishes broken off that were durable",
                    _ => "publishes broken off that were not",
                };
                self.expected.count(was, 1);
            }
            self.expected.with_session(&self.session, |session| {
                session.published.acknowledged = end;
                session.published.under_way = None;
            });
            self.expected.count("events acknowledged", count as u64);
            return count;
        }
    }
}
