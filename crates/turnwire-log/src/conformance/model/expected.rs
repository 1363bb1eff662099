//! The model: what a store should hold, as plain lists.

use crate::error::Error;
use crate::search::SearchQuery;
use crate::store::{
    Append, Blob, EventLines, Fence, IdempotencyRecord, MessageQuery, QueuedMessage, SessionKey,
    SessionNumber, SessionQuery, SessionRecord, StoredMessage,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use turnwire_core::Head;

/// One session.
#[derive(Debug, Clone)]
pub(super) struct ExpectedSession {
    pub(super) record: SessionRecord,
    /// All events that ever existed, and when each came.
    pub(super) events: Vec<(Bytes, i64)>,
    pub(super) messages: Vec<StoredMessage>,
    pub(super) queue: Vec<QueuedMessage>,
    /// All fences that were granted; the last one is valid.
    pub(super) fences: Vec<Fence>,
    /// Whether an append without events would depend on a failed append.
    failed: bool,
}

/// The record of a key, its session, and when it came.
type Key = (IdempotencyRecord, SessionNumber, i64);

/// All data of a store.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) sessions: BTreeMap<SessionKey, ExpectedSession>,
    pub(super) keys: BTreeMap<(Arc<str>, String), Key>,
    pub(super) blobs: BTreeMap<(Arc<str>, [u8; 32]), Blob>,
}

impl ExpectedSession {
    pub(super) fn new(record: SessionRecord) -> Self {
        Self {
            record,
            events: Vec::new(),
            messages: Vec::new(),
            queue: Vec::new(),
            fences: Vec::new(),
            failed: false,
        }
    }

    pub(super) fn acquired(&mut self, fence: Fence) {
        assert!(self.fences.iter().all(|earlier| *earlier < fence), "a fence that is not higher");
        self.fences.push(fence);
        self.failed = false;
    }

    fn append(&mut self, append: &Append) -> Result<(), Error> {
        if self.fences.last() != Some(&append.fence) {
            return Err(Error::Fenced);
        }
        if let Some(lines) = &append.lines {
            self.failed = lines.first != self.record.head.next();
        }
        if self.failed {
            return Err(Error::OutOfOrder);
        }
        for (_, line) in append.lines.iter().flat_map(EventLines::iter) {
            self.events.push((Bytes::copy_from_slice(line), append.now_ms));
        }
        self.record.head = Head::new(self.events.len() as u64);
        self.put(&append.messages);
        for message in &mut self.messages {
            message.superseded |= append.superseded.contains(&message.id);
        }
        if let Some(state) = &append.state {
            self.record.state = state.clone();
            self.record.updated_ms = append.now_ms;
        }
        self.queue.extend(append.enqueue.iter().cloned());
        self.queue.retain(|queued| !append.dequeue.contains(&queued.id));
        Ok(())
    }

    pub(super) fn put(&mut self, messages: &[StoredMessage]) {
        for message in messages {
            self.messages.retain(|old| old.id != message.id);
            self.messages.push(message.clone());
        }
        self.messages.sort_by_key(|message| message.first);
    }

    pub(super) fn messages(&self, query: &MessageQuery) -> Vec<StoredMessage> {
        let found = self.messages.iter().filter(|message| {
            query.before.is_none_or(|before| message.first < before)
                && query.after.is_none_or(|after| message.first > after)
                && (query.sub_agents || !message.of_sub_agent)
        });
        let mut found: Vec<_> = found.cloned().collect();
        if query.after.is_some() {
            found.truncate(query.limit);
            return found;
        }
        found.split_off(found.len().saturating_sub(query.limit))
    }

    /// Whether retention may cut before a seq: no open reply, and no part of a message.
    pub(super) fn may_begin_at(&self, first: u64) -> bool {
        let open = self.record.state.open_from.is_some_and(|open| open.get() < first);
        let split =
            |message: &StoredMessage| message.first.get() < first && message.last.get() >= first;
        !open && !self.messages.iter().any(split)
    }

    /// The bytes of the events that are kept.
    pub(super) fn bytes(&self) -> u64 {
        let kept = self.events.iter().skip(self.trimmed_count());
        kept.map(|(line, _)| line.len() as u64 + 1).sum()
    }

    /// How many events were trimmed.
    pub(super) fn trimmed_count(&self) -> usize {
        usize::try_from(self.record.first.get() - 1).unwrap()
    }

    fn has_words(&self, search: &SearchQuery) -> bool {
        let has =
            |text: &str| search.words().iter().all(|word| text.split(' ').any(|has| has == word));
        has(&self.record.title) || self.messages.iter().any(|message| has(&message.text))
    }
}

impl Model {
    pub(super) fn append(&mut self, key: &SessionKey, append: &Append) -> Result<(), Error> {
        let session = self.sessions.get_mut(key).filter(|one| one.record.number == append.session);
        session.ok_or(Error::NoSession)?.append(append)?;
        if let Some(record) = &append.idempotency {
            let name = (Arc::clone(&record.tenant), record.key.clone());
            self.keys.insert(name, (record.clone(), append.session, append.now_ms));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &SessionKey) {
        if let Some(gone) = self.sessions.remove(key) {
            self.keys.retain(|_, (_, of, _)| *of != gone.record.number);
        }
    }

    pub(super) fn list(&self, query: &SessionQuery) -> Vec<SessionRecord> {
        let found = self.sessions.values().filter(|session| {
            let record = &session.record;
            record.key.tenant == query.tenant
                && query.status.is_none_or(|status| record.state.status == status)
                && query.after.is_none_or(|after| (record.updated_ms, record.number) < after)
                && query.search.as_ref().is_none_or(|search| session.has_words(search))
                && query.visible.contains(&record.key.id)
        });
        let mut found: Vec<_> = found.map(|session| session.record.clone()).collect();
        // No two sessions change in the same millisecond here.
        found.sort_by_key(|record| std::cmp::Reverse(record.updated_ms));
        found.truncate(query.limit);
        found
    }
}
