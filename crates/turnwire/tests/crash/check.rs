//! Checks that the server has everything it acknowledged and showed.

use crate::expectations::{
    Expectations, KeyedRequest, Kind, PendingState, RecordedAnswer, SessionExpectation, Stage,
    Violation, hash_bytes,
};
use crate::http::{Connection, Request};
use crate::maintenance::Blobs;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use turnwire_core::{Event, FinishedReason, Folder};
use turnwire_testkit::{Rng, one_in, pick};

/// The length of a reply id.
const UUID_LENGTH: usize = 36;

/// Checks a server that nobody else uses.
pub struct LogCheck<'c> {
    expected: &'c Expectations,
    conn: Connection,
    /// The demo's reply per message: always the same, however often it was interrupted.
    known_replies: &'c mut HashMap<String, String>,
}

/// The checked fields of an event.
#[derive(Deserialize)]
struct EventLine<'l> {
    seq: u64,
    #[serde(default)]
    id: String,
    r#type: &'l str,
    #[serde(default)]
    reply_id: String,
    message: Option<Named>,
    #[serde(default)]
    confirm_results: Vec<Confirmed>,
    #[serde(default)]
    execution_results: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    id: String,
}

#[derive(Deserialize)]
struct Confirmed {
    tool_call: Named,
}

/// The contents of a log, in order.
#[derive(Default)]
struct LogContents {
    hashes: Vec<u64>,
    /// Published events, by seq.
    published: Vec<(u64, String)>,
    messages: Vec<String>,
    replies: BTreeSet<String>,
    ends: BTreeSet<String>,
    answered: HashMap<String, u32>,
}

impl<'c> LogCheck<'c> {
    pub fn new(
        expected: &'c Expectations,
        address: &str,
        known_replies: &'c mut HashMap<String, String>,
    ) -> std::io::Result<Self> {
        Ok(Self { expected, conn: Connection::open(address)?, known_replies })
    }

    fn call(&mut self, request: &Request) -> crate::http::Answer {
        self.conn.call(request).unwrap()
    }

    /// Checks the sessions used since the last check, and some others.
    pub fn check_touched(&mut self, rng: &mut Rng) {
        let ids: Vec<String> = {
            let mut books = self.expected.sessions();
            let some = books.iter_mut().filter_map(|(id, session)| {
                let look = std::mem::take(&mut session.touched);
                let is_over = session.stage == Stage::Deleted;
                (look || one_in(rng, if is_over { 50 } else { 20 })).then(|| id.clone())
            });
            some.collect()
        };
        for id in &ids {
            self.check_session(id);
        }
        for id in &ids {
            let keyed = self.acknowledged_requests(id);
            if !keyed.is_empty() && one_in(rng, 2) {
                self.check_repeated_request(id, pick(rng, &keyed));
            }
        }
    }

    /// Checks everything.
    pub fn check_all(&mut self, blobs: &Blobs) {
        let ids: Vec<String> = self.expected.sessions().keys().cloned().collect();
        for id in &ids {
            self.check_session(id);
            for keyed in self.acknowledged_requests(id) {
                self.check_repeated_request(id, &keyed);
            }
        }
        for (path, bytes) in blobs {
            let answer = self.call(&Request::get(path));
            if answer.body != *bytes {
                self.expected.report(Violation::Lost, format!("{path}: {}", answer.status));
            }
        }
        self.check_list();
    }

    /// The acknowledged requests of an existing session.
    fn acknowledged_requests(&self, id: &str) -> Vec<KeyedRequest> {
        let books = self.expected.sessions();
        let session =
            books.get(id).filter(|session| matches!(session.stage, Stage::Active | Stage::Settled));
        session.map(|session| session.requests.clone()).unwrap_or_default()
    }

    /// A repeated request gets the same answer.
    fn check_repeated_request(&mut self, id: &str, keyed: &KeyedRequest) {
        let RecordedAnswer::Accepted(before) = &keyed.answer else { return };
        let answer = self.call(&keyed.request);
        if answer.status != 202 || answer.json() != *before {
            let why = format!("{id}: a key was answered {before}, and now {}", answer.text());
            self.expected.report(Violation::Wrong, why);
        }
    }

    /// The list has exactly the existing sessions.
    fn check_list(&mut self) {
        let mut listed = BTreeSet::new();
        let mut cursor = String::new();
        loop {
            let page = self.call(&Request::get(format!("/v1/sessions?limit=100{cursor}"))).json();
            for session in page["sessions"].as_array().into_iter().flatten() {
                listed.insert(session["id"].as_str().unwrap_or_default().to_owned());
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let books = self.expected.sessions();
        let there = books.iter().filter(|(_, session)| session.stage != Stage::Deleted);
        let there: BTreeSet<String> = there.map(|(id, _)| id.clone()).collect();
        for lost in there.difference(&listed) {
            self.expected.report(Violation::Lost, format!("{lost} is not listed"));
        }
        for extra in listed.difference(&there) {
            self.expected
                .report(Violation::Wrong, format!("{extra} is listed, and nobody made it"));
        }
    }

    fn check_session(&mut self, id: &str) {
        let answer = self.call(&Request::get(format!("/v1/sessions/{id}")));
        let (stage, epoch) = {
            let books = self.expected.sessions();
            let Some(session) = books.get(id) else { return };
            (session.stage, session.epoch.clone())
        };
        match (stage, answer.status) {
            (Stage::Deleting, 200 | 404) | (Stage::Deleted, 404) => return,
            (Stage::Active | Stage::Settled, 200) => {}
            (stage, status) => {
                let why = format!("{id} is {stage:?}, and there is {status} {}", answer.text());
                return self.expected.report(Violation::Lost, why);
            }
        }
        let view = answer.json();
        if view["epoch"] != *epoch {
            return self.expected.report(Violation::Lost, format!("{id}: {epoch} is now {view}"));
        }
        let log = Request::get(format!("/v1/sessions/{id}/events"))
            .header("accept", "application/x-ndjson");
        let body = self.call(&log).text();
        let mut books = self.expected.sessions();
        let Some(session) = books.get_mut(id) else { return };
        let mut on = SessionCheck { expected: self.expected, id, view: &view, session };
        let found = on.read_log(&body);
        on.check_contents(&found);
        if on.session.stage == Stage::Settled && on.session.kind == Kind::Demo {
            let keyed = on.session.requests.clone();
            drop(books);
            self.check_same_words(id, &keyed, &body);
        }
    }

    /// The demo replies the same to the same message.
    fn check_same_words(&mut self, id: &str, keyed: &[KeyedRequest], body: &str) {
        let mut folder = Folder::default();
        for line in body.lines() {
            if let Err(error) = Event::from_json(line).and_then(|event| folder.push(&event)) {
                return self.expected.report(Violation::Wrong, format!("{id}: {error}: {line}"));
            }
        }
        for keyed in keyed {
            let RecordedAnswer::Accepted(answer) = &keyed.answer else { continue };
            let request: Value = serde_json::from_slice(&keyed.request.body).unwrap_or_default();
            let content = request["content"].as_str().unwrap_or_default();
            if content != "hello" && !content.starts_with("long") {
                continue;
            }
            let reply = folder.get(answer["reply_id"].as_str().unwrap_or_default());
            let Some(msg) = reply else { continue };
            if msg.finished_reason() != Some(&FinishedReason::Completed) {
                continue;
            }
            let text = msg.text("\n").unwrap_or_default();
            let known =
                self.known_replies.entry(content.to_owned()).or_insert_with(|| text.clone());
            if *known != text {
                let why = format!("{id}: to {content:?} it said {text:?}, and before {known:?}");
                self.expected.report(Violation::Wrong, why);
            }
        }
    }
}

struct SessionCheck<'s> {
    expected: &'s Expectations,
    id: &'s str,
    view: &'s Value,
    session: &'s mut SessionExpectation,
}

impl SessionCheck<'_> {
    fn report(&self, broken: Violation, why: &str) {
        self.expected.report(broken, format!("{}: {why}", self.id));
    }

    /// Reads a log: dense, and every event once.
    fn read_log(&mut self, body: &str) -> LogContents {
        let mut found = LogContents::default();
        let mut ids = HashSet::new();
        for (text, expected) in body.lines().zip(1..) {
            let line: EventLine<'_> = match serde_json::from_str(text) {
                Ok(line) => line,
                Err(error) => {
                    self.report(Violation::Wrong, &format!("{error}: {text}"));
                    break;
                }
            };
            if line.seq != expected {
                self.report(Violation::Reordered, &format!("{} is at {expected}", line.seq));
            }
            if !line.id.is_empty() && !ids.insert(line.id) {
                self.report(Violation::Duplicated, text);
            }
            found.hashes.push(hash_bytes(text.as_bytes()));
            if let Some(message) = line.message.filter(|_| line.r#type == "MESSAGE") {
                found.messages.push(message.id);
                continue;
            }
            for call in line.confirm_results {
                *found.answered.entry(call.tool_call.id).or_default() += 1;
            }
            for call in line.execution_results {
                *found.answered.entry(call.id).or_default() += 1;
            }
            if self.session.kind == Kind::External {
                found.published.push((line.seq, text.to_owned()));
            }
            if line.r#type == "REPLY_END" && !found.ends.insert(line.reply_id.clone()) {
                self.report(Violation::Duplicated, &format!("{} ends twice", line.reply_id));
            }
            found.replies.insert(line.reply_id);
        }
        found
    }

    fn check_contents(&mut self, found: &LogContents) {
        let before = self.session.log.len();
        self.check_kept(found);
        if self.session.is_checked {
            if found.hashes.len() != before {
                self.report(Violation::Wrong, "was at rest, and has grown");
            }
            return;
        }
        if self.session.kind == Kind::External {
            self.check_published(found);
        } else if self.session.kind == Kind::Demo {
            self.check_pending(found);
            self.check_replies(found);
        }
        self.check_messages(found);
        if self.session.stage == Stage::Settled {
            let queued = self.view["queued"].as_array().map_or(0, Vec::len);
            if self.view["status"] != "idle" || queued > 0 {
                self.report(Violation::Wrong, &format!("is at rest, and yet {}", self.view));
            }
            // From now on it must not change.
            self.session.is_checked = true;
            self.session.published.sent = Vec::new();
        }
    }

    /// Events that were read or shown before are unchanged.
    fn check_kept(&mut self, found: &LogContents) {
        let (now, before) = (&found.hashes, &self.session.log);
        if now.len() < before.len() {
            let why = format!("had {} events, has {}", before.len(), now.len());
            self.report(Violation::Lost, &why);
        }
        if let Some(at) = now.iter().zip(before).position(|(now, before)| now != before) {
            self.report(Violation::Reordered, &format!("event {} is another one", at + 1));
        }
        if (now.len() as u64) < self.session.shown {
            let why =
                format!("somebody was shown {}, it ends at {}", self.session.shown, now.len());
            self.report(Violation::Lost, &why);
        }
        for (seq, seen) in std::mem::take(&mut self.session.seen) {
            let there = usize::try_from(seq - 1).ok().and_then(|at| now.get(at));
            if there != Some(&seen) {
                self.report(Violation::Lost, &format!("somebody was shown another event {seq}"));
            }
        }
        self.session.log.clone_from(now);
    }

    /// Published events are in order, unchanged, and all of a request or none.
    fn check_published(&mut self, found: &LogContents) {
        let published = &self.session.published;
        let (there, sent) = (found.published.len(), published.sent.len());
        if there < published.acknowledged {
            for _ in there..published.acknowledged {
                self.report(Violation::Lost, &format!("{} of {sent}", published.acknowledged));
            }
        }
        for ((seq, text), sent) in found.published.iter().zip(&published.sent) {
            if !is_sent_event(text, sent, *seq) {
                let why = format!("{text} is where {sent} was sent");
                return self.report(Violation::Reordered, &why);
            }
        }
        if there > sent {
            self.report(Violation::Duplicated, &format!("{there} events, only {sent} were sent"));
        }
        let before = published.stored.max(published.acknowledged);
        if there != before && Some(there) != published.under_way {
            let why = format!(
                "{there} are there, {before} were, and {:?} would be with the last request",
                published.under_way
            );
            self.report(Violation::Wrong, &why);
        }
        self.session.published.stored = there;
    }

    /// Accepted messages are there once and in order, or still queued; others are not.
    fn check_messages(&self, found: &LogContents) {
        let queued = self.view["queued"].as_array().into_iter().flatten();
        let queued: Vec<&str> = queued.filter_map(|queued| queued["message_id"].as_str()).collect();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, id) in found.messages.iter().enumerate() {
            if places.insert(id, at).is_some() {
                self.report(Violation::Duplicated, &format!("message {id}"));
            }
        }
        let mut last = None;
        for keyed in self.session.requests.iter().filter(|keyed| !keyed.message_id.is_empty()) {
            let place = places.remove(&*keyed.message_id);
            let waits = queued.contains(&&*keyed.message_id);
            match &keyed.answer {
                RecordedAnswer::Accepted(_) if place.is_none() && !waits => {
                    self.report(Violation::Lost, &format!("message {}", keyed.message_id));
                }
                RecordedAnswer::Refused if place.is_some() || waits => {
                    let why = format!("message {} was refused", keyed.message_id);
                    self.report(Violation::Wrong, &why);
                }
                RecordedAnswer::Accepted(_) | RecordedAnswer::Refused | RecordedAnswer::None => {}
            }
            if place.is_some() && place < last {
                self.report(Violation::Reordered, &format!("message {}", keyed.message_id));
            }
            last = place.max(last);
        }
        if let Some(id) = places.keys().next().filter(|_| self.session.kind != Kind::Fork) {
            self.report(Violation::Wrong, &format!("nobody sent message {id}"));
        }
    }

    /// Each accepted message has one reply, and nothing else has one.
    fn check_replies(&self, found: &LogContents) {
        let mut unknown: BTreeSet<&str> = found.replies.iter().map(String::as_str).collect();
        unknown.remove("");
        let mut unanswered = 0;
        for keyed in &self.session.requests {
            match &keyed.answer {
                RecordedAnswer::Accepted(answer) => {
                    let id = answer["reply_id"].as_str().unwrap_or_default();
                    unknown.retain(|other| {
                        other
                            .strip_prefix(id)
                            .is_none_or(|rest| !matches!(rest.chars().next(), None | Some('-')))
                    });
                    if self.session.stage == Stage::Settled && !found.ends.contains(id) {
                        self.report(
                            Violation::Lost,
                            &format!("reply {id} to {}", keyed.message_id),
                        );
                    }
                }
                RecordedAnswer::None => unanswered += 1,
                RecordedAnswer::Refused => {}
            }
        }
        // A sub-agent's reply id is derived from its parent's.
        unknown.retain(|id| id.len() <= UUID_LENGTH);
        if unknown.len() > unanswered {
            self.report(Violation::Wrong, &format!("nobody requested the replies {unknown:?}"));
        }
    }

    /// A pending call stays pending until it is answered, and is answered once.
    fn check_pending(&mut self, found: &LogContents) {
        let mut waiting = HashSet::new();
        for pending in self.view["pending"].as_array().into_iter().flatten() {
            for name in ["confirm", "external"] {
                for call in pending[name].as_array().into_iter().flatten() {
                    waiting.insert(call["id"].as_str().unwrap_or_default().to_owned());
                }
            }
        }
        for (call, question) in &self.session.pending {
            let times = found.answered.get(call).copied().unwrap_or(0);
            let waits = waiting.contains(call);
            let fits = match question {
                PendingState::Open => waits && times == 0,
                PendingState::Answering | PendingState::Stopped => times <= 1,
                PendingState::Answered => !waits && times == 1,
            };
            if !fits {
                let why = format!("{call} is {question:?}, answered {times} times, waits: {waits}");
                self.report(if times > 1 { Violation::Duplicated } else { Violation::Lost }, &why);
            }
        }
        // Calls that are pending now must stay so until they are answered.
        for call in waiting.into_iter().filter(|_| !self.session.is_stopping) {
            self.session.pending.entry(call).or_insert(PendingState::Open);
        }
    }
}

/// Whether a line is the sent event with its seq.
fn is_sent_event(line: &str, sent: &str, seq: u64) -> bool {
    let end = format!(",\"seq\":{seq}}}");
    sent.strip_suffix('}').zip(line.strip_suffix(&end)).is_some_and(|(sent, line)| sent == line)
}
