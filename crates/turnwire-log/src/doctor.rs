//! Compares stored messages and states with their events, and repairs them. `turnwire doctor` calls
//! it.
//!
//! Messages are a projection: they can always be folded again from the events that remain.
//! [`check`] folds a session's events as the log does and compares. [`repair`] replaces what is
//! stored by the result. Neither changes an event.

use crate::error::{Error, Result};
use crate::loaded_session::{LoadedSession, PushOutcome, Transaction};
use crate::message_pages::MessagePages;
use crate::projection::{FOLD_VERSION, parse_event};
use crate::store::{
    Append, EventLines, Fence, SessionNumber, SessionRecord, SessionState, Store, StoredMessage,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use turnwire_core::{EventKind, Head, Seq};

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 1 << 20;
/// How many messages are written at a time.
const WRITE_MESSAGES: usize = 64;
/// How often a session is checked again if it changes meanwhile.
const MAX_TRIES: usize = 3;

/// A difference between what is stored and what the events say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFinding {
    /// A message of the events is not stored.
    Missing(String),
    /// A stored message differs from its events.
    Different(String),
    /// A message was folded by an older version.
    Outdated(String),
    /// A stored message has no events among those that remain. It is not changed.
    WithoutEvents(String),
    /// Messages cannot be read. All messages of the events are written again.
    Unreadable(String),
    /// The stored state differs from the events.
    State,
    /// An event does not fit those before it, or cannot be read. It is not changed.
    Event(Seq, String),
}

impl SessionFinding {
    /// Whether [`repair`] can fix it.
    pub fn can_be_repaired(&self) -> bool {
        match self {
            Self::Missing(_)
            | Self::Different(_)
            | Self::Outdated(_)
            | Self::Unreadable(_)
            | Self::State => true,
            Self::WithoutEvents(_) | Self::Event(..) => false,
        }
    }
}

impl fmt::Display for SessionFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(id) => write!(f, "message {id} is missing, but its events exist"),
            Self::Different(id) => write!(f, "message {id} differs from its events"),
            Self::Outdated(id) => write!(f, "message {id} was folded by an older version"),
            Self::WithoutEvents(id) => write!(f, "message {id} has no events"),
            Self::Unreadable(why) => write!(f, "messages cannot be read: {why}"),
            Self::State => f.write_str("the session's state differs from its events"),
            Self::Event(seq, why) => write!(f, "event {seq}: {why}"),
        }
    }
}

/// Checks one session, and reports each message at most once.
///
/// The session may change meanwhile: only differences that stay are reported.
pub async fn check(store: &dyn Store, record: &SessionRecord) -> Result<Vec<SessionFinding>> {
    let mut record = record.clone();
    let mut tries = MAX_TRIES;
    loop {
        let found = check_once(store, &record).await;
        tries -= 1;
        if tries == 0 || matches!(&found, Ok(found) if found.is_empty()) {
            return found;
        }
        match store.find_session(&record.key).await? {
            Some(now) if now.number != record.number => return Ok(Vec::new()),
            None => return Ok(Vec::new()),
            Some(now) if now == record => return found,
            Some(now) => record = now,
        }
    }
}

async fn check_once(store: &dyn Store, record: &SessionRecord) -> Result<Vec<SessionFinding>> {
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut folding = Refold::new(record);
    let mut superseded = BTreeSet::new();
    while folding.fold_next(store).await? {
        for message in folding.messages.drain(..) {
            expected.insert(message.id.clone(), fingerprint(&message));
        }
        superseded.extend(folding.superseded.drain(..));
    }
    let mut found = std::mem::take(&mut folding.problems);
    let mut stored = MessagePages::new(store, record.number);
    loop {
        let some = match stored.next_page().await {
            Ok(some) => some,
            Err(Error::Damaged(why)) => {
                found.push(SessionFinding::Unreadable(why));
                expected.clear();
                break;
            }
            Err(error) => return Err(error),
        };
        if some.is_empty() {
            break;
        }
        for message in some {
            // The folded events say nothing about later or trimmed messages.
            if !record.head.includes(message.last) || message.first < record.first {
                continue;
            }
            let should_be_superseded = superseded.contains(&message.id);
            let plain = StoredMessage { superseded: false, fold_version: FOLD_VERSION, ..message };
            found.extend(match expected.remove(&plain.id) {
                None => Some(SessionFinding::WithoutEvents(plain.id)),
                Some(other) if other != fingerprint(&plain) => {
                    Some(SessionFinding::Different(plain.id))
                }
                Some(_) if message.superseded != should_be_superseded => {
                    Some(SessionFinding::Different(plain.id))
                }
                Some(_) if message.fold_version != FOLD_VERSION => {
                    Some(SessionFinding::Outdated(plain.id))
                }
                Some(_) => None,
            });
        }
    }
    found.extend(expected.into_keys().map(SessionFinding::Missing));
    if folding.state(record) != record.state {
        found.push(SessionFinding::State);
    }
    Ok(found)
}

/// Replaces what is stored by what the events say. Nothing else may use the store meanwhile.
pub async fn repair(
    store: &dyn Store,
    record: &SessionRecord,
    found: &[SessionFinding],
) -> Result<()> {
    let mut wanted = BTreeSet::new();
    for finding in found {
        if let SessionFinding::Missing(id)
        | SessionFinding::Different(id)
        | SessionFinding::Outdated(id) = finding
        {
            wanted.insert(id.as_str());
        }
    }
    let all = found.iter().any(|finding| matches!(finding, SessionFinding::Unreadable(_)));
    let superseded = superseded_ids(store, record).await?;
    let mut folding = Refold::new(record);
    let mut messages = Vec::new();
    while folding.fold_next(store).await? {
        for mut message in folding.messages.drain(..) {
            if all || wanted.contains(message.id.as_str()) {
                message.superseded = superseded.contains(&message.id);
                messages.push(message);
            }
        }
        if messages.len() >= WRITE_MESSAGES {
            store.replace_messages(record.number, std::mem::take(&mut messages)).await?;
        }
    }
    if !messages.is_empty() {
        store.replace_messages(record.number, messages).await?;
    }
    if found.contains(&SessionFinding::State) {
        write_state(store, record.number, folding.state(record)).await?;
    }
    Ok(())
}

async fn superseded_ids(store: &dyn Store, record: &SessionRecord) -> Result<BTreeSet<String>> {
    let mut folding = Refold::new(record);
    let mut superseded = BTreeSet::new();
    while folding.fold_next(store).await? {
        folding.messages.clear();
        superseded.extend(folding.superseded.drain(..));
    }
    Ok(superseded)
}

async fn write_state(store: &dyn Store, session: SessionNumber, state: SessionState) -> Result<()> {
    let lease = store.acquire_lease(session, "doctor").await?;
    let append =
        Append { state: Some(state), ..Append::empty(session, lease.fence, crate::log::now_ms()) };
    store.append(append).await
}

fn fingerprint(message: &StoredMessage) -> u64 {
    let StoredMessage {
        id,
        first,
        last,
        event_id,
        of_sub_agent,
        superseded,
        fold_version,
        json,
        text,
    } = message;
    let mut hasher = DefaultHasher::new();
    (id, first, last, event_id, of_sub_agent).hash(&mut hasher);
    (superseded, fold_version, &**json, text).hash(&mut hasher);
    hasher.finish()
}

/// Folds the events of a session again, with the code that folds new events.
struct Refold {
    live: LoadedSession,
    last: Head,
    messages: Vec<StoredMessage>,
    superseded: Vec<String>,
    problems: Vec<SessionFinding>,
}

impl Refold {
    fn new(record: &SessionRecord) -> Self {
        let before = record.first.previous();
        let nobody = Fence(0);
        Self {
            live: LoadedSession::new(
                record.number,
                nobody,
                record.first,
                before,
                SessionState::default(),
            ),
            last: record.head,
            messages: Vec::new(),
            superseded: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Folds more events; `false` at the end.
    async fn fold_next(&mut self, store: &dyn Store) -> Result<bool> {
        if self.live.last >= self.last {
            return Ok(false);
        }
        let from = self.live.last.next();
        let rows = match store.read_events(self.live.number, from, READ_BYTES).await {
            Ok(rows) => rows,
            Err(Error::Damaged(why)) => {
                // Nothing after it can be folded.
                self.problems.push(SessionFinding::Event(from, why));
                self.live.last = self.last;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if rows.is_empty() {
            let why = format!("the log ends here, but should continue to {}", self.last);
            self.problems.push(SessionFinding::Event(from, why));
            self.live.last = self.last;
            return Ok(false);
        }
        for lines in rows {
            self.fold_lines(&lines);
        }
        Ok(true)
    }

    fn fold_lines(&mut self, lines: &EventLines) {
        let mut tx = Transaction::new(&mut self.live, 0);
        for (seq, line) in lines.iter().take_while(|(seq, _)| self.last.includes(*seq)) {
            let pushed = match parse_event(seq, line) {
                Ok(mut event) => {
                    if let EventKind::Supersede(event) = &event.kind {
                        self.superseded.extend(event.message_ids.iter().cloned());
                    }
                    let pushed = tx.push(&mut event, std::str::from_utf8(line).ok());
                    pushed.map_err(|why| why.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            let why = match pushed {
                Ok(PushOutcome::Stored(_)) => continue,
                Ok(PushOutcome::Repeated) => "it repeats an earlier event".to_owned(),
                Err(why) => why,
            };
            self.problems.push(SessionFinding::Event(seq, why));
            // It keeps its seq.
            self.messages.extend(tx.into_append().messages);
            self.live.last = seq.into();
            tx = Transaction::new(&mut self.live, 0);
        }
        self.messages.extend(tx.into_append().messages);
    }

    /// The state according to the events. What they do not say is kept.
    fn state(&self, record: &SessionRecord) -> SessionState {
        let SessionState { status, open_from, usage, cost, subs, rules, .. } =
            self.live.state.clone();
        let folded = SessionState { status, open_from, ..record.state.clone() };
        if record.first != Seq::FIRST {
            // Usage and accepted rules of trimmed replies are only in the stored state.
            return folded;
        }
        SessionState { usage, cost, subs, rules, ..folded }
    }
}
