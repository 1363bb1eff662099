//! Corrupted files: flipped bits, lost and misplaced sectors.

use crate::session_history::SessionHistory;
use crate::workload::Workload;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use turnwire_core::Seq;
use turnwire_log::store::{EventLines, MessageQuery, Store};
use turnwire_log::{Error, SqliteStore, doctor};

/// Everything that can be read from a store, by what was requested.
pub type StoreContents = BTreeMap<String, Result<String, Error>>;

/// Reads everything that must be there.
pub async fn read_everything(workload: &Workload, store: &SqliteStore) -> StoreContents {
    let mut answers = StoreContents::new();
    for past in &workload.histories {
        let past = std::mem::replace(&mut *past.lock(), SessionHistory::new(0));
        read_session(&past, store, &mut answers).await;
        let at: usize = past.key.id[1..].parse().unwrap();
        *workload.histories[at].lock() = past;
    }
    let hashes: Vec<[u8; 32]> = workload.blobs.lock().keys().copied().collect();
    for hash in hashes {
        let blob = store.read_blob("t", hash).await.map(|blob| format!("{blob:?}"));
        answers.insert(format!("blob {hash:?}"), blob);
    }
    answers
}

async fn read_session(past: &SessionHistory, store: &SqliteStore, answers: &mut StoreContents) {
    let id = &past.key.id;
    let record = store.find_session(&past.key).await;
    let shown = record.clone().map(|record| format!("{record:?}"));
    answers.insert(format!("{id}: session"), shown);
    for key in past.keys() {
        let answer = store
            .find_idempotency_record(&key.tenant, &key.key)
            .await
            .map(|key| format!("{key:?}"));
        answers.insert(format!("{id}: {}", key.key), answer);
    }
    let Ok(Some(record)) = record else { return };
    let mut from = Seq::FIRST;
    loop {
        match store.read_events(record.number, from, 2000).await {
            Ok(rows) if rows.is_empty() => break,
            Ok(rows) => {
                for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                    let line = String::from_utf8_lossy(line).into_owned();
                    answers.insert(format!("{id}: event {seq:05}"), Ok(line));
                    from = seq.next();
                }
            }
            Err(error) => {
                // Events after it may be intact.
                answers.insert(format!("{id}: event {from:05}"), Err(error));
                if from.get() >= record.head.get() {
                    break;
                }
                from = from.next();
            }
        }
    }
    let query = MessageQuery { limit: usize::MAX, sub_agents: true, ..MessageQuery::default() };
    let messages = store.list_messages(record.number, &query).await;
    add_items(answers, &format!("{id}: messages"), messages, |message| &message.id);
    add_items(answers, &format!("{id}: queue"), store.list_queued(record.number).await, |queued| {
        &queued.id
    });
}

/// Adds each item of a list, or the error.
fn add_items<T: Debug>(
    answers: &mut StoreContents,
    name: &str,
    items: Result<Vec<T>, Error>,
    id: impl Fn(&T) -> &str,
) {
    match items {
        Ok(items) => {
            answers.insert(name.to_owned(), Ok("a list".to_owned()));
            for item in items {
                answers.insert(format!("{name}: {}", id(&item)), Ok(format!("{item:?}")));
            }
        }
        Err(error) => drop(answers.insert(name.to_owned(), Err(error))),
    }
}

/// A change that was returned without an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Undetected {
    /// Something is missing.
    Missing(String),
    /// The row of a session, which has no checksum.
    Session(String),
    /// Something has another value.
    Wrong(String),
}

/// Finds everything that changed without an error.
pub fn find_undetected(sound: &StoreContents, now: &StoreContents) -> Vec<Undetected> {
    let mut silent = Vec::new();
    for (what, was) in sound {
        match (was, now.get(what)) {
            (Ok(was), Some(Ok(is))) if is == was => {}
            (_, Some(Err(Error::Damaged(_) | Error::Store(_)))) => {}
            (_, None | Some(Err(_))) => silent.push(Undetected::Missing(what.clone())),
            (_, Some(Ok(is))) if is == "None" => silent.push(Undetected::Missing(what.clone())),
            (_, Some(is)) if what.ends_with(": session") => {
                silent.push(Undetected::Session(format!("{what}: {is:?}")));
            }
            // A list without some of its items, or another value.
            (was, Some(is)) => {
                silent.push(Undetected::Wrong(format!("{what}: {is:?}, was {was:?}")));
            }
        }
    }
    let new = now.iter().filter(|(what, is)| is.is_ok() && !sound.contains_key(*what));
    silent.extend(new.map(|(what, is)| Undetected::Wrong(format!("{what} is new: {is:?}"))));
    silent
}

/// Whether the checks of the whole store find something.
pub async fn is_detected(store: &SqliteStore) -> bool {
    let Ok(findings) = store.check(|_| ()).await else { return true };
    if !findings.is_empty() {
        return true;
    }
    let Ok(sessions) = store.list_all_sessions(turnwire_log::store::SessionNumber(0), 100).await
    else {
        return true;
    };
    for session in sessions {
        match doctor::check(store, &session).await {
            Ok(found) if found.is_empty() => {}
            Ok(_) | Err(_) => return true,
        }
    }
    false
}

/// Corrupts a file in one place, and returns how.
pub fn corrupt_file(rng: &mut Rng, file: &Path) -> String {
    let mut bytes = std::fs::read(file).unwrap();
    let at = rng.usize(..bytes.len());
    let how = match rng.u8(..8) {
        0 => {
            let sector = at / 512 * 512;
            bytes[sector..sector + 512].fill(0);
            format!("sector at {sector} is empty")
        }
        1 => {
            let sector = at / 512 * 512;
            let other = rng.usize(..bytes.len()) / 512 * 512;
            bytes.copy_within(other..other + 512, sector);
            format!("sector at {sector} is that of {other}")
        }
        2 => {
            bytes[at] = rng.u8(..);
            format!("byte {at} is another")
        }
        _ => {
            let bit = rng.u8(..8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} has turned")
        }
    };
    std::fs::write(file, bytes).unwrap();
    how
}
