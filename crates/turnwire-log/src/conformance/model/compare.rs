//! Compares a store with the model.

use super::super::harness::{Harness, read_all, seq};
use super::expected::ExpectedSession;
use super::random_run::RandomRun;
use crate::error::Error;
use crate::search::SearchQuery;
use crate::store::{MessageQuery, SessionQuery, SessionStatus, Store};
use crate::visible_sessions::{SessionPattern, VisibleSessions};
use fastrand::Rng;

impl RandomRun {
    pub(super) async fn compare_lists(&mut self, store: &dyn Store) {
        let mut query = SessionQuery::latest(self.tenant(), self.rng.usize(..5));
        if self.rng.bool() {
            query.search = SearchQuery::new(&self.words()).unwrap();
        }
        if self.rng.bool() {
            let ids = self.model.sessions.keys().map(|key| key.id.to_string()).collect::<Vec<_>>();
            let rules = (0..self.rng.usize(..4)).map(|_| {
                let id = self.rng.choice(&ids).map_or("none", String::as_str);
                let end = id.floor_char_boundary(self.rng.usize(..=id.len()));
                let prefix = id.get(..end).unwrap_or_default();
                if self.rng.bool() { format!("{prefix}*") } else { id.to_owned() }
            });
            query.visible = VisibleSessions::only(rules.map(|rule| SessionPattern::new(&rule)));
        }
        if self.rng.u8(..3) == 0 {
            query.status = self.rng.choice([
                SessionStatus::Idle,
                SessionStatus::Running,
                SessionStatus::Waiting,
            ]);
        }
        let expected = self.model.list(&query);
        let found = store.list_sessions(&query).await.unwrap();
        assert_eq!(found, expected, "{query:?}");
        query.after = found.last().map(|record| (record.updated_ms, record.number));
        assert_eq!(
            store.list_sessions(&query).await.unwrap(),
            self.model.list(&query),
            "{query:?}"
        );

        let open = store.list_open_sessions().await.unwrap();
        let mut open: Vec<_> = open.into_iter().map(|record| record.key).collect();
        open.sort();
        let sessions = self.model.sessions.iter();
        let expected = sessions.filter(|(_, session)| {
            session.record.state.keep_from().is_some() || !session.queue.is_empty()
        });
        assert_eq!(
            open.iter().collect::<Vec<_>>(),
            expected.map(|(key, _)| key).collect::<Vec<_>>()
        );
    }

    pub(super) async fn compare(&mut self, store: &dyn Store, session: &ExpectedSession) {
        let no = session.record.number;
        let found = store.find_session(&session.record.key).await.unwrap();
        assert_eq!(found.as_ref(), Some(&session.record));
        let (first, last) = (session.record.first.get(), session.record.head.get());
        let from = self.rng.u64(first..=last + 1);
        let found = read_all(store, no, from, self.rng.usize(..600)).await;
        let expected = session.events.iter().zip(1..).map(|((line, _), at)| (at, line.clone()));
        assert_eq!(found, expected.skip_while(|(at, _)| *at < from).collect::<Vec<_>>());
        if first > 1 {
            let trimmed = store.read_events(no, seq(self.rng.u64(1..first)), 100).await;
            assert!(matches!(trimmed, Err(Error::Trimmed(at)) if at.get() == first), "{trimmed:?}");
        }
        let place = |rng: &mut Rng| (rng.u8(..3) == 0).then(|| seq(rng.u64(1..last + 2)));
        let query = MessageQuery {
            before: place(&mut self.rng),
            after: place(&mut self.rng),
            limit: self.rng.usize(..6),
            max_bytes: None,
            sub_agents: self.rng.bool(),
        };
        let found = store.list_messages(no, &query).await.unwrap();
        assert_eq!(found, session.messages(&query), "{query:?}");
        if let Some(message) = self.rng.choice(&session.messages) {
            assert_eq!(store.find_message(no, &message.id).await.unwrap().as_ref(), Some(message));
        }
        assert_eq!(store.list_queued(no).await.unwrap(), session.queue);
    }

    pub(super) async fn compare_all(&mut self, harness: &mut Harness) {
        let sessions: Vec<ExpectedSession> = self.model.sessions.values().cloned().collect();
        for session in &sessions {
            self.compare(harness.store(), session).await;
            let all = MessageQuery { limit: 10_000, sub_agents: true, ..MessageQuery::default() };
            let found = harness.store().list_messages(session.record.number, &all).await.unwrap();
            assert_eq!(found, session.messages);
        }
        for _ in 0..10 {
            self.compare_lists(harness.store()).await;
        }
        let names =
            |n: usize| (format!("{} {}", self.seed, n % 2), format!("s{}/{}", n / 2 % 3, n / 6));
        for (tenant, key) in (0..2 * 3 * 5).map(names) {
            let known = self.model.keys.get(&(tenant.as_str().into(), key.clone()));
            let found = harness.store().find_idempotency_record(&tenant, &key).await.unwrap();
            assert_eq!(found.as_ref(), known.map(|(record, _, _)| record));
        }
        for ((tenant, hash), blob) in &self.model.blobs {
            assert_eq!(
                harness.store().read_blob(tenant, *hash).await.unwrap().as_ref(),
                Some(blob)
            );
        }
        for (key, no, _) in &self.deleted {
            let found = harness.store().find_session(key).await.unwrap();
            assert!(found.is_none_or(|found| found.number != *no), "a deleted session is back");
        }
    }
}
