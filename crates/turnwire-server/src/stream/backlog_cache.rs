//! Caches encoded backlogs: when many clients reconnect at once, each page is read once.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::OnceCell;
use turnwire_core::Head;
use turnwire_log::store::SessionNumber;

use super::writer::{Encoded, FormatKey};

/// How many bytes are cached.
const MAX_BYTES: usize = 32 << 20;

/// Which events of which session, in which format. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub session: SessionNumber,
    pub format: FormatKey,
    pub from: Head,
    pub to: Head,
}

type Slot = Arc<OnceCell<Encoded>>;

/// Encoded pages of all sessions.
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
    /// A cached page. The first caller encodes it, and the others wait.
    pub(super) async fn get_or_encode<E>(
        &self,
        page: &PageKey,
        encode: impl Future<Output = Result<Encoded, E>>,
    ) -> Result<Encoded, E> {
        let slot = self.pages.lock().slots.entry(page.clone()).or_default().clone();
        let mut unused = RemoveUnfilled(Some((self, page)));
        let mut is_first = false;
        let encoded = slot
            .get_or_try_init(|| {
                is_first = true;
                encode
            })
            .await?
            .clone();
        unused.0 = None;
        if is_first {
            self.insert(page, encoded.bytes.len());
        }
        Ok(encoded)
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

/// Removes the entry of a page that was not encoded, because that failed or was cancelled.
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
