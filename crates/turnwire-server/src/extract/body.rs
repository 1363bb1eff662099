//! Reads request bodies with limits on size, rate and memory.

use crate::config::Limits;
use crate::error::{ApiError, ApiResult};
use crate::limits::ReservedBytes;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A body up to this size that arrives at once is not counted: it is handled right away.
const MAX_UNCOUNTED: usize = 16 * 1024;

/// How slowly a body may arrive.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long a client may send nothing. It is also how far behind `rate` it may fall.
    pub stall: Duration,
    /// The least number of bytes a second.
    pub rate: u64,
}

impl Pace {
    /// The pace of `limits.body_timeout` and `limits.body_rate`.
    pub fn new(limits: &Limits) -> Self {
        Self { stall: limits.body_timeout.0, rate: limits.body_rate.0.max(1) }
    }

    /// How much time received bytes give a client.
    fn time_for(self, bytes: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate)
    }
}

/// Reads a body that must keep a [`Pace`].
///
/// A client that sends less than the least rate falls behind. One that is `stall` behind gets 408. So a
/// body of N bytes takes at most `stall + N / rate`, whatever the client does.
#[derive(Debug)]
pub struct BodyReader<B> {
    body: B,
    pace: Pace,
    /// When the client has fallen too far behind. Not set while everything was there at once: most
    /// bodies need neither a clock nor a timer.
    deadline: Option<Instant>,
    /// Bytes that came since `due` was set.
    received: u64,
}

impl<B> BodyReader<B>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    /// Reads this body.
    pub fn new(body: B, pace: Pace) -> Self {
        Self { body, pace, deadline: None, received: 0 }
    }

    /// The next bytes; `None` at the end of the body.
    pub async fn next(&mut self) -> ApiResult<Option<Bytes>> {
        if let Poll::Ready(chunk) = self.try_next().await {
            return chunk;
        }
        let due = self.deadline();
        let Some(chunk) = next_until(&mut self.body, due).await else {
            return Err(self.too_slow());
        };
        self.count_received(&chunk);
        chunk
    }

    /// The next bytes, if they have arrived.
    async fn try_next(&mut self) -> Poll<ApiResult<Option<Bytes>>> {
        // Endless empty chunks are too slow, too.
        if self.deadline.is_some() && Instant::now() >= self.deadline() {
            return Poll::Ready(Err(self.too_slow()));
        }
        let chunk = try_next(&mut self.body).await;
        if let Poll::Ready(chunk) = &chunk {
            self.count_received(chunk);
        }
        chunk
    }

    fn count_received(&mut self, chunk: &ApiResult<Option<Bytes>>) {
        if let Ok(Some(bytes)) = chunk {
            self.received = self.received.saturating_add(bytes.len() as u64);
        }
    }

    /// The moment at which the client is too late, after all that came so far.
    fn deadline(&mut self) -> Instant {
        let latest = Instant::now() + self.pace.stall;
        let earned = self.pace.time_for(std::mem::take(&mut self.received));
        let due = self.deadline.map_or(latest, |due| (due + earned).min(latest));
        self.deadline = Some(due);
        due
    }

    fn too_slow(&self) -> ApiError {
        let rate = self.pace.rate;
        ApiError::timeout("the request body arrived too slowly; nothing was stored").hint(format!(
            "send at least {rate} bytes per second; the operator can change `body_rate` and \
             `body_timeout` in turnwire.toml, [limits]"
        ))
    }
}

/// Reads a whole body, up to a limit.
pub(super) async fn read_whole<B>(
    request: http::Request<B>,
    pace: Pace,
    limit: usize,
    reserve: impl FnOnce() -> ApiResult<ReservedBytes>,
) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let mut body = BodyReader::new(request.into_body(), pace);
    // Nearly always there is one chunk, and then nothing is copied.
    let Some(first) = body.next().await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    let second = match body.try_next().await {
        Poll::Ready(second) => match second? {
            None if first.len() <= MAX_UNCOUNTED => return Ok(first),
            None => {
                let mut reserved = reserve()?;
                reserved.grow(first.len())?;
                return Ok(Bytes::from_owner(CountedBytes { bytes: first, _reserved: reserved }));
            }
            second => second,
        },
        Poll::Pending => None,
    };
    let most = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(limit);
    let mut whole = Buffer { bytes: Vec::new(), reserved: reserve()?, max_len: most };
    whole.extend(&first)?;
    drop(first);
    let mut chunk = match second {
        Some(second) => Some(second),
        None => body.next().await?,
    };
    while let Some(bytes) = chunk {
        if bytes.len() > limit.saturating_sub(whole.bytes.len()) {
            return Err(too_large(limit));
        }
        whole.extend(&bytes)?;
        chunk = body.next().await?;
    }
    Ok(Bytes::from_owner(CountedBytes { bytes: whole.bytes, _reserved: whole.reserved }))
}

/// A body that is being read. Its memory is reserved in the budget before it is allocated.
struct Buffer {
    bytes: Vec<u8>,
    reserved: ReservedBytes,
    /// More than this will not come.
    max_len: usize,
}

impl Buffer {
    fn extend(&mut self, bytes: &[u8]) -> ApiResult<()> {
        let (len, room) = (self.bytes.len(), self.bytes.capacity());
        let needed = len.saturating_add(bytes.len());
        if needed > room {
            // The announced length is not allocated in advance: it may never arrive.
            let wanted = needed.max(room.saturating_mul(2).min(self.max_len));
            self.reserved.grow(wanted - room)?;
            self.bytes.reserve_exact(wanted - len);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Bytes that are counted until they are dropped.
struct CountedBytes<T> {
    bytes: T,
    _reserved: ReservedBytes,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for CountedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The next bytes of a body, within `time_limit`.
pub async fn next_chunk<B>(body: &mut B, time_limit: Duration) -> ApiResult<Option<Bytes>>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let late = || ApiError::timeout("the rest of the body did not arrive").hint("send it again");
    match try_next(body).await {
        Poll::Ready(chunk) => chunk,
        Poll::Pending => {
            next_until(body, Instant::now() + time_limit).await.unwrap_or_else(|| Err(late()))
        }
    }
}

/// Waits for the next bytes of a body. `None`: they did not arrive in time.
async fn next_until<B>(body: &mut B, deadline: Instant) -> Option<ApiResult<Option<Bytes>>>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    loop {
        let frame = timeout_at(deadline, body.frame()).await.ok()?;
        if let Some(chunk) = frame_data(frame) {
            return Some(chunk);
        }
    }
}

/// The next bytes of a body, if they have arrived.
async fn try_next<B>(body: &mut B) -> Poll<ApiResult<Option<Bytes>>>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    loop {
        if body.is_end_stream() {
            return Poll::Ready(Ok(None));
        }
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => {
                if let Some(chunk) = frame_data(frame) {
                    return Poll::Ready(chunk);
                }
            }
        }
    }
}

/// The bytes of a frame. `None`: it has none.
fn frame_data<E: Display>(
    frame: Option<Result<http_body::Frame<Bytes>, E>>,
) -> Option<ApiResult<Option<Bytes>>> {
    match frame {
        None => Some(Ok(None)),
        Some(Ok(frame)) => frame.into_data().ok().map(|bytes| Ok(Some(bytes))),
        Some(Err(error)) => {
            Some(Err(ApiError::bad_request("the request body ended early").detail(error)))
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::too_large(format!("the request body is larger than {limit} bytes"))
        .hint("send less at once; the operator can raise the limit in turnwire.toml, [limits]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ByteBudget;
    use axum::body::Body;
    use axum::extract::Request;
    use futures_util::{StreamExt, stream};
    use std::convert::Infallible;

    const PACE: Pace = Pace { stall: Duration::from_secs(30), rate: 100 };

    fn bytes(count: usize) -> Bytes {
        Bytes::from(vec![b'x'; count])
    }

    fn in_parts(parts: &[&'static str]) -> Request {
        let parts: Vec<Result<Bytes, Infallible>> =
            parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
        Request::new(Body::from_stream(stream::iter(parts)))
    }

    /// A body of so many chunks, each after a pause.
    fn dripping(chunks: usize, size: usize, pause: Duration) -> Request {
        let drops = stream::iter(0..chunks).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(bytes(size))
        });
        Request::new(Body::from_stream(Box::pin(drops)))
    }

    async fn read_within(request: Request, limit: usize, budget: &ByteBudget) -> ApiResult<Bytes> {
        read_whole(request, PACE, limit, || budget.reserve("t", 0)).await
    }

    async fn read_all(request: Request, limit: usize) -> ApiResult<Bytes> {
        read_within(request, limit, &ByteBudget::new(usize::MAX, usize::MAX)).await
    }

    #[tokio::test]
    async fn a_body_is_read_whole_up_to_the_limit() {
        let read = async |parts: &[&'static str]| read_all(in_parts(parts), 6).await;
        assert_eq!(read(&[]).await.unwrap(), "");
        assert_eq!(read(&["abcdef"]).await.unwrap(), "abcdef");
        assert_eq!(read(&["ab", "", "cd", "ef"]).await.unwrap(), "abcdef");
        for parts in [&["abcdefg"][..], &["abc", "defg"], &["a", "b", "cdefg"]] {
            assert_eq!(read(parts).await.unwrap_err().status(), 413, "{parts:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_announces_too_much_is_not_read() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let request = Request::builder().header(CONTENT_LENGTH, "7").body(body).unwrap();
        assert_eq!(read_all(request, 6).await.unwrap_err().status(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_go_on_is_given_up() {
        let parts = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"a"))]);
        let body = Body::from_stream(parts.chain(stream::pending()));
        assert_eq!(read_all(Request::new(body), 6).await.unwrap_err().status(), 408);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        let parts = [Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("gone"))];
        let body = Body::from_stream(stream::iter(parts));
        assert_eq!(read_all(Request::new(body), 6).await.unwrap_err().status(), 400);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_least_rate_is_given_up() {
        let second = Duration::from_secs(1);
        for (size, pause) in [(1, second), (99, second), (1, second / 50), (2_000, second * 29)] {
            let start = Instant::now();
            let read = read_all(dripping(usize::MAX, size, pause), 1 << 20).await;
            assert_eq!(read.unwrap_err().status(), 408, "{size} bytes every {pause:?}");
            let most = PACE.stall + PACE.time_for(1 << 20);
            assert!(start.elapsed() <= most, "{size} bytes every {pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_ahead_of_the_rate_buy_no_more_than_the_stall() {
        let start = Instant::now();
        let ahead = stream::iter([Ok::<_, Infallible>(bytes(900_000))]);
        let drops = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(bytes(1))
        });
        let body = Body::from_stream(Box::pin(ahead.chain(drops)));
        assert_eq!(read_all(Request::new(body), 1 << 20).await.unwrap_err().status(), 408);
        assert!(start.elapsed() < PACE.stall * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_that_bring_nothing_do_not_keep_a_body_open() {
        let drops = stream::repeat(()).then(|()| async {
            tokio::time::advance(Duration::from_millis(10)).await;
            Ok::<_, Infallible>(Bytes::new())
        });
        let body = Body::from_stream(Box::pin(drops));
        assert_eq!(read_all(Request::new(body), 100).await.unwrap_err().status(), 408);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_at_the_least_rate_is_read() {
        let read = read_all(dripping(600, 100, Duration::from_secs(1)), 1 << 20).await;
        assert_eq!(read.unwrap().len(), 60_000);
        // It may rest for a while when it was faster before.
        let read = read_all(dripping(20, 10_000, Duration::from_secs(29)), 1 << 20).await;
        assert_eq!(read.unwrap().len(), 200_000);
    }

    #[tokio::test]
    async fn a_body_is_counted_for_as_long_as_it_is_held() {
        let budget = ByteBudget::new(1 << 20, 1 << 20);
        let whole = read_within(in_parts(&["abc", "def"]), 100, &budget).await.unwrap();
        assert_eq!(budget.used(), 6);
        let part = whole.slice(..2);
        drop(whole);
        assert_eq!(budget.used(), 6);
        drop(part);
        assert_eq!(budget.used(), 0);
        let large = Request::new(Body::from(bytes(MAX_UNCOUNTED + 1)));
        let large = read_within(large, 1 << 20, &budget).await.unwrap();
        assert_eq!(budget.used(), MAX_UNCOUNTED + 1);
        drop(large);
        let small = Request::new(Body::from(bytes(MAX_UNCOUNTED)));
        let _small = read_within(small, 1 << 20, &budget).await.unwrap();
        assert_eq!(budget.used(), 0, "it came at once");
    }

    #[tokio::test]
    async fn bytes_over_the_budget_are_refused() {
        let budget = ByteBudget::new(10_000, 1_000);
        let parts = || stream::iter((0..20).map(|_| Ok::<_, Infallible>(bytes(100))));
        let request = || Request::new(Body::from_stream(parts()));
        assert_eq!(read_within(request(), 1 << 20, &budget).await.unwrap_err().status(), 429);
        assert_eq!(budget.used(), 0);
        let _others = budget.reserve("other", 1_000).unwrap();
        let full = ByteBudget::new(1_000, 10_000);
        assert_eq!(read_within(request(), 1 << 20, &full).await.unwrap_err().status(), 503);
    }

    #[tokio::test]
    async fn memory_is_taken_for_what_came_and_not_for_what_was_announced() {
        let budget = ByteBudget::new(usize::MAX, usize::MAX);
        let mut buffer = Buffer {
            bytes: Vec::new(),
            reserved: budget.reserve("t", 0).unwrap(),
            max_len: 1 << 24,
        };
        for _ in 0..1_000 {
            buffer.extend(&[0; 100]).unwrap();
            assert!(buffer.bytes.capacity() <= buffer.bytes.len() * 2);
            assert_eq!(budget.used(), buffer.bytes.capacity());
        }
        let mut exact =
            Buffer { bytes: Vec::new(), reserved: budget.reserve("t", 0).unwrap(), max_len: 150 };
        exact.extend(&[0; 100]).unwrap();
        exact.extend(&[0; 50]).unwrap();
        assert_eq!(exact.bytes.capacity(), 150);
    }
}
