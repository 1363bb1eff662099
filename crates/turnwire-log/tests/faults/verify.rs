//! Verifies a store against the histories. An error says what is wrong.

use crate::session_history::{ExpectedState, SessionHistory};
use crate::workload::{Workload, publish};
use std::sync::Arc;
use turnwire_core::{Fields, Seq};
use turnwire_log::store::{NewSession, SessionRecord, Store};
use turnwire_log::{Log, SqliteStore, doctor};

/// Verifies a whole store. For requests without a response it finds out whether they happened.
pub async fn verify_store(workload: &Workload, store: SqliteStore) -> Result<(), String> {
    let findings = store.check(|_| ()).await.map_err(|error| error.to_string())?;
    if let Some(finding) = findings.first() {
        return Err(format!("{} findings: {finding:?}", findings.len()));
    }
    let store = Arc::new(store);
    for past in &workload.histories {
        // No worker runs any more, so nobody misses it meanwhile.
        let mut taken = std::mem::replace(&mut *past.lock(), SessionHistory::new(0));
        let checked = verify_session(&*store, &mut taken).await;
        let id = taken.key.id.clone();
        *past.lock() = taken;
        checked.map_err(|why| format!("session {id}: {why}"))?;
    }
    let blobs = workload.blobs.lock().clone();
    for (hash, blob) in blobs {
        let found = store.read_blob("t", hash).await.map_err(|error| error.to_string())?;
        if found.as_ref() != Some(&blob) {
            return Err("an acknowledged blob is not there".to_owned());
        }
    }
    verify_writing_continues(workload, &Arc::new(Log::new(store, "checker"))).await
}

async fn verify_session(store: &dyn Store, past: &mut SessionHistory) -> Result<(), String> {
    let record = store.find_session(&past.key).await.map_err(|error| error.to_string())?;
    let found = match &record {
        None => ExpectedState::default(),
        Some(record) => read_state(store, record, past).await?,
    };
    let possible = past.acknowledged..=past.steps.len();
    let Some(steps) = possible.clone().find(|steps| past.state(*steps) == found) else {
        let must = past.state(past.acknowledged);
        return Err(format!(
            "{possible:?} steps; must have {}, has {}; the next step: {:?}",
            summarize(&must),
            summarize(&found),
            past.steps.get(past.acknowledged)
        ));
    };
    if let (Some(expected), Some(record)) = (past.epoch(steps), &record)
        && expected != record.epoch
    {
        return Err(format!("the epoch was {expected}, and is {}", record.epoch));
    }
    if let Some(record) = &record {
        let found = doctor::check(store, record).await.map_err(|error| error.to_string())?;
        if let Some(finding) = found.first() {
            return Err(format!("the messages: {finding}"));
        }
    }
    past.keep_steps(steps);
    Ok(())
}

fn summarize(state: &ExpectedState) -> String {
    let ExpectedState { exists, lines, queue, keys, title } = state;
    let last = lines.last().map(|line| line.chars().take(60).collect::<String>());
    let counts = (lines.len(), queue.len(), keys.len());
    format!("{{ exists: {exists}, events/queue/keys: {counts:?}, {title:?}, last: {last:?} }}")
}

/// What a store has of a session.
async fn read_state(
    store: &dyn Store,
    record: &SessionRecord,
    past: &SessionHistory,
) -> Result<ExpectedState, String> {
    let lines = read_lines(store, record).await?;
    let queue = store.list_queued(record.number).await.map_err(|error| error.to_string())?;
    let mut keys = Vec::new();
    for key in past.keys() {
        keys.extend(
            store
                .find_idempotency_record(&key.tenant, &key.key)
                .await
                .map_err(|error| error.to_string())?,
        );
    }
    Ok(ExpectedState { exists: true, lines, queue, keys, title: record.title.clone() })
}

/// All events of a session, read in small pages.
pub async fn read_lines(store: &dyn Store, record: &SessionRecord) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let mut from = Seq::FIRST;
    loop {
        let rows = store
            .read_events(record.number, from, 3000)
            .await
            .map_err(|error| format!("{from}: {error}"))?;
        if rows.is_empty() {
            break;
        }
        for (seq, line) in rows.iter().flat_map(turnwire_log::store::EventLines::iter) {
            if seq != from {
                return Err(format!("event {seq} comes where {from} should"));
            }
            from = from.next();
            lines.push(String::from_utf8(line.to_vec()).map_err(|error| error.to_string())?);
        }
    }
    if lines.len() as u64 != record.head.get() {
        return Err(format!("the log should end at {}, and ends at {}", record.head, lines.len()));
    }
    Ok(lines)
}

/// New events continue at the log's end.
async fn verify_writing_continues(workload: &Workload, log: &Arc<Log>) -> Result<(), String> {
    for past in &workload.histories {
        let (key, before) = {
            let past = past.lock();
            (past.key.clone(), past.state(past.steps.len()).lines)
        };
        let new = NewSession {
            key: key.clone(),
            agent: "external".to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        let (session, _) = log.create_session(new).await.map_err(|error| error.to_string())?;
        let line = r#"{"id":"one more","type":"CUSTOM","name":"n","value":1}"#.to_owned();
        publish(&session, std::slice::from_ref(&line)).await.map_err(|error| error.to_string())?;
        let store = log.store();
        let record = store.find_session(&key).await.map_err(|error| error.to_string())?;
        let record = record.ok_or("a session has gone")?;
        let now = read_lines(&**store, &record).await?;
        if now != [before, vec![line]].concat() {
            return Err(format!("{} does not go on behind what is there", key.id));
        }
    }
    Ok(())
}
