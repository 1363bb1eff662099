//! Somebody who stores bytes, forks sessions and deletes them.

use crate::chatter::ask;
use crate::http::{Client, Request};
use crate::world::{Book, Broken, Kind, Stage, World, hash};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use turnwire_testkit::{Rng, one_in, pick};

/// What was stored, by its address.
pub type Blobs = BTreeMap<String, Vec<u8>>;

pub fn run(world: &Arc<World>, mut rng: Rng) -> Blobs {
    let mut client = Client::new(&world.beacon);
    let mut blobs = Blobs::new();
    for number in 0_u64.. {
        if world.beacon.is_over() {
            break;
        }
        let mut janitor = Janitor { world, client: &mut client, rng: &mut rng };
        match number % 4 {
            0 => janitor.store(&mut blobs),
            1 => janitor.fork(number),
            2 => janitor.make_and_delete(&format!("victim-{number}")),
            _ => janitor.tidy_up(),
        }
        world.beacon.pause(Duration::from_micros(rng.u64(..60_000)));
    }
    world.count("requests broken off", client.broken);
    blobs
}

struct Janitor<'j> {
    world: &'j World,
    client: &'j mut Client,
    rng: &'j mut Rng,
}

impl Janitor<'_> {
    fn store(&mut self, blobs: &mut Blobs) {
        let size = self.rng.usize(1..100_000);
        let bytes: Vec<u8> = std::iter::repeat_with(|| self.rng.u8(..)).take(size).collect();
        let answer = self.client.sure(&Request::new("POST", "/v1/blobs", bytes.clone()));
        match answer.json()["id"].as_str() {
            Some(id) => {
                blobs.insert(format!("/v1/blobs/{}", id.trim_start_matches("sha256:")), bytes);
                self.world.count("blobs", 1);
            }
            None => self.world.report(Broken::Wrong, format!("a blob: {}", answer.text())),
        }
    }

    /// A fork is whole or not there at all, whenever the server is killed.
    fn fork(&mut self, number: u64) {
        let Some(source) = self.any(|book| {
            book.kind != Kind::Fork && matches!(book.stage, Stage::Active | Stage::Settled)
        }) else {
            return;
        };
        let id = format!("fork-{number}");
        let log = Request::get(format!("/v1/sessions/{source}/events"))
            .header("accept", "application/x-ndjson");
        let body = self.client.sure(&log).body;
        let lines: Vec<&[u8]> =
            body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let at = self.rng.usize(..=lines.len());
        let expected: Vec<u64> = lines.iter().take(at).map(|line| hash(line)).collect();
        let fork = Request::post(format!("/v1/sessions/{source}/fork?at={at}"), &json!({"id": id}));
        let view = loop {
            if let Some(answer) = self.client.once(&fork) {
                if answer.status != 201 {
                    let why = format!("{id}: a fork of {source} at {at}: {}", answer.text());
                    self.world.report(Broken::Wrong, why);
                    return;
                }
                break answer.json();
            }
            let answer = self.client.sure(&Request::get(format!("/v1/sessions/{id}")));
            if answer.status == 404 {
                continue;
            }
            let view = answer.json();
            if view["last_seq"].as_u64() < Some(at as u64) || view["status"] != "idle" {
                let why = format!("{id}: a fork of {source} at {at} is not whole: {view}");
                self.world.report(Broken::Wrong, why);
            }
            break view;
        };
        let epoch = view["epoch"].as_str().unwrap_or_default().to_owned();
        let book = Book {
            epoch,
            kind: Kind::Fork,
            stage: Stage::Settled,
            touched: true,
            log: expected,
            ..Book::default()
        };
        self.world.books().insert(id, book);
        self.world.count("forks", 1);
    }

    /// Deletes a session while its agent is at work, and sometimes makes it again.
    fn make_and_delete(&mut self, id: &str) {
        self.world.make(self.client, id, Kind::Demo);
        for number in 0..self.rng.usize(..4) {
            let message = json!({"id": format!("{id}-m{number}"), "content": "long 300"});
            let path = format!("/v1/sessions/{id}/messages?queue=true");
            ask(self.world, self.client, id, Request::post(path, &message));
        }
        self.world.beacon.pause(Duration::from_micros(self.rng.u64(..20_000)));
        let epoch = self.world.with(id, |book| book.epoch.clone());
        self.delete(id);
        if one_in(self.rng, 2) {
            self.world.make(self.client, id, Kind::Demo);
            let again = self.world.with(id, |book| book.epoch.clone());
            if again == epoch {
                let why = format!("{id} was deleted and made again, and is the same: {epoch}");
                self.world.report(Broken::Wrong, why);
            }
            let message = json!({"id": format!("{id}-m0"), "content": "hello"});
            let path = format!("/v1/sessions/{id}/messages");
            ask(self.world, self.client, id, Request::post(path, &message));
            self.delete(id);
        }
    }

    /// Deletes one of those that have come to rest, while others still look at it.
    fn tidy_up(&mut self) {
        let settled = |book: &Book| book.stage == Stage::Settled;
        if let Some(id) = self.any(settled).filter(|_| one_in(self.rng, 2)) {
            self.delete(&id);
        }
    }

    fn any(&mut self, fits: impl Fn(&Book) -> bool) -> Option<String> {
        let books = self.world.books();
        let fitting = books.iter().filter(|(id, book)| !id.starts_with("victim") && fits(book));
        let ids: Vec<&String> = fitting.map(|(id, _)| id).collect();
        if ids.is_empty() { None } else { Some((*pick(self.rng, &ids)).clone()) }
    }

    fn delete(&mut self, id: &str) {
        self.world.with(id, |book| book.stage = Stage::Deleting);
        let delete = Request::new("DELETE", format!("/v1/sessions/{id}"), "");
        let mut is_first = true;
        loop {
            let Some(answer) = self.client.once(&delete) else {
                is_first = false;
                continue;
            };
            match answer.status {
                204 => break,
                // Then it was durable before the server went.
                404 if !is_first => break,
                status => {
                    let why = format!("{id} was not deleted: {status} {}", answer.text());
                    self.world.report(Broken::Wrong, why);
                    break;
                }
            }
        }
        self.world.with(id, |book| book.stage = Stage::Deleted);
        self.world.count("sessions deleted", 1);
    }
}
