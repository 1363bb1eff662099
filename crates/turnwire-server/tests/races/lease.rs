//! Two processes that write one session, one after the other.

use crate::wrapped_store::{Hooks, WrappedStore};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use turnwire_core::{Fields, Head, Seq};
use turnwire_log::store::{Append, EventLines, NewSession, SessionKey, SessionNumber, Store};
use turnwire_log::{Log, MemoryStore};

/// The former owner writes one event while the new one is about to take the lease.
#[derive(Default)]
struct LateAppend(AtomicBool);

#[async_trait]
impl Hooks for LateAppend {
    async fn before_lease(&self, store: &MemoryStore, session: SessionNumber) {
        if self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let lease = store.acquire_lease(session, "former").await.unwrap();
        let bytes = "{\"type\":\"CUSTOM\",\"id\":\"e\",\"name\":\"late\"}\n".into();
        let lines = Some(EventLines { first: Seq::FIRST, count: 1, bytes });
        let append = Append { lines, ..Append::empty(session, lease.fence, 0) };
        store.append(append).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_owner_knows_what_the_former_one_wrote_last() {
    let store = Arc::new(WrappedStore::<LateAppend>::default());
    let log = Log::new(store, "new");
    let new = NewSession {
        key: SessionKey::new("t", "s"),
        agent: "demo".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    let (session, _) = log.create_session(new).await.unwrap();
    assert_eq!(session.snapshot().await.unwrap().head, Head::new(1));
}
