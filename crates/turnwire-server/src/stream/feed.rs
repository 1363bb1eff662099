//! The live feed: the end of a session's log in one format, encoded once for all subscribers.

use super::backlog;
use super::writer::{Encoded, FormatKey, LastReply, StreamFormat, StreamWriter};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnwire_core::{Head, Seq};
use turnwire_log::Session;
use turnwire_log::store::{EventLines, SessionNumber};

/// How many bytes are kept for subscribers that are a little behind, per subscriber and in all.
/// Those that are further behind read the log; if there were many of them, they would all read it
/// at once.
const MAX_BYTES_PER_SUBSCRIBER: usize = 8 * 1024;
const MAX_BYTES: usize = 512 * 1024;
/// How many bytes of the log are encoded at a time.
const READ_BYTES: usize = 128 * 1024;
/// About how long it takes to deliver events to one subscriber: to wake a task and write to a
/// socket. Subscribers are woken again only when all can have been served, or they would fall
/// behind more and more; events that come meanwhile are delivered together. A few subscribers are
/// woken for every event.
const DELIVERY_TIME: Duration = Duration::from_micros(8);
/// The longest delay, however many subscribers there are.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// All live feeds.
#[derive(Default)]
pub struct Feeds {
    feeds: Mutex<HashMap<(SessionNumber, FormatKey), Weak<Feed>>>,
}

impl Feeds {
    /// The feed of a session in a format. A new one begins at the cursor and continues with the
    /// given writer: to warm up another costs as much as the turn is long.
    pub(super) fn join(
        &self,
        session: &Arc<Session>,
        format: &StreamFormat,
        cursor: Head,
        writer: &mut Option<Box<StreamWriter>>,
        shutdown: &CancellationToken,
    ) -> Arc<Feed> {
        let mut feeds = self.feeds.lock();
        let key = (session.number(), format.key());
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
            state: watch::Sender::new(FeedState::Live),
            _cancel_on_drop: over.clone().drop_guard(),
        });
        feeds.insert(key, Arc::downgrade(&feed));
        let (weak, session, format) = (Arc::downgrade(&feed), session.clone(), *format);
        let writer = writer.take();
        tokio::spawn(async move {
            let encode = encode_loop(&weak, &session, &format, cursor, writer);
            if let Some(Err(error)) = over.run_until_cancelled(encode).await {
                tracing::warn!(session = session.id(), %error, "a live feed failed");
            }
            if let Some(feed) = weak.upgrade() {
                feed.state.send_replace(FeedState::Ended);
            }
        });
        feed
    }

    /// How many feeds there are.
    pub fn count(&self) -> usize {
        self.feeds.lock().values().filter(|feed| feed.strong_count() > 0).count()
    }
}

/// The end of a session's log in one format.
pub(super) struct Feed {
    ring: Mutex<Ring>,
    /// It changes after each batch, and wakes the subscribers.
    state: watch::Sender<FeedState>,
    _cancel_on_drop: DropGuard,
}

/// Whether a feed goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedState {
    /// It has new events, or will have.
    Live,
    /// It has failed, or the server stops.
    Ended,
}

#[derive(Default)]
struct Ring {
    /// The feed has the events after this cursor.
    start: Head,
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// Events that were encoded together.
struct Batch {
    first: Seq,
    last: Seq,
    encoded: Encoded,
    /// Where the frames of each event end.
    ends: Vec<usize>,
}

impl Batch {
    /// The frames after a cursor, up to the end of a reply if that is among them. Returns whether it is.
    fn slice_after(&self, cursor: Head, last_reply: LastReply<'_>) -> (Bytes, bool) {
        let known = cursor.events_after(self.first.previous());
        let start = usize::try_from(known)
            .ok()
            .and_then(|known| self.ends.get(known.checked_sub(1)?).copied())
            .unwrap_or(0);
        self.encoded.slice(start, last_reply)
    }
}

/// What a feed has after a cursor.
pub(super) enum FeedRead {
    /// Events up to `last`.
    Events { bytes: Bytes, last: Seq, has_reply_end: bool },
    /// Nothing yet.
    NotYet,
    /// The events are not in the feed any more, or were before it began: read the log.
    Gone,
}

impl Feed {
    pub fn subscribe(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    fn has_ended(&self) -> bool {
        *self.state.borrow() == FeedState::Ended
    }

    /// The cursor at which it begins.
    pub fn start(&self) -> Head {
        self.ring.lock().start
    }

    /// The events after a cursor. What the only subscriber has received is dropped.
    pub fn read_after(&self, cursor: Head, last_reply: LastReply<'_>) -> FeedRead {
        let mut ring = self.ring.lock();
        if cursor < ring.start {
            return FeedRead::Gone;
        }
        let at = ring.batches.partition_point(|batch| cursor.includes(batch.last));
        let Some(batch) = ring.batches.get(at) else { return FeedRead::NotYet };
        let (bytes, has_reply_end) = batch.slice_after(cursor, last_reply);
        let last = batch.last;
        if self.state.receiver_count() == 1 {
            (0..=at).for_each(|_| ring.drop_oldest());
        }
        FeedRead::Events { bytes, last, has_reply_end }
    }

    fn push(&self, batch: Batch) {
        let most =
            self.state.receiver_count().saturating_mul(MAX_BYTES_PER_SUBSCRIBER).min(MAX_BYTES);
        let mut ring = self.ring.lock();
        ring.bytes += batch.encoded.bytes.len();
        ring.batches.push_back(batch);
        while ring.bytes > most && ring.batches.len() > 1 {
            ring.drop_oldest();
        }
    }
}

impl Ring {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.batches.pop_front() {
            self.bytes -= oldest.encoded.bytes.len();
            self.start = oldest.last.into();
        }
    }
}

/// Encodes new events while the feed exists.
async fn encode_loop(
    feed: &Weak<Feed>,
    session: &Arc<Session>,
    format: &StreamFormat,
    mut cursor: Head,
    writer: Option<Box<StreamWriter>>,
) -> turnwire_log::Result<()> {
    let mut head = session.watch_head();
    let mut writer = match writer {
        Some(writer) => writer,
        None => Box::new(backlog::warmed_writer(session, format, cursor).await?),
    };
    let mut pacer = WakePacer::default();
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
        pacer.wait(feed).await;
        let from = cursor.next();
        let rows = session.read_events(from, READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else { continue };
        let mut ends = Vec::new();
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            writer.write_line(seq, line)?;
            ends.push(writer.len());
        }
        let Some(feed) = feed.upgrade() else { return Ok(()) };
        feed.push(Batch { first: from, last, encoded: writer.take(), ends });
        cursor = last.into();
        feed.state.send_replace(FeedState::Live);
        pacer.note_wake();
    }
}

/// Limits how often subscribers are woken: as often as all can be served, on average. Two wake-ups
/// may come close together, so that an event that is a little early is not delayed.
#[derive(Default)]
struct WakePacer {
    /// When all subscribers will have been served.
    free_at: Option<Instant>,
    delivery_time: Duration,
}

impl WakePacer {
    /// Waits until subscribers may be woken.
    async fn wait(&mut self, feed: &Weak<Feed>) {
        let subscribers = feed.upgrade().map_or(0, |feed| feed.state.receiver_count());
        let subscribers = u32::try_from(subscribers).unwrap_or(u32::MAX);
        self.delivery_time = DELIVERY_TIME.saturating_mul(subscribers).min(MAX_DELAY);
        if let Some(from) = self.free_at.and_then(|free_at| free_at.checked_sub(self.delivery_time))
        {
            tokio::time::sleep_until(from).await;
        }
    }

    fn note_wake(&mut self) {
        let now = Instant::now();
        self.free_at =
            Some(self.free_at.map_or(now, |free_at| free_at.max(now)) + self.delivery_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest delay of an event, with a thousand subscribers and events at this interval.
    async fn longest_delay(apart: Duration, events: u32) -> Duration {
        let feed = Arc::new(Feed {
            ring: Mutex::default(),
            state: watch::Sender::new(FeedState::Live),
            _cancel_on_drop: CancellationToken::new().drop_guard(),
        });
        let _subscribers: Vec<_> = (0..1000).map(|_| feed.subscribe()).collect();
        let weak = Arc::downgrade(&feed);
        let (begin, mut pacer, mut longest_delay) =
            (Instant::now(), WakePacer::default(), Duration::ZERO);
        for event in 0..events {
            let due = begin + apart * event;
            tokio::time::sleep_until(due).await;
            pacer.wait(&weak).await;
            longest_delay = longest_delay.max(due.elapsed());
            pacer.note_wake();
            // Each third time everything takes a little longer.
            tokio::time::advance(Duration::from_millis(u64::from(event % 3 == 0) * 3)).await;
        }
        longest_delay
    }

    #[test]
    fn batches_are_dropped_when_the_only_subscriber_has_them_and_kept_for_two() {
        let feed = Feed {
            ring: Mutex::default(),
            state: watch::Sender::new(FeedState::Live),
            _cancel_on_drop: CancellationToken::new().drop_guard(),
        };
        let batch = |number| {
            let seq = Seq::new(number).unwrap();
            let encoded = Encoded { bytes: Bytes::from_static(b"e"), ..Encoded::default() };
            Batch { first: seq, last: seq, encoded, ends: vec![1] }
        };
        let has = |cursor| {
            let cursor = Head::new(cursor);
            let read = feed.read_after(cursor, LastReply::None);
            matches!(read, FeedRead::Events { last, .. } if last == cursor.next())
        };
        let one = feed.subscribe();
        (1..=3).for_each(|number| feed.push(batch(number)));
        assert!(has(0) && has(1));
        assert!(matches!(feed.read_after(Head::new(1), LastReply::None), FeedRead::Gone));
        let other = feed.subscribe();
        assert!(has(2) && has(2));
        drop((one, other));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_events_are_not_delayed() {
        let late = longest_delay(Duration::from_millis(10), 300).await;
        assert!(late <= Duration::from_millis(3), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn events_faster_than_delivery_are_batched() {
        let begin = Instant::now();
        longest_delay(Duration::from_millis(1), 300).await;
        let each = begin.elapsed() / 300;
        assert!(each >= DELIVERY_TIME * 950 && each <= DELIVERY_TIME * 1500, "{each:?}");
    }
}
