//! Backlogs that were encoded a moment ago: when everybody comes back at once, one reads.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::OnceCell;
use turnwire_log::store::SessionNumber;

use super::writer::ShapeKey;

/// How much is kept.
const BYTES: usize = 32 << 20;

/// Which events of which session, in which shape. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Page {
    pub session: SessionNumber,
    pub shape: ShapeKey,
    pub from: u64,
    pub to: u64,
}

type Slot = Arc<OnceCell<Bytes>>;

/// The backlogs of all sessions, as far as they are kept.
#[derive(Default)]
pub struct Backlogs {
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    slots: HashMap<Page, Slot>,
    order: VecDeque<(Page, usize)>,
    bytes: usize,
}

impl Backlogs {
    /// A page; whoever comes first makes it, and the others wait.
    pub(super) async fn page<E>(
        &self,
        page: &Page,
        make: impl Future<Output = Result<Bytes, E>>,
    ) -> Result<Bytes, E> {
        let slot = self.pages.lock().slots.entry(page.clone()).or_default().clone();
        let mut unused = Unused(Some((self, page)));
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
            self.keep(page, bytes.len());
        }
        Ok(bytes)
    }

    fn keep(&self, page: &Page, size: usize) {
        let mut pages = self.pages.lock();
        pages.order.push_back((page.clone(), size));
        pages.bytes += size;
        while pages.bytes > BYTES {
            let Some((oldest, size)) = pages.order.pop_front() else { break };
            pages.slots.remove(&oldest);
            pages.bytes -= size;
        }
    }
}

/// A page that was never made, because that failed or because whoever made it went away.
struct Unused<'c>(Option<(&'c Backlogs, &'c Page)>);

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some((cache, page)) = self.0 {
            let mut pages = cache.pages.lock();
            if pages.slots.get(page).is_some_and(|slot| !slot.initialized()) {
                pages.slots.remove(page);
            }
        }
    }
}
