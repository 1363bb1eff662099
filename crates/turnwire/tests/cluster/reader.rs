//! A client that reads random sessions at random nodes: what it reads must never be stale.

use crate::client::Client;
use crate::connection::Request;
use crate::harness::pause;
use crate::history::{LogEvent, Read, token_seq};
use std::time::Duration;

/// The longest pause between two reads.
const MAX_PAUSE: Duration = Duration::from_millis(30);

/// Reads until all writers have finished.
pub fn run(client: &mut Client) {
    while !client.test.is_at_rest() {
        client.move_on();
        let test = client.test.clone();
        if let Some(session) = test.pick_active(&mut client.rng, |_| true) {
            match client.rng.u32(..4) {
                0 => drop(read_log(client, &session.id)),
                1 => read_messages(client, &session.id),
                _ => drop(test.view(client, &session.id)),
            }
        }
        pause(MAX_PAUSE.mul_f64(client.rng.f64()));
    }
}

/// Reads the log, and records that. `None`: no answer.
pub fn read_log(client: &mut Client, session: &str) -> Option<Vec<LogEvent>> {
    let request = Request::get(format!("/v1/sessions/{session}/events"))
        .header("accept", "application/x-ndjson");
    let began = client.test.history.now();
    let answer = client.call_once(&request)?;
    let log: Vec<LogEvent> = answer.text().lines().map(LogEvent::parse).collect();
    let events: Vec<(u64, u64)> = log.iter().map(|event| (event.seq, event.digest)).collect();
    let head = (answer.status == 200).then(|| events.last().map_or(0, |(seq, _)| *seq));
    client.test.record_read(session, &answer, Read { began, what: "log", head, events, ended: 0 });
    Some(log)
}

fn read_messages(client: &mut Client, session: &str) {
    let began = client.test.history.now();
    let request = Request::get(format!("/v1/sessions/{session}/messages"));
    let Some(answer) = client.call_once(&request) else { return };
    let head = token_seq(&answer.json()["last_event_id"]);
    client.test.record_read(
        session,
        &answer,
        Read { began, what: "messages", head, ..Read::default() },
    );
}
