//! Backlogs that were encoded a moment ago: when everybody comes back at once, one reads.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::OnceCell;
use turnwire_log::store::SessionNumber;

use super::writer::FormatKey;

/// How much is kept.
const MAX_BYTES: usize = 32 << 20;

/// Which events of which session, in which shape. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub session: SessionNumber,
    pub shape: FormatKey,
    pub from: u64,
    pub to: u64,
}

type Slot = Arc<OnceCell<Bytes>>;

/// The backlogs of all sessions, as far as they are kept.
#[derive(Default)]
pub struct BacklogCache {
    pages: Mutex<CachedPages>,
}

#[derive(Default)]
struct CachedPages {
    slots: HashMap<PageKey, Slot>,
    order: VecDeque<(PageKey, usize)>,
    bytes: usize,
}

impl BacklogCache {
    /// A page; whoever comes first makes it, and the others wait.
    pub(super) async fn get_or_encode<E>(
        &self,
        page: &PageKey,
        make: impl Future<Output = Result<Bytes, E>>,
    ) -> Result<Bytes, E> {
        let slot = self.pages.lock().slots.entry(page.clone()).or_default().clone();
        let mut unused = RemoveUnfilled(Some((self, page)));
        let mut is_first = false;
        let bytes = slot
            .get_or_try_init(|| {
                is_first = true;
                make
            })
            .await?
            .clone();
        unused.0 = None;
        if is_first {
            self.insert(page, bytes.len());
        }
        Ok(bytes)
    }

    fn insert(&self, page: &PageKey, size: usize) {
        let mut pages = self.pages.lock();
        pages.order.push_back((page.clone(), size));
        pages.bytes += size;
        while pages.bytes > MAX_BYTES {
            let Some((oldest, size)) = pages.order.pop_front() else { break };
            pages.slots.remove(&oldest);
            pages.bytes -= size;
        }
    }
}

/// A page that was never made, because that failed or because whoever made it went away.
struct RemoveUnfilled<'c>(Option<(&'c BacklogCache, &'c PageKey)>);

impl Drop for RemoveUnfilled<'_> {
    fn drop(&mut self) {
        if let Some((cache, page)) = self.0 {
            let mut pages = cache.pages.lock();
            if pages.slots.get(page).is_some_and(|slot| !slot.initialized()) {
                pages.slots.remove(page);
            }
        }
    }
}
