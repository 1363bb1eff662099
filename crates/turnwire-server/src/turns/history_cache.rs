//! Conversations of the last turns, parsed: the next turn of a session reads only the messages that are new.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use turnwire_agent::tool_call_ids;
use turnwire_core::{Msg, Seq};
use turnwire_log::Session;
use turnwire_log::store::StoredMessage;

/// Shorter conversations are read from the store each time: that is quick.
const MIN_MESSAGES: usize = 16;
/// How many bytes of JSON the messages may have, of one conversation and in all.
const MAX_BYTES: usize = 1 << 20;
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// The conversation before a reply.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) messages: Vec<Msg>,
    /// The ids of calls in superseded messages.
    pub(super) superseded_calls: Vec<String>,
    /// The first event of the last message.
    pub(super) last: Option<Seq>,
    bytes: usize,
}

impl History {
    /// Adds the next message. The error says why it cannot be read.
    pub(super) fn add(&mut self, message: &StoredMessage) -> Result<(), String> {
        self.last = Some(message.first);
        self.bytes += message.json.len();
        let text = std::str::from_utf8(&message.json).map_err(|why| why.to_string());
        let msg = text.and_then(|text| Msg::from_json(text).map_err(|why| why.to_string()));
        match msg {
            Ok(msg) if message.superseded => {
                self.superseded_calls.extend(tool_call_ids(&msg).map(str::to_owned));
            }
            Ok(msg) => self.messages.push(msg),
            Err(_) if message.superseded => {}
            Err(why) => return Err(why),
        }
        Ok(())
    }
}

/// The conversations of the last turns.
#[derive(Debug, Default)]
pub(super) struct HistoryCache(Mutex<VecDeque<Entry>>);

#[derive(Debug)]
struct Entry {
    /// The session as it is loaded: another one may have other messages.
    session: Weak<Session>,
    version: u64,
    history: History,
}

impl HistoryCache {
    /// Takes the messages of a session before a seq, as far as they are known. `version` is the version of its history.
    pub(super) fn take(
        &self,
        session: &Arc<Session>,
        version: u64,
        before: Seq,
    ) -> Option<History> {
        let mut entries = self.0.lock();
        let at = entries.iter().rposition(|entry| entry.is_of(session))?;
        let entry = entries.remove(at)?;
        (entry.version == version && entry.history.last < Some(before)).then_some(entry.history)
    }

    /// Keeps a conversation. `version` is the version of the history before it was read.
    pub(super) fn insert(&self, session: &Arc<Session>, version: u64, history: &History) {
        if history.messages.len() < MIN_MESSAGES || history.bytes > MAX_BYTES {
            return;
        }
        let entry = Entry { session: Arc::downgrade(session), version, history: history.clone() };
        let mut entries = self.0.lock();
        entries.retain(|entry| !entry.is_of(session) && entry.session.strong_count() > 0);
        entries.push_back(entry);
        let mut total: usize = entries.iter().map(|entry| entry.history.bytes).sum();
        while total > MAX_TOTAL_BYTES
            && let Some(oldest) = entries.pop_front()
        {
            total -= oldest.history.bytes;
        }
    }
}

impl HistoryCache {
    /// Removes the conversations of sessions that are not in memory any more.
    pub(super) fn remove_unloaded(&self) {
        self.0.lock().retain(|entry| entry.session.strong_count() > 0);
    }
}

impl Entry {
    fn is_of(&self, session: &Arc<Session>) -> bool {
        std::ptr::eq(self.session.as_ptr(), Arc::as_ptr(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::Fields;
    use turnwire_log::store::{NewSession, SessionKey};
    use turnwire_log::{Log, MemoryStore};

    #[tokio::test]
    async fn a_session_that_leaves_memory_takes_its_conversation_along() {
        let log = Log::new(Arc::new(MemoryStore::default()), "test");
        let cache = HistoryCache::default();
        let messages = vec![Msg::user("ann", "Hi!"); MIN_MESSAGES];
        let history = History { messages, bytes: 100, ..History::default() };
        for id in ["idle", "used"] {
            let new = NewSession {
                key: SessionKey::new("t", id),
                agent: "friday".to_owned(),
                title: String::new(),
                metadata: Fields::default(),
                now_ms: 0,
            };
            let (session, _) = log.create_session(new).await.unwrap();
            cache.insert(&session, 0, &history);
        }
        let used = log.open_session(&SessionKey::new("t", "used")).await.unwrap().unwrap();
        cache.remove_unloaded();
        assert_eq!(cache.0.lock().len(), 2);
        // Sessions that were used since the last time stay.
        log.evict_idle().await.unwrap();
        assert_eq!(log.evict_idle().await.unwrap(), 1);
        cache.remove_unloaded();
        assert_eq!(cache.0.lock().len(), 1);
        assert!(cache.take(&used, 0, Seq::FIRST).is_some());
    }
}
