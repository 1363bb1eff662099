//! Clients that decide on approvals: always two at once, each at a random node, with different decisions. One may count.

use crate::checker::Violation;
use crate::client::Client;
use crate::connection::Request;
use crate::harness::{ClusterTest, pause};
use crate::history::{Answer, Append, question_name};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use turnwire_testkit::pick;

/// Between two looks at the list of approvals.
const POLL: Duration = Duration::from_millis(40);

/// Answers questions until all writers have finished.
pub fn run(client: &mut Client) {
    let mut other = Client::new(&client.test, client.rng.fork());
    while !client.test.is_at_rest() {
        client.move_on();
        if let Some((session, reply, call)) = find_question(client) {
            let answers = client.test.next_number();
            thread::scope(|scope| {
                let (session, reply, call) = (&session, &reply, &call);
                scope.spawn(|| {
                    answer(&mut other, session, reply, call, &format!("{answers}-deny"), false)
                });
                answer(client, session, reply, call, &format!("{answers}-allow"), true);
            });
            other.move_on();
        }
        pause(POLL);
    }
}

/// A random pending question: its session, reply and call.
fn find_question(client: &mut Client) -> Option<(String, Value, String)> {
    let answered = client.test.answered.lock().unwrap().clone();
    let list = client.call_once(&Request::get("/v1/approvals"))?.json();
    let mut questions = Vec::new();
    for pending in list["approvals"].as_array().into_iter().flatten() {
        let session = pending["session_id"].as_str().unwrap_or_default().to_owned();
        for call in pending["confirm"].as_array().into_iter().flatten() {
            let call = call["id"].as_str().unwrap_or_default().to_owned();
            let question = question(&pending["reply_id"], &call);
            if answered.contains(&question) {
                let why = format!("{question} was answered, and is listed as pending");
                client.test.history.record(&session, |session| {
                    session.wrong.push((Violation::StaleRead, why));
                });
            }
            questions.push((session.clone(), pending["reply_id"].clone(), call));
        }
    }
    client.test.history.count("lists of approvals", 1);
    (!questions.is_empty()).then(|| pick(&mut client.rng, &questions).clone())
}

fn question(reply: &Value, call: &str) -> String {
    question_name(reply.as_str().unwrap_or_default(), call)
}

/// Sends a decision until it is known whether it counts.
pub fn answer(
    client: &mut Client,
    session: &str,
    reply: &Value,
    call: &str,
    id: &str,
    is_allowed: bool,
) -> bool {
    let test = client.test.clone();
    let decision = json!({"confirmed": is_allowed, "tool_call": {"id": call}});
    let event = json!({"type": "USER_CONFIRM_RESULT", "id": id, "reply_id": reply, "confirm_results": [decision]});
    let began = test.history.now();
    let response = client.call(&Request::post(format!("/v1/sessions/{session}/events"), &event));
    let acknowledged = test.history.now();
    let is_accepted = response.status == 200;
    if !matches!(response.status, 200 | 409) {
        let why =
            format!("the decision {id} was answered {}: {}", response.status, response.text());
        test.history.record(session, |session| session.wrong.push((Violation::Wrong, why)));
    }
    test.history.record(session, |session| {
        session.answers.push(Answer {
            question: question(reply, call),
            id: id.to_owned(),
            is_accepted,
        });
        if is_accepted {
            session.appends.push(Append {
                began,
                acknowledged,
                writer: test.next_number(),
                names: vec![id.to_owned()],
                head: ClusterTest::acknowledged_head(&response.json()),
                is_exact: false,
            });
        }
    });
    if is_accepted {
        test.answered.lock().unwrap().push(question(reply, call));
    }
    test.history.count(if is_accepted { "answers accepted" } else { "answers refused" }, 1);
    is_accepted
}
