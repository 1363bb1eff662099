//! Whether what is there is what must be there. Everything is a sentence about what is not.

use crate::story::{State, Story};
use crate::work::{World, publish};
use std::sync::Arc;
use turnwire_core::{Fields, Seq};
use turnwire_log::store::{NewSession, SessionRecord, Store};
use turnwire_log::{Log, SqliteStore, doctor};

/// Checks all of a store, and settles what has happened of what nobody had an answer to.
pub async fn check(world: &World, store: SqliteStore) -> Result<(), String> {
    let findings = store.check(|_| ()).await.map_err(|error| error.to_string())?;
    if let Some(finding) = findings.first() {
        return Err(format!("{} findings: {finding:?}", findings.len()));
    }
    let store = Arc::new(store);
    for past in &world.stories {
        // Nobody else is there any more, so nobody misses it meanwhile.
        let mut taken = std::mem::replace(&mut *past.lock(), Story::new(0));
        let checked = session(&*store, &mut taken).await;
        let id = taken.key.id.clone();
        *past.lock() = taken;
        checked.map_err(|why| format!("session {id}: {why}"))?;
    }
    let blobs = world.blobs.lock().clone();
    for (hash, blob) in blobs {
        let found = store.blob("t", hash).await.map_err(|error| error.to_string())?;
        if found.as_ref() != Some(&blob) {
            return Err("an acknowledged blob is not there".to_owned());
        }
    }
    goes_on(world, &Arc::new(Log::new(store, "checker"))).await
}

async fn session(store: &dyn Store, past: &mut Story) -> Result<(), String> {
    let record = store.session(&past.key).await.map_err(|error| error.to_string())?;
    let found = match &record {
        None => State::default(),
        Some(record) => state(store, record, past).await?,
    };
    let possible = past.acknowledged..=past.steps.len();
    let Some(steps) = possible.clone().find(|steps| past.state(*steps) == found) else {
        let must = past.state(past.acknowledged);
        return Err(format!(
            "{possible:?} steps; must have {}, has {}; the next step: {:?}",
            sum(&must),
            sum(&found),
            past.steps.get(past.acknowledged)
        ));
    };
    if let (Some(told), Some(record)) = (past.epoch(steps), &record)
        && told != record.epoch
    {
        return Err(format!("the epoch was {told}, and is {}", record.epoch));
    }
    if let Some(record) = &record {
        let found = doctor::check(store, record).await.map_err(|error| error.to_string())?;
        if let Some(finding) = found.first() {
            return Err(format!("the messages: {finding}"));
        }
    }
    past.settle(steps);
    Ok(())
}

fn sum(state: &State) -> String {
    let State { exists, lines, queue, keys, title } = state;
    let last = lines.last().map(|line| line.chars().take(60).collect::<String>());
    let counts = (lines.len(), queue.len(), keys.len());
    format!("{{ exists: {exists}, events/queue/keys: {counts:?}, {title:?}, last: {last:?} }}")
}

/// What a store holds of a session.
async fn state(store: &dyn Store, record: &SessionRecord, past: &Story) -> Result<State, String> {
    let lines = lines(store, record).await?;
    let queue = store.queued(record.no).await.map_err(|error| error.to_string())?;
    let mut keys = Vec::new();
    for key in past.keys() {
        keys.extend(store.key(&key.tenant, &key.key).await.map_err(|error| error.to_string())?);
    }
    Ok(State { exists: true, lines, queue, keys, title: record.title.clone() })
}

/// All events of a session, read in small parts.
pub async fn lines(store: &dyn Store, record: &SessionRecord) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let mut from = Seq::FIRST;
    loop {
        let rows =
            store.read(record.no, from, 3000).await.map_err(|error| format!("{from}: {error}"))?;
        if rows.is_empty() {
            break;
        }
        for (seq, line) in rows.iter().flat_map(turnwire_log::store::Lines::iter) {
            if seq != from {
                return Err(format!("event {seq} comes where {from} should"));
            }
            from = from.next();
            lines.push(String::from_utf8(line.to_vec()).map_err(|error| error.to_string())?);
        }
    }
    if lines.len() as u64 != record.last {
        return Err(format!("the log should end at {}, and ends at {}", record.last, lines.len()));
    }
    Ok(lines)
}

/// Writing goes on behind what is there.
async fn goes_on(world: &World, log: &Arc<Log>) -> Result<(), String> {
    for past in &world.stories {
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
        let (session, _) = log.create(new).await.map_err(|error| error.to_string())?;
        let line = r#"{"id":"one more","type":"CUSTOM","name":"n","value":1}"#.to_owned();
        publish(&session, std::slice::from_ref(&line)).await.map_err(|error| error.to_string())?;
        let store = log.store();
        let record = store.session(&key).await.map_err(|error| error.to_string())?;
        let record = record.ok_or("a session has gone")?;
        let now = lines(&**store, &record).await?;
        if now != [before, vec![line]].concat() {
            return Err(format!("{} does not go on behind what is there", key.id));
        }
    }
    Ok(())
}
