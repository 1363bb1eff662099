//! A client that stores blobs, and forks and deletes sessions.

use crate::chat_client::send_keyed;
use crate::expectations::{Expectations, Kind, SessionExpectation, Stage, Violation, hash_bytes};
use crate::http::{Client, Request};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use turnwire_testkit::{Rng, one_in, pick};

/// Stored blobs, by URL.
pub type Blobs = BTreeMap<String, Vec<u8>>;

pub fn run(expected: &Arc<Expectations>, mut rng: Rng) -> Blobs {
    let mut client = Client::new(&expected.server);
    let mut blobs = Blobs::new();
    for number in 0_u64.. {
        if expected.server.is_ending() {
            break;
        }
        let mut client = MaintenanceClient { expected, client: &mut client, rng: &mut rng };
        match number % 4 {
            0 => client.store_blob(&mut blobs),
            1 => client.fork(number),
            2 => client.make_and_delete(&format!("victim-{number}")),
            _ => client.delete_settled(),
        }
        expected.server.pause(Duration::from_micros(rng.u64(..60_000)));
    }
    expected.count("requests broken off", client.broken);
    blobs
}

struct MaintenanceClient<'j> {
    expected: &'j Expectations,
    client: &'j mut Client,
    rng: &'j mut Rng,
}

impl MaintenanceClient<'_> {
    fn store_blob(&mut self, blobs: &mut Blobs) {
        let size = self.rng.usize(1..100_000);
        let bytes: Vec<u8> = std::iter::repeat_with(|| self.rng.u8(..)).take(size).collect();
        let answer =
            self.client.call_until_answered(&Request::new("POST", "/v1/blobs", bytes.clone()));
        match answer.json()["id"].as_str() {
            Some(id) => {
                blobs.insert(format!("/v1/blobs/{}", id.trim_start_matches("sha256:")), bytes);
                self.expected.count("blobs", 1);
            }
            None => self.expected.report(Violation::Wrong, format!("a blob: {}", answer.text())),
        }
    }

    /// A fork is complete or absent, whenever the server is killed.
    fn fork(&mut self, number: u64) {
        let Some(source) = self.pick_session(|session| {
            session.kind != Kind::Fork && matches!(session.stage, Stage::Active | Stage::Settled)
        }) else {
            return;
        };
        let id = format!("fork-{number}");
        let log = Request::get(format!("/v1/sessions/{source}/events"))
            .header("accept", "application/x-ndjson");
        let body = self.client.call_until_answered(&log).body;
        let lines: Vec<&[u8]> =
            body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let at = self.rng.usize(..=lines.len());
        let expected: Vec<u64> = lines.iter().take(at).map(|line| hash_bytes(line)).collect();
        let fork = Request::post(format!("/v1/sessions/{source}/fork?at={at}"), &json!({"id": id}));
        let view = loop {
            if let Some(answer) = self.client.call_once(&fork) {
                if answer.status != 201 {
                    let why = format!("{id}: a fork of {source} at {at}: {}", answer.text());
                    self.expected.report(Violation::Wrong, why);
                    return;
                }
                break answer.json();
            }
            let answer =
                self.client.call_until_answered(&Request::get(format!("/v1/sessions/{id}")));
            if answer.status == 404 {
                continue;
            }
            let view = answer.json();
            if view["last_seq"].as_u64() < Some(at as u64) || view["status"] != "idle" {
                let why = format!("{id}: a fork of {source} at {at} is not whole: {view}");
                self.expected.report(Violation::Wrong, why);
            }
            break view;
        };
        let epoch = view["epoch"].as_str().unwrap_or_default().to_owned();
        let session = SessionExpectation {
            epoch,
            kind: Kind::Fork,
            stage: Stage::Settled,
            touched: true,
            log: expected,
            ..SessionExpectation::default()
        };
        self.expected.sessions().insert(id, session);
        self.expected.count("forks", 1);
    }

    /// Deletes a session during a reply, and sometimes creates it again.
    fn make_and_delete(&mut self, id: &str) {
        self.expected.create_session(self.client, id, Kind::Demo);
        for number in 0..self.rng.usize(..4) {
            let message = json!({"id": format!("{id}-m{number}"), "content": "long 300"});
            let path = format!("/v1/sessions/{id}/messages?queue=true");
            send_keyed(self.expected, self.client, id, Request::post(path, &message));
        }
        self.expected.server.pause(Duration::from_micros(self.rng.u64(..20_000)));
        let epoch = self.expected.with_session(id, |session| session.epoch.clone());
        self.delete(id);
        if one_in(self.rng, 2) {
            self.expected.create_session(self.client, id, Kind::Demo);
            let again = self.expected.with_session(id, |session| session.epoch.clone());
            if again == epoch {
                let why = format!("{id} was deleted and made again, and is the same: {epoch}");
                self.expected.report(Violation::Wrong, why);
            }
            let message = json!({"id": format!("{id}-m0"), "content": "hello"});
            let path = format!("/v1/sessions/{id}/messages");
            send_keyed(self.expected, self.client, id, Request::post(path, &message));
            self.delete(id);
        }
    }

    /// Deletes a settled session that others still follow.
    fn delete_settled(&mut self) {
        let settled = |session: &SessionExpectation| session.stage == Stage::Settled;
        if let Some(id) = self.pick_session(settled).filter(|_| one_in(self.rng, 2)) {
            self.delete(&id);
        }
    }

    fn pick_session(&mut self, fits: impl Fn(&SessionExpectation) -> bool) -> Option<String> {
        let books = self.expected.sessions();
        let fitting =
            books.iter().filter(|(id, session)| !id.starts_with("victim") && fits(session));
        let ids: Vec<&String> = fitting.map(|(id, _)| id).collect();
        if ids.is_empty() { None } else { Some((*pick(self.rng, &ids)).clone()) }
    }

    fn delete(&mut self, id: &str) {
        self.expected.with_session(id, |session| session.stage = Stage::Deleting);
        let delete = Request::new("DELETE", format!("/v1/sessions/{id}"), "");
        let mut is_first = true;
        loop {
            let Some(answer) = self.client.call_once(&delete) else {
                is_first = false;
                continue;
            };
            match answer.status {
                204 => break,
                // Then it was durable before the server died.
                404 if !is_first => break,
                status => {
                    let why = format!("{id} was not deleted: {status} {}", answer.text());
                    self.expected.report(Violation::Wrong, why);
                    break;
                }
            }
        }
        self.expected.with_session(id, |session| session.stage = Stage::Deleted);
        self.expected.count("sessions deleted", 1);
    }
}
