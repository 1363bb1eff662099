//! The end of a session's log in one shape, encoded once for all who watch.

use super::backlog;
use super::writer::{FormatKey, StreamFormat, StreamWriter};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnwire_core::Seq;
use turnwire_log::Session;
use turnwire_log::store::{EventLines, SessionNumber};

/// How much is kept for those who are a little behind, for each of them and in all. Who has fallen
/// further behind reads the log; many who did so would read it at the same time.
const MAX_BYTES_PER_SUBSCRIBER: usize = 8 * 1024;
const MAX_BYTES: usize = 512 * 1024;
/// How much is encoded at a time.
const READ_BYTES: usize = 128 * 1024;
/// What it takes to hand something to one watcher, about: a task woken and a write to a socket.
/// They are woken again only when all can have it, or they would fall behind ever further; what comes
/// meanwhile goes to them together. Few watchers are told of everything at once.
const DELIVERY_TIME: Duration = Duration::from_micros(8);
/// However many they are, nobody waits longer.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// All feeds that somebody watches.
#[derive(Default)]
pub struct Feeds {
    feeds: Mutex<HashMap<(SessionNumber, FormatKey), Weak<Feed>>>,
}

impl Feeds {
    /// The feed of a session in a shape; a new one begins behind the cursor, and goes on with the writer
    /// that has come so far: to warm up another costs as much as the turn is long.
    pub(super) fn join(
        &self,
        session: &Arc<Session>,
        shape: &StreamFormat,
        cursor: u64,
        writer: &mut Option<Box<StreamWriter>>,
        shutdown: &CancellationToken,
    ) -> Arc<Feed> {
        let mut feeds = self.feeds.lock();
        let key = (session.number(), shape.key());
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade)
            && !feed.has_ended()
        {
            return feed;
        }
        if feeds.len() >= 64 && feeds.len().is_power_of_two() {
            feeds.retain(|_, feed| feed.strong_count() > 0);
        }
        let over = shutdown.child_token();
        let feed = Arc::new(Feed {
            ring: Mutex::new(Ring { start: cursor, ..Ring::default() }),
            encoded: watch::Sender::new(cursor),
            _cancel_on_drop: over.clone().drop_guard(),
        });
        feeds.insert(key, Arc::downgrade(&feed));
        let (weak, session, shape) = (Arc::downgrade(&feed), session.clone(), *shape);
        let writer = writer.take();
        tokio::spawn(async move {
            let pump = encode_loop(&weak, &session, &shape, cursor, writer);
            if let Some(Err(error)) = over.run_until_cancelled(pump).await {
                tracing::warn!(session = session.id(), %error, "a live feed failed");
            }
            if let Some(feed) = weak.upgrade() {
                feed.encoded.send_replace(FEED_ENDED);
            }
        });
        feed
    }

    /// How many feeds there are.
    pub fn count(&self) -> usize {
        self.feeds.lock().values().filter(|feed| feed.strong_count() > 0).count()
    }
}

/// The end of a session's log in one shape.
pub(super) struct Feed {
    ring: Mutex<Ring>,
    /// The place of the last event that is encoded; the largest number when there will be no more:
    /// after a failure, and when the server stops.
    encoded: watch::Sender<u64>,
    _cancel_on_drop: DropGuard,
}

/// There will be no more.
pub(super) const FEED_ENDED: u64 = u64::MAX;

#[derive(Default)]
struct Ring {
    /// What is behind this place is here.
    start: u64,
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// Some events that were encoded together.
struct Batch {
    first: u64,
    last: u64,
    bytes: Bytes,
    /// Where each event ends.
    ends: Vec<usize>,
}

impl Batch {
    fn bytes_after(&self, cursor: u64) -> Bytes {
        let known = cursor.saturating_add(1).saturating_sub(self.first);
        let start = usize::try_from(known)
            .ok()
            .and_then(|known| self.ends.get(known.checked_sub(1)?).copied())
            .unwrap_or(0);
        self.bytes.slice(start.min(self.bytes.len())..)
    }
}

/// What a feed has behind a place.
pub(super) enum FeedRead {
    /// These bytes, which lead up to there.
    Bytes(Bytes, u64),
    /// Nothing so far.
    NotYet,
    /// It was there, or was before the feed began: it is in the log.
    Gone,
}

impl Feed {
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.encoded.subscribe()
    }

    fn has_ended(&self) -> bool {
        *self.encoded.borrow() == FEED_ENDED
    }

    /// Where it begins.
    pub fn start(&self) -> u64 {
        self.ring.lock().start
    }

    /// What is behind a place. What the only watcher has is not kept.
    pub fn read_after(&self, cursor: u64) -> FeedRead {
        let mut ring = self.ring.lock();
        if cursor < ring.start {
            return FeedRead::Gone;
        }
        let at = ring.batches.partition_point(|batch| batch.last <= cursor);
        let Some(batch) = ring.batches.get(at) else { return FeedRead::NotYet };
        let (bytes, last) = (batch.bytes_after(cursor), batch.last);
        if self.encoded.receiver_count() == 1 {
            (0..=at).for_each(|_| ring.drop_oldest());
        }
        FeedRead::Bytes(bytes, last)
    }

    fn push(&self, batch: Batch) {
        let most =
            self.encoded.receiver_count().saturating_mul(MAX_BYTES_PER_SUBSCRIBER).min(MAX_BYTES);
        let mut ring = self.ring.lock();
        ring.bytes += batch.bytes.len();
        ring.batches.push_back(batch);
        while ring.bytes > most && ring.batches.len() > 1 {
            ring.drop_oldest();
        }
    }
}

impl Ring {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.batches.pop_front() {
            self.bytes -= oldest.bytes.len();
            self.start = oldest.last;
        }
    }
}

/// Encodes what comes, for as long as the feed is there.
async fn encode_loop(
    feed: &Weak<Feed>,
    session: &Arc<Session>,
    shape: &StreamFormat,
    mut cursor: u64,
    writer: Option<Box<StreamWriter>>,
) -> turnwire_log::Result<()> {
    let mut head = session.watch_head();
    let mut writer = match writer {
        Some(writer) => writer,
        None => Box::new(backlog::warmed_writer(session, shape, cursor).await?),
    };
    let mut pace = WakePacer::default();
    loop {
        let now = *head.borrow_and_update();
        if now.is_deleted {
            return Ok(());
        }
        if now.head <= cursor {
            if head.changed().await.is_err() {
                return Ok(());
            }
            continue;
        }
        pace.wait(feed).await;
        let from = Seq::new(cursor.saturating_add(1)).unwrap_or(Seq::FIRST);
        let rows = session.read_events(from, READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else { continue };
        let mut ends = Vec::new();
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            writer.write_line(seq, line)?;
            ends.push(writer.len());
        }
        let Some(feed) = feed.upgrade() else { return Ok(()) };
        feed.push(Batch { first: from.get(), last, bytes: writer.take_bytes(), ends });
        cursor = last;
        feed.encoded.send_replace(last);
        pace.note_wake();
    }
}

/// When watchers may be woken: as often as they can all be served, on the average. Two wake-ups may
/// come close together, or an event that is a little early would wait for nothing.
#[derive(Default)]
struct WakePacer {
    /// When all will have been served. Where it lies behind now, nobody is owed anything.
    free_at: Option<Instant>,
    delivery_time: Duration,
}

impl WakePacer {
    /// Waits until they may be woken.
    async fn wait(&mut self, feed: &Weak<Feed>) {
        let watchers = feed.upgrade().map_or(0, |feed| feed.encoded.receiver_count());
        let watchers = u32::try_from(watchers).unwrap_or(u32::MAX);
        self.delivery_time = DELIVERY_TIME.saturating_mul(watchers).min(MAX_DELAY);
        if let Some(from) = self.free_at.and_then(|served| served.checked_sub(self.delivery_time)) {
            tokio::time::sleep_until(from).await;
        }
    }

    fn note_wake(&mut self) {
        let now = Instant::now();
        self.free_at =
            Some(self.free_at.map_or(now, |served| served.max(now)) + self.delivery_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long an event waits at the most, with a thousand watchers and events so far apart.
    async fn longest_delay(apart: Duration, events: u32) -> Duration {
        let feed = Arc::new(Feed {
            ring: Mutex::default(),
            encoded: watch::Sender::new(0),
            _cancel_on_drop: CancellationToken::new().drop_guard(),
        });
        let _watchers: Vec<_> = (0..1000).map(|_| feed.subscribe()).collect();
        let weak = Arc::downgrade(&feed);
        let (begin, mut pace, mut longest) = (Instant::now(), WakePacer::default(), Duration::ZERO);
        for event in 0..events {
            let due = begin + apart * event;
            tokio::time::sleep_until(due).await;
            pace.wait(&weak).await;
            longest = longest.max(due.elapsed());
            pace.note_wake();
            // Each third time everything takes a little longer.
            tokio::time::advance(Duration::from_millis(u64::from(event % 3 == 0) * 3)).await;
        }
        longest
    }

    #[test]
    fn what_the_only_watcher_has_is_not_kept_and_what_two_may_want_is() {
        let feed = Feed {
            ring: Mutex::default(),
            encoded: watch::Sender::new(0),
            _cancel_on_drop: CancellationToken::new().drop_guard(),
        };
        let batch =
            |at| Batch { first: at, last: at, bytes: Bytes::from_static(b"e"), ends: vec![1] };
        let has = |cursor| matches!(feed.read_after(cursor), FeedRead::Bytes(_, last) if last == cursor + 1);
        let one = feed.subscribe();
        (1..=3).for_each(|at| feed.push(batch(at)));
        assert!(has(0) && has(1));
        assert!(matches!(feed.read_after(1), FeedRead::Gone));
        let other = feed.subscribe();
        assert!(has(2) && has(2));
        drop((one, other));
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_be_served_in_time_waits_for_nothing() {
        let late = longest_delay(Duration::from_millis(10), 300).await;
        assert!(late <= Duration::from_millis(3), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_come_faster_than_all_can_have_them_wait_for_each_other() {
        let begin = Instant::now();
        longest_delay(Duration::from_millis(1), 300).await;
        let each = begin.elapsed() / 300;
        assert!(each >= DELIVERY_TIME * 950 && each <= DELIVERY_TIME * 1500, "{each:?}");
    }
}
