//! A client that chats with the demo agent: messages, queued messages, retries, decisions.

use crate::expectations::{
    Expectations, KeyedRequest, Kind, PendingState, RecordedAnswer, Stage, Violation,
};
use crate::http::{Client, Request};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnwire_testkit::{Rng, one_in, pick};

/// Messages per session.
const MESSAGES_PER_SESSION: usize = 12;

/// The longest time for a session to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);

const WORDS: [&str; 12] = [
    "hello", "long 40", "long 150", "long 400", "weather", "approve", "parallel", "browser",
    "json", "team", "image", "fail",
];

pub fn run(expected: &Arc<Expectations>, name: &str, mut rng: Rng) {
    let mut client = Client::new(&expected.server);
    for number in 0.. {
        if expected.server.is_ending() {
            break;
        }
        let id = format!("{name}-{number}");
        expected.create_session(&mut client, &id, Kind::Demo);
        let mut talk = ChatSession { expected, client: &mut client, session: &id, answers: 0 };
        talk.run_messages(&mut rng);
        talk.settle(&mut rng);
        expected.with_session(&id, |session| session.stage = Stage::Settled);
    }
    expected.count("requests broken off", client.broken);
}

/// Sends a request with an idempotency key until it is answered, and records the answer.
pub fn send_keyed(
    expected: &Expectations,
    client: &mut Client,
    session: &str,
    request: Request,
) -> RecordedAnswer {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let message_id = body["id"].as_str().unwrap_or_default().to_owned();
    let at = expected.with_session(session, |session| {
        let key = format!("key-{}", session.requests.len());
        let request = request.header("idempotency-key", key);
        session.requests.push(KeyedRequest { request, message_id, answer: RecordedAnswer::None });
        session.requests.len() - 1
    });
    let keyed = expected.with_session(session, |session| session.requests.get(at).unwrap().clone());
    let answer = client.call_until_answered(&keyed.request);
    let reply = match answer.status {
        202 => RecordedAnswer::Accepted(answer.json()),
        409 | 429 => RecordedAnswer::Refused,
        status => {
            expected.report(Violation::Wrong, format!("{session}: {status} {}", answer.text()));
            RecordedAnswer::Refused
        }
    };
    if let RecordedAnswer::Accepted(_) = reply {
        expected.count("requests acknowledged", 1);
    }
    expected.with_session(session, |session| {
        session.requests.get_mut(at).unwrap().answer = reply.clone();
    });
    reply
}

/// Repeats an answered request.
pub fn repeat_keyed(
    expected: &Expectations,
    client: &mut Client,
    session: &str,
    keyed: &KeyedRequest,
) {
    let RecordedAnswer::Accepted(before) = &keyed.answer else { return };
    let answer = client.call_until_answered(&keyed.request);
    let is_same = answer.status == 202
        && answer.json() == *before
        && answer.header("idempotency-replayed") == Some("true");
    if !is_same {
        let text = answer.text();
        let why = format!("{session}: the same key was answered {before}, and now {text}");
        expected.report(Violation::Wrong, why);
    }
}

struct ChatSession<'t> {
    expected: &'t Expectations,
    client: &'t mut Client,
    session: &'t str,
    answers: u64,
}

impl ChatSession<'_> {
    fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.session)
    }

    fn run_messages(&mut self, rng: &mut Rng) {
        let mut sent = 0;
        while sent < MESSAGES_PER_SESSION && !self.expected.server.is_ending() {
            match rng.u32(..10) {
                0..5 => {
                    sent += 1;
                    let path = self.path(if one_in(rng, 4) {
                        "/messages"
                    } else {
                        "/messages?queue=true"
                    });
                    let id = format!("{}-m{sent}", self.session);
                    let content = *pick(rng, &WORDS);
                    let message = Request::post(path, &json!({"id": id, "content": content}));
                    send_keyed(self.expected, self.client, self.session, message);
                }
                5 => self.retry(rng),
                6 => self.repeat_any(rng),
                7 => self.stop(rng),
                _ => {
                    self.answer_pending(rng);
                }
            }
            self.expected.server.pause(Duration::from_micros(rng.u64(..30_000)));
        }
    }

    /// Retries a message; refused while a reply runs.
    fn retry(&mut self, rng: &mut Rng) {
        let messages = self.expected.with_session(self.session, |session| {
            let taken = session
                .requests
                .iter()
                .filter(|keyed| matches!(keyed.answer, RecordedAnswer::Accepted(_)));
            taken.map(|keyed| keyed.message_id.clone()).collect::<Vec<_>>()
        });
        let messages: Vec<String> = messages.into_iter().filter(|id| !id.is_empty()).collect();
        // Later messages would leave the history, so it is the last one.
        if let Some(id) = messages.last().filter(|_| one_in(rng, 2)) {
            let view = self.client.call_until_answered(&Request::get(self.path(""))).json();
            if view["status"] == "idle" && view["queued"].as_array().is_some_and(Vec::is_empty) {
                let path = self.path(&format!("/messages/{id}/retry"));
                send_keyed(
                    self.expected,
                    self.client,
                    self.session,
                    Request::new("POST", path, ""),
                );
            }
        }
    }

    fn repeat_any(&mut self, rng: &mut Rng) {
        let keyed = self.expected.with_session(self.session, |session| session.requests.clone());
        if !keyed.is_empty() {
            repeat_keyed(self.expected, self.client, self.session, pick(rng, &keyed));
        }
    }

    /// Stops the running reply.
    fn stop(&mut self, rng: &mut Rng) {
        if !one_in(rng, 3) {
            return;
        }
        let page =
            self.client.call_until_answered(&Request::get(self.path("/messages?limit=1"))).json();
        let open = page["cursors"].as_object().and_then(|open| open.keys().next());
        let Some(reply) = open else { return };
        self.expected.with_session(self.session, |session| {
            session.is_stopping = true;
            let open =
                session.pending.values_mut().filter(|question| **question == PendingState::Open);
            open.for_each(|question| *question = PendingState::Stopped);
        });
        let id = self.answer_id();
        let stop = json!({"type": "USER_INTERRUPT", "id": id, "reply_id": reply});
        let answer = self.client.call_until_answered(&Request::post(self.path("/events"), &stop));
        self.expected.with_session(self.session, |session| session.is_stopping = false);
        if answer.status != 200 {
            let why = format!("{}: a stop: {}", self.session, answer.text());
            self.expected.report(Violation::Wrong, why);
        }
    }

    fn answer_id(&mut self) -> String {
        self.answers += 1;
        format!("{}-a{}", self.session, self.answers)
    }

    /// Answers one pending call. Returns whether anything is open or pending.
    fn answer_pending(&mut self, rng: &mut Rng) -> bool {
        let view = self.client.call_until_answered(&Request::get(self.path(""))).json();
        let (status, queued) = (view["status"].clone(), view["queued"].clone());
        let Some(waiting) = view["pending"].as_array().and_then(|pending| pending.first()) else {
            return status != "idle" || queued.as_array().is_none_or(|queued| !queued.is_empty());
        };
        let calls = |name: &str| waiting[name].as_array().cloned().unwrap_or_default();
        let (confirm, external) = (calls("confirm"), calls("external"));
        let ids: Vec<String> = confirm
            .iter()
            .chain(&external)
            .filter_map(|call| call["id"].as_str().map(str::to_owned))
            .collect();
        self.expected.with_session(self.session, |session| {
            for id in &ids {
                if session.pending.get(id).is_some_and(|known| *known == PendingState::Answered) {
                    let why = format!("{}: {id} was answered, and asks again", self.session);
                    self.expected.report(Violation::Lost, why);
                }
                session.pending.entry(id.clone()).or_insert(PendingState::Open);
            }
        });
        // Some stay pending for a while.
        if one_in(rng, 3) && !self.expected.server.is_ending() {
            return true;
        }
        let Some(call) = confirm.first().or(external.first()) else { return true };
        let id = call["id"].as_str().unwrap_or_default().to_owned();
        let mut event = json!({"id": self.answer_id(), "reply_id": waiting["reply_id"]});
        if confirm.is_empty() {
            event["type"] = "EXTERNAL_EXECUTION_RESULT".into();
            let result = json!({"type": "tool_result", "id": id, "name": call["name"],
                "output": "done", "state": "success"});
            event["execution_results"] = json!([result]);
        } else {
            event["type"] = "USER_CONFIRM_RESULT".into();
            event["confirm_results"] = json!([{"confirmed": rng.bool(), "tool_call": call}]);
        }
        self.send_answer(&id, event);
        true
    }

    fn send_answer(&mut self, call: &str, mut event: Value) {
        let note = |question| {
            self.expected.with_session(self.session, |session| {
                session.pending.insert(call.to_owned(), question)
            });
        };
        note(PendingState::Answering);
        let answer = self.client.call_until_answered(&Request::post(self.path("/events"), &event));
        if answer.status != 200 {
            // No other client answers, but an earlier stop may take effect only now.
            let why = format!("{}: {call} was not answered: {}", self.session, answer.text());
            self.expected.report(Violation::Wrong, why);
            return note(PendingState::Stopped);
        }
        note(PendingState::Answered);
        self.expected.count("questions answered", 1);
        event["id"] = self.answer_id().into();
        let second = self.client.call_until_answered(&Request::post(self.path("/events"), &event));
        if second.status != 409 {
            let why = format!("{}: {call} was answered twice: {}", self.session, second.text());
            self.expected.report(Violation::Duplicated, why);
        }
    }

    /// Answers everything until the session is idle.
    fn settle(&mut self, rng: &mut Rng) {
        let begun = Instant::now();
        while self.answer_pending(rng) {
            if begun.elapsed() > SETTLE_TIMEOUT {
                let view = self.client.call_until_answered(&Request::get(self.path(""))).text();
                let why = format!("{} does not come to rest: {view}", self.session);
                return self.expected.report(Violation::Lost, why);
            }
            self.expected.server.pause(Duration::from_millis(5));
        }
    }
}
