//! Decodes the body of a provider's response into events, as it arrives.

use super::client::ResponseBody;
use super::error;
use super::key::Secret;
use crate::model::{MODEL_METADATA_KEY, ModelError};
use futures_util::Stream;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};
use turnwire_core::event::ModelCallEnd;
use turnwire_core::{ErrorType, Event, EventKind, FinishedReason, Json};
use turnwire_wires::stream::{Decoded, Decoder};

/// The time limit to read the rest of a complete answer, so that its connection can be reused.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The events of a response. Dropping it closes the connection.
pub(super) struct ResponseStream {
    /// The provider and the model, for messages.
    pub model_id: String,
    /// The model's name, if the provider does not send one.
    pub model: String,
    pub secret: Secret,
    pub decoder: Decoder,
    /// Decoded events that were not returned yet.
    queue: VecDeque<Event<'static>>,
    /// The error to return after those.
    failed: Option<ModelError>,
    /// `None` after the end of the body.
    body: Option<ResponseBody>,
    /// Whether the last event was decoded.
    is_complete: bool,
    /// The start of the body, until an event was decoded.
    unparsed_start: Option<Vec<u8>>,
    /// The error of an invalid first frame.
    problem: Option<String>,
    idle_timer: Option<IdleTimer>,
}

/// Detects a stalled stream. Each token only records the time; the timer is reset when it fires.
struct IdleTimer {
    limit: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl ResponseStream {
    pub fn new(
        who: String,
        model: String,
        secret: Secret,
        decoder: Decoder,
        body: ResponseBody,
    ) -> Self {
        Self {
            model_id: who,
            model,
            secret,
            decoder,
            queue: VecDeque::new(),
            failed: None,
            body: Some(body),
            is_complete: false,
            unparsed_start: Some(Vec::new()),
            problem: None,
            idle_timer: None,
        }
    }

    /// Waits until the model has produced something. A failure before that can be retried, because nothing
    /// was passed on.
    pub async fn wait_for_first_event(&mut self) -> Result<(), ModelError> {
        loop {
            let first = self.queue.iter().find(|event| !is_prelude(event));
            match first.map(|event| &event.kind) {
                Some(EventKind::ModelCallEnd(end)) if end.error.is_some() => {
                    return Err(self.early_failure(end));
                }
                Some(_) => {
                    self.unparsed_start = None;
                    return Ok(());
                }
                None if self.body.is_none() => {
                    return Err(self.failed.take().unwrap_or_else(|| self.unreadable()));
                }
                None => poll_fn(|cx| self.read(cx)).await,
            }
        }
    }

    /// Limits the time without data from now on.
    pub fn set_idle_limit(&mut self, limit: Duration) {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep(limit));
        self.idle_timer = Some(IdleTimer { limit, since, timer });
    }

    /// Reads the next bytes, or notes the end.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut body) = self.body.take() else { return Poll::Ready(()) };
        let Poll::Ready(read) = body.poll_read(cx, &mut |bytes| self.feed(bytes)) else {
            self.body = Some(body);
            return Poll::Pending;
        };
        match read {
            // The answer is complete: read the rest in the background, so that the connection can be
            // reused.
            Ok(true) if self.is_complete => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(drain(body));
                }
            }
            _ if self.is_complete || self.failed.is_some() || self.has_read_enough() => {}
            Ok(true) => self.body = Some(body),
            // The decoder knows whether the stream is complete.
            Ok(false) | Err(_) => self.decode(None),
        }
        Poll::Ready(())
    }

    /// Whether it is not a stream, and enough of it was read to say what it is.
    fn has_read_enough(&self) -> bool {
        self.problem.is_some()
            && self.unparsed_start.as_ref().is_some_and(|head| head.len() >= error::MAX_BODY_BYTES)
    }

    fn feed(&mut self, bytes: &[u8]) {
        if let Some(silence) = &mut self.idle_timer {
            silence.since = Instant::now();
        }
        if let Some(head) = &mut self.unparsed_start {
            let room = error::MAX_BODY_BYTES.saturating_sub(head.len());
            head.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            if self.problem.is_some() {
                // It is not a stream. The rest may say what it is.
                return;
            }
        }
        self.decode(Some(bytes));
    }

    /// Decodes bytes, or the end.
    fn decode(&mut self, bytes: Option<&[u8]>) {
        let Self {
            decoder,
            queue,
            failed,
            problem,
            secret,
            model,
            model_id: who,
            unparsed_start: head,
            is_complete: is_over,
            ..
        } = self;
        let mut each = |decoded: Decoded<'_>| {
            if *is_over || failed.is_some() || problem.is_some() {
                return;
            }
            match decoded.event {
                Ok(event) => {
                    let mut event = event.into_owned();
                    *is_over = complete_event(&mut event, who, model, secret);
                    queue.push_back(event);
                }
                Err(error) if head.is_some() && !queue.iter().any(|event| !is_prelude(event)) => {
                    *problem = Some(error.to_string());
                }
                // Skipping it would lose output of the model.
                Err(error) => {
                    let why = error::sanitize(&error.to_string(), secret);
                    let message = format!("{who} sent an invalid event: {why}");
                    *failed = Some(ModelError::new(ErrorType::Upstream, message));
                }
            }
        };
        match bytes {
            Some(bytes) => decoder.feed(bytes, &mut each),
            None => decoder.end(&mut each),
        }
    }

    /// The error of an answer that failed before it produced anything.
    fn early_failure(&self, end: &ModelCallEnd) -> ModelError {
        let Some(error) = &end.error else { return self.unreadable() };
        if end.finished_reason == FinishedReason::Truncated && self.is_not_stream() {
            return self.unreadable();
        }
        let kind = error.r#type.clone();
        let reason = error::sanitize(&error.message, &self.secret);
        let message = format!("{} failed: {reason}", self.model_id);
        if matches!(kind, ErrorType::RateLimit | ErrorType::Upstream | ErrorType::Connection) {
            ModelError::transient(kind, message)
        } else {
            ModelError::new(kind, message)
        }
    }

    /// The error of a body that is not a stream of events.
    fn unreadable(&self) -> ModelError {
        let problem = self.problem.as_deref().unwrap_or("not an event stream");
        let problem = error::sanitize(problem, &self.secret);
        let message = format!("{} sent an invalid response: {problem}", self.model_id);
        ModelError::new(ErrorType::Upstream, message + &self.body_excerpt())
    }

    fn unparsed_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.unparsed_start.as_deref().unwrap_or_default().trim_ascii())
    }

    /// Whether the body does not even start like a stream.
    fn is_not_stream(&self) -> bool {
        let head = self.unparsed_text();
        let is_frame = ["data:", "event:", ":", "id:"].iter().any(|it| head.starts_with(it));
        let is_cut = || head.starts_with('{') && serde_json::from_str::<IgnoredAny>(&head).is_err();
        !(head.is_empty() || is_frame || is_cut())
    }

    /// An excerpt of a body that is not a stream.
    fn body_excerpt(&self) -> String {
        let text = if self.is_not_stream() {
            error::error_text(&self.unparsed_text())
        } else {
            String::new()
        };
        let excerpt = error::sanitize(&text, &self.secret);
        if excerpt.is_empty() { excerpt } else { format!(" ({excerpt})") }
    }
}

/// Whether an event comes before the model's output.
fn is_prelude(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::ModelCallStart(_) | EventKind::Custom(_))
}

/// Completes an event. Returns whether it is the last.
fn complete_event(event: &mut Event<'static>, who: &str, model: &str, secret: &Secret) -> bool {
    if let EventKind::ModelCallStart(start) = &mut event.kind {
        if start.model_name.is_empty() {
            model.clone_into(&mut start.model_name);
        }
        return false;
    }
    let EventKind::ModelCallEnd(end) = &mut event.kind else { return false };
    if let Some(error) = &mut end.error {
        error.message = secret.redacted(std::mem::take(&mut error.message));
        let notes = Json::from_value(&event.metadata);
        if notes.is_ok_and(|notes| secret.is_in(notes.text())) {
            event.metadata = turnwire_core::Fields::default();
        }
    }
    // What a provider calls its model need not be what it was asked for; and the one that
    // stands in for another has other prices.
    event.metadata.insert(MODEL_METADATA_KEY, who);
    // A truncated one that is not at the end is a call that the provider began anew.
    end.finished_reason != FinishedReason::Truncated
}

/// Reads the rest of a complete answer, so that its connection can be reused.
async fn drain(mut body: ResponseBody) {
    let rest = async {
        let mut read = 0;
        while read < error::MAX_BODY_BYTES
            && body.read(|bytes| read += bytes.len()).await == Ok(true)
        {}
    };
    // Whether or not it arrived, the answer is complete.
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

impl Stream for ResponseStream {
    type Item = Result<Event<'static>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.queue.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = this.failed.take() {
                this.body = None;
                return Poll::Ready(Some(Err(error)));
            }
            if this.body.is_none() {
                return Poll::Ready(None);
            }
            if this.read(cx).is_ready() {
                continue;
            }
            let Some(silence) = &mut this.idle_timer else { return Poll::Pending };
            let is_silent = ready!(silence.poll(cx));
            let message = format!(
                "{} sent nothing for {is_silent:?} in the middle of its answer",
                this.model_id
            );
            this.failed = Some(ModelError::transient(ErrorType::Upstream, message));
        }
    }
}

impl IdleTimer {
    /// Ready after too long a silence.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let until = self.since + self.limit;
            if until <= Instant::now() {
                return Poll::Ready(self.limit);
            }
            self.timer.as_mut().reset(until);
        }
    }
}
