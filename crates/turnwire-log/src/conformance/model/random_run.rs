//! The random operations of a run.

use super::super::harness::{Harness, new, seq};
use super::expected::{ExpectedSession, Model};
use crate::error::Error;
use crate::store::{
    Append, Blob, EventLines, Fence, IdempotencyRecord, QueuedMessage, Retention, RetentionReport,
    SessionKey, SessionNumber, SessionPatch, SessionState, SessionStatus, Store, StoreFuture,
    StoredMessage,
};
use bytes::Bytes;
use fastrand::Rng;
use turnwire_core::{Fields, Head};

const WORDS: [&str; 6] = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"];

/// A run: random numbers, a clock, and the model.
pub(super) struct RandomRun {
    pub(super) rng: Rng,
    pub(super) seed: u64,
    now_ms: i64,
    pub(super) model: Model,
    /// Deleted sessions, each with a fence that it had.
    pub(super) deleted: Vec<(SessionKey, SessionNumber, Fence)>,
}

impl RandomRun {
    pub(super) fn new(rng: Rng, seed: u64) -> Self {
        Self { rng, seed, now_ms: 0, model: Model::default(), deleted: Vec::new() }
    }

    pub(super) fn tenant(&mut self) -> String {
        format!("{} {}", self.seed, self.rng.u8(..2))
    }

    fn key(&mut self) -> SessionKey {
        SessionKey::new(self.tenant(), format!("s{}", self.rng.u8(..3)))
    }

    pub(super) fn words(&mut self) -> String {
        let count = self.rng.usize(1..3);
        (0..count).map(|_| WORDS[self.rng.usize(..6)]).collect::<Vec<_>>().join(" ")
    }

    /// A random existing session.
    fn session(&mut self) -> Option<ExpectedSession> {
        let at = self.rng.usize(..self.model.sessions.len().max(1));
        self.model.sessions.values().nth(at).cloned()
    }

    fn model_of(&mut self, session: &ExpectedSession) -> &mut ExpectedSession {
        self.model.sessions.get_mut(&session.record.key).unwrap()
    }

    pub(super) async fn step(&mut self, harness: &mut Harness) {
        self.now_ms += 1;
        let store = harness.store();
        match self.rng.u8(..100) {
            0..10 => self.create(store).await,
            10..12 => self.delete(store).await,
            12..20 => self.acquire(store).await,
            20..24 => self.patch(store).await,
            24..70 => self.append_several(store).await,
            70..74 => self.replace(store).await,
            74..77 => self.blob(store).await,
            77..82 => self.retain(store).await,
            82..84 => self.reopen(harness).await,
            84..92 => self.compare_lists(store).await,
            _ => {
                if let Some(session) = self.session() {
                    self.compare(store, &session).await;
                }
            }
        }
    }

    async fn create(&mut self, store: &dyn Store) {
        let key = self.key();
        let mut session = new(&key.tenant, &key.id, self.now_ms);
        session.title = self.words();
        let (record, made) = store.create_session(session).await.unwrap();
        assert_eq!(made, !self.model.sessions.contains_key(&key));
        if made {
            assert_eq!((record.created_ms, record.head), (self.now_ms, Head::EMPTY));
            assert!(self.deleted.iter().all(|(_, no, _)| *no != record.number));
            self.model.sessions.insert(key.clone(), ExpectedSession::new(record.clone()));
        }
        assert_eq!(Some(&record), self.model.sessions.get(&key).map(|known| &known.record));
    }

    async fn delete(&mut self, store: &dyn Store) {
        let Some(session) = self.session() else { return };
        store.delete_session(session.record.number).await.unwrap();
        self.model.delete(&session.record.key);
        let fence = session.fences.last().copied().unwrap_or(Fence(0));
        self.deleted.push((session.record.key, session.record.number, fence));
    }

    async fn acquire(&mut self, store: &dyn Store) {
        let Some(session) = self.session() else { return };
        let lease = store.acquire_lease(session.record.number, "run").await.unwrap();
        self.model_of(&session).acquired(lease.fence);
    }

    /// Leases may end with the store that granted them.
    async fn reopen(&mut self, harness: &mut Harness) {
        harness.reopen().await;
        for session in self.model.sessions.values_mut() {
            let lease = harness.store().acquire_lease(session.record.number, "run").await.unwrap();
            session.acquired(lease.fence);
        }
    }

    async fn patch(&mut self, store: &dyn Store) {
        let Some(session) = self.session() else { return };
        let title = self.rng.bool().then(|| self.words());
        let mut metadata = None;
        if self.rng.bool() {
            let fields: Fields = [("at", self.now_ms)].into_iter().collect();
            metadata = Some(fields);
        }
        let patch = SessionPatch { title: title.clone(), metadata: metadata.clone() };
        let record = store.patch_session(session.record.number, patch).await.unwrap();
        let model = self.model_of(&session);
        model.record.title = title.unwrap_or_else(|| model.record.title.clone());
        model.record.metadata = metadata.unwrap_or_else(|| model.record.metadata.clone());
        assert_eq!(record, model.record);
    }

    /// Several appends without waiting, valid and invalid, to one or more sessions. Then some are
    /// awaited in any order, and the others are dropped.
    async fn append_several(&mut self, store: &dyn Store) {
        let mut pending: Vec<(StoreFuture<()>, Result<(), Error>)> = Vec::new();
        for _ in 0..self.rng.usize(1..6) {
            let (key, append) = if !self.deleted.is_empty() && self.rng.u8(..25) == 0 {
                let (key, no, fence) = self.rng.choice(&self.deleted).cloned().unwrap();
                (key, self.empty_append(no, fence))
            } else if let Some(session) = self.session() {
                (session.record.key.clone(), self.random_append(&session))
            } else {
                return;
            };
            let expected = self.model.append(&key, &append);
            pending.push((store.append(append), expected));
        }
        self.rng.shuffle(&mut pending);
        if self.rng.bool() {
            pending.truncate(self.rng.usize(..pending.len()));
            // A dropped append is finished when a later one is.
            let sessions: Vec<ExpectedSession> = self.model.sessions.values().cloned().collect();
            for session in sessions {
                let fence = session.fences.last().copied().unwrap_or(Fence(0));
                let append = self.empty_append(session.record.number, fence);
                let expected = self.model.append(&session.record.key, &append);
                pending.push((store.append(append), expected));
            }
        }
        for (append, expected) in pending {
            let result = append.await;
            let (result, expected) = (format!("{result:?}"), format!("{expected:?}"));
            assert_eq!(result, expected);
        }
    }

    fn empty_append(&self, session: SessionNumber, fence: Fence) -> Append {
        Append::empty(session, fence, self.now_ms)
    }

    fn random_append(&mut self, session: &ExpectedSession) -> Append {
        self.now_ms += 1;
        let mut fence = session.fences.last().copied().unwrap_or(Fence(0));
        if self.rng.u8(..15) == 0 {
            fence = self.rng.choice(&session.fences).copied().unwrap_or(Fence(0));
        }
        let mut append = self.empty_append(session.record.number, fence);
        let mut last = session.record.head.get();
        if self.rng.u8(..6) > 0 {
            let count = self.rng.u32(1..8);
            let mut first = last + 1;
            last += u64::from(count);
            if self.rng.u8(..12) == 0 {
                first = self.rng.u64(1..first + 5);
            }
            let bytes: String = (0..count).map(|_| self.line()).collect();
            append.lines = Some(EventLines { first: seq(first), count, bytes: Bytes::from(bytes) });
        }
        if last > 0 && self.rng.bool() {
            self.add_folded(session, last, &mut append);
        }
        if self.rng.u8(..6) == 0 {
            append.idempotency = Some(IdempotencyRecord {
                tenant: session.record.key.tenant.clone(),
                key: format!("{}/{}", session.record.key.id, self.rng.u8(..5)),
                fingerprint: [self.rng.u8(..); 32],
                response: self.words(),
            });
        }
        if self.rng.u8(..5) == 0 {
            let id = format!("q{}", self.now_ms);
            let json = Bytes::from(self.line());
            append.enqueue.push(QueuedMessage { reply_id: format!("reply to {id}"), id, json });
        }
        if let Some(queued) = session.queue.first().filter(|_| self.rng.u8(..4) == 0) {
            append.dequeue.push(queued.id.clone());
        }
        append
    }

    fn line(&mut self) -> String {
        let pad = self.rng.usize(..40);
        format!("{{\"random\":{},\"pad\":\"{:pad$}\"}}\n", self.rng.u64(..), "")
    }

    /// Adds what the log would derive from events: the start or end of a reply, a message.
    fn add_folded(&mut self, session: &ExpectedSession, last: u64, append: &mut Append) {
        let open = session.record.state.open_from.map(turnwire_core::Seq::get);
        let kept = session.record.first.get().min(last);
        let open = match open {
            Some(first) if self.rng.bool() => {
                append.messages.push(self.message(first, last));
                None
            }
            Some(first) => Some(first),
            None if self.rng.bool() => Some(last),
            None => {
                // A message of one event.
                let first = self.rng.u64(kept..=last);
                append.messages.push(self.message(first, last));
                None
            }
        };
        // Two messages do not begin at the same seq.
        append.messages.retain(|new| session.messages.iter().all(|old| old.first != new.first));
        if let Some(old) = self.rng.choice(&session.messages).filter(|_| last.is_multiple_of(3)) {
            append.superseded.push(old.id.clone());
        }
        let status = if self.rng.bool() { SessionStatus::Running } else { SessionStatus::Waiting };
        append.state = Some(SessionState {
            status: if open.is_some() { status } else { SessionStatus::Idle },
            open_from: open.map(seq),
            ..SessionState::default()
        });
    }

    fn message(&mut self, first: u64, last: u64) -> StoredMessage {
        StoredMessage {
            id: format!("m{}", self.now_ms),
            first: seq(first),
            last: seq(last),
            event_id: format!("e{first}"),
            of_sub_agent: self.rng.u8(..3) == 0,
            superseded: false,
            fold_version: self.rng.u32(1..3),
            json: Bytes::from(self.line()),
            text: self.words(),
        }
    }

    async fn replace(&mut self, store: &dyn Store) {
        let Some(session) = self.session() else { return };
        let mut messages = session.messages.clone();
        messages.retain(|_| self.rng.bool());
        for message in &mut messages {
            message.text = self.words();
            message.fold_version += 1;
        }
        store.replace_messages(session.record.number, messages.clone()).await.unwrap();
        self.model_of(&session).put(&messages);
    }

    async fn blob(&mut self, store: &dyn Store) {
        let (tenant, hash) = (self.tenant(), [self.rng.u8(..3); 32]);
        let blob = Blob { media_type: self.words(), bytes: Bytes::from(self.line()) };
        store.put_blob(&tenant, hash, blob.clone()).await.unwrap();
        let kept = self.model.blobs.entry((tenant.as_str().into(), hash)).or_insert(blob);
        assert_eq!(store.read_blob(&tenant, hash).await.unwrap().as_ref(), Some(&*kept));
    }

    /// An engine has some freedom in what it deletes. The rules are checked, and the model follows
    /// the engine.
    async fn retain(&mut self, store: &dyn Store) {
        let before_ms = self.rng.bool().then(|| self.rng.i64(..=self.now_ms));
        let max_bytes = (self.rng.u8(..4) == 0).then(|| self.rng.u64(..5000));
        let keys_before_ms = self.rng.bool().then(|| self.rng.i64(..=self.now_ms));
        let retention = Retention { before_ms, max_bytes, keys_before_ms, blobs_before_ms: None };
        let removed = store.apply_retention(retention).await.unwrap();

        let mut expected = RetentionReport::default();
        for session in self.model.sessions.values_mut() {
            let record = store.find_session(&session.record.key).await.unwrap().unwrap();
            let (gone, bytes) = (session.trimmed_count(), session.bytes());
            session.record.first = record.first;
            assert!(session.trimmed_count() >= gone, "what was removed is there again");
            if session.trimmed_count() == gone {
                continue;
            }
            expected.sessions += 1;
            expected.events += (session.trimmed_count() - gone) as u64;
            expected.bytes += bytes - session.bytes();
            assert!(session.may_begin_at(record.first.get()), "cut at {}", record.first);
            let young = session.events.iter().take(session.trimmed_count()).skip(gone);
            let young =
                before_ms.is_none_or(|before| young.map(|(_, at)| *at).max() >= Some(before));
            assert!(max_bytes.is_some() || !young, "what is young enough was removed");
        }
        let total: u64 = self.model.sessions.values().map(ExpectedSession::bytes).sum();
        let left = |session: &ExpectedSession| {
            let head = session.record.head;
            session.may_begin_at(head.next().get()) && head.includes(session.record.first)
        };
        assert!(
            max_bytes.is_none_or(|max| total <= max) || !self.model.sessions.values().any(left),
            "{total} bytes are left, and more could go",
        );
        if let Some(before) = before_ms {
            for session in self.model.sessions.values().filter(|session| left(session)) {
                let young = session.events.iter().any(|(_, at)| *at >= before);
                assert!(young, "all of {:?} is old, and could go", session.record.key);
            }
        }
        let keys = self.model.keys.len();
        self.model.keys.retain(|_, (_, _, at)| keys_before_ms.is_none_or(|before| *at >= before));
        expected.keys = (keys - self.model.keys.len()) as u64;
        assert_eq!(removed, expected);
    }

    /// Deletes everything, for the next run.
    pub(super) async fn delete_everything(mut self, harness: &mut Harness) {
        let retention = Retention { keys_before_ms: Some(i64::MAX), ..Retention::default() };
        harness.store().apply_retention(retention).await.unwrap();
        while let Some((_, session)) = self.model.sessions.pop_first() {
            harness.store().delete_session(session.record.number).await.unwrap();
        }
    }
}
