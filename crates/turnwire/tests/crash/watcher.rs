//! A subscriber that follows a session across restarts, and folds its events.

use crate::expectations::{Expectations, Stage, Violation, hash_bytes};
use crate::http::{Client, Connection, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use turnwire_core::{Event, EventKind, Folder};
use turnwire_testkit::{Rng, pick};

pub fn run(expected: &Arc<Expectations>, number: usize, mut rng: Rng) {
    let mut client = Client::new(&expected.server);
    let mut done: Vec<String> = Vec::new();
    loop {
        let session = {
            let books = expected.sessions();
            let active = books
                .iter()
                .filter(|(id, session)| session.stage == Stage::Active && !done.contains(id));
            let ids: Vec<&String> = active.map(|(id, _)| id).collect();
            if ids.is_empty() { None } else { Some((*pick(&mut rng, &ids)).clone()) }
        };
        match session {
            Some(id) => {
                let epoch = expected.sessions().get(&id).map(|session| session.epoch.clone());
                let mut watcher = Watcher {
                    expected,
                    epoch: epoch.unwrap_or_default(),
                    raw: number.is_multiple_of(2),
                    token: None,
                    last: 0,
                    folder: Folder::default(),
                    is_finished: false,
                    session: id.clone(),
                };
                watcher.follow(&mut client);
                done.push(id);
            }
            None if expected.server.is_ending() => break,
            None => expected.server.pause(std::time::Duration::from_millis(20)),
        }
    }
}

struct Watcher<'w> {
    expected: &'w Expectations,
    session: String,
    epoch: String,
    /// Reads the raw log, without merged deltas.
    raw: bool,
    token: Option<String>,
    last: u64,
    folder: Folder,
    /// The session was deleted, or a violation was reported.
    is_finished: bool,
}

impl Watcher<'_> {
    /// Follows the session until it has settled and all events were seen.
    fn follow(&mut self, client: &mut Client) {
        while !self.is_finished && !self.is_done(client) {
            let place = self.expected.server.wait_for_server();
            if let Err(error) = self.read_stream(&place.address) {
                let hangs =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(!hangs, "{}: a stream without a sign of life", self.session);
                self.expected.count("streams broken off", 1);
                if self.expected.server.wait_for_server().generation == place.generation {
                    self.expected.server.pause(std::time::Duration::from_millis(2));
                }
            }
        }
        if !self.is_finished {
            self.compare_with_server(client);
        }
    }

    fn session_stage(&self) -> Option<Stage> {
        let books = self.expected.sessions();
        let session = books.get(&self.session).filter(|session| session.epoch == self.epoch)?;
        Some(session.stage)
    }

    fn is_gone(&self) -> bool {
        !matches!(self.session_stage(), Some(Stage::Active | Stage::Settled))
    }

    fn is_done(&mut self, client: &mut Client) -> bool {
        if self.session_stage() == Some(Stage::Active) {
            return false;
        }
        let answer =
            client.call_until_answered(&Request::get(format!("/v1/sessions/{}", self.session)));
        let view = answer.json();
        if self.is_gone() {
            self.is_finished = true;
        } else if answer.status != 200 || view["epoch"] != *self.epoch {
            self.report_violation(Violation::Lost, &format!("is gone: {}", answer.text()));
        }
        self.is_finished || view["last_seq"].as_u64() == Some(self.last)
    }

    fn report_violation(&mut self, broken: Violation, why: &str) {
        self.is_finished = true;
        if !self.is_gone() {
            self.expected
                .report(broken, format!("{}: a watcher at {}: {why}", self.session, self.last));
        }
    }

    /// One connection, until the stream or the server ends.
    fn read_stream(&mut self, address: &str) -> io::Result<()> {
        let mut path = format!("/v1/sessions/{}/events?raw={}", self.session, self.raw);
        // One that has come to rest is read to its end.
        if self.session_stage() != Some(Stage::Active) {
            path.push_str("&until=idle");
        }
        let mut request = Request::get(path).header("accept", "text/event-stream");
        if let Some(token) = &self.token {
            request = request.header("last-event-id", token);
        }
        let mut conn = Connection::open(address)?;
        conn.send(&request)?;
        let head = conn.read_head()?;
        match head.status {
            200 => {}
            204 | 503 => return Ok(()),
            status => {
                self.report_violation(Violation::Lost, &format!("answered {status}"));
                return Ok(());
            }
        }
        let mut text: Vec<u8> = Vec::new();
        let mut frame = Frame::default();
        while let Some(chunk) = conn.read_chunk()? {
            text.extend_from_slice(&chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if frame.push_line(&String::from_utf8_lossy(&line)) {
                    self.push_frame(std::mem::take(&mut frame));
                }
                if self.is_finished {
                    return Ok(());
                }
            }
            // From now on it is to end by itself.
            if self.session_stage() != Some(Stage::Active) && !request.path.contains("until") {
                return Ok(());
            }
        }
        Ok(())
    }

    fn push_frame(&mut self, frame: Frame) {
        let event = match Event::from_json(&frame.data) {
            Ok(event) => event,
            Err(error) => {
                return self
                    .report_violation(Violation::Wrong, &format!("{error}: {}", frame.data));
            }
        };
        if matches!(event.kind, EventKind::Reset(_)) {
            return self.report_violation(Violation::Lost, &format!("a reset: {}", frame.data));
        }
        let Some(seq) = event.seq.map(turnwire_core::Seq::get) else {
            return self.report_violation(Violation::Wrong, &format!("no seq: {}", frame.data));
        };
        let first = event.seq_from.map_or(seq, turnwire_core::Seq::get);
        if first != self.last + 1 {
            let broken = if first > self.last { Violation::Lost } else { Violation::Duplicated };
            return self.report_violation(broken, &format!("then came {first}"));
        }
        if let Err(error) = self.folder.push(&event) {
            return self.report_violation(Violation::Wrong, &format!("{error}: {}", frame.data));
        }
        self.last = seq;
        if frame.id != format!("{}.{seq}", self.epoch) {
            return self.report_violation(Violation::Wrong, &format!("the token is {}", frame.id));
        }
        let (raw, hash) = (self.raw, hash_bytes(frame.data.as_bytes()));
        if !self.is_gone() {
            let seen = self.expected.with_session(&self.session, |session| {
                session.shown = session.shown.max(seq);
                if raw { session.seen.insert(seq, hash) } else { None }
            });
            if seen.is_some_and(|seen| seen != hash) {
                self.report_violation(
                    Violation::Wrong,
                    &format!("somebody else was shown another {seq}"),
                );
            }
        }
        self.token = Some(frame.id);
        self.expected.count("events watched", 1 + seq - first);
    }

    /// The folded messages equal the server's.
    fn compare_with_server(&mut self, client: &mut Client) {
        let path =
            format!("/v1/sessions/{}/messages?agents=all&superseded=true&limit=500", self.session);
        let page = client.call_until_answered(&Request::get(path)).json();
        if self.is_gone() {
            return;
        }
        let theirs: BTreeMap<&str, &Value> = page["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|message| (message["id"].as_str().unwrap_or_default(), message))
            .collect();
        let mine = self.folder.messages().map(|msg| (msg.id().to_owned(), msg.to_json()));
        let mine: BTreeMap<String, Value> =
            mine.map(|(id, json)| (id, serde_json::from_str(&json).unwrap())).collect();
        if page["has_more"] == false && mine.len() != theirs.len() {
            let why = format!("folded {} messages, there are {}", mine.len(), theirs.len());
            return self.report_violation(Violation::Wrong, &why);
        }
        for (id, theirs) in theirs {
            if mine.get(id) != Some(theirs) {
                let mine = mine.get(id);
                return self.report_violation(
                    Violation::Wrong,
                    &format!("folded {mine:?}, there is {theirs}"),
                );
            }
        }
        self.expected.count("sessions watched to their end", 1);
    }
}

#[derive(Default)]
struct Frame {
    id: String,
    data: String,
}

impl Frame {
    /// Adds a line. Returns whether it completes a frame with data.
    fn push_line(&mut self, line: &str) -> bool {
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            return !self.data.is_empty();
        }
        match line.split_once(": ") {
            Some(("id", value)) => value.clone_into(&mut self.id),
            Some(("data", value)) => self.data.push_str(value),
            _ => {}
        }
        false
    }
}
