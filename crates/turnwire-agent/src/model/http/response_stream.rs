//! The bytes of an answer into events, as they come.

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

/// How long the rest of an answer that is complete may take: then its connection can be used again.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// An answer on its way in. Dropping it closes the connection.
pub(super) struct ResponseStream {
    /// The provider and the model, for people.
    pub model_id: String,
    /// What the model is called where the provider does not say so.
    pub model: String,
    pub secret: Secret,
    pub decoder: Decoder,
    /// What was decoded and not passed on yet.
    queue: VecDeque<Event<'static>>,
    /// What comes behind that, as the last.
    failed: Option<ModelError>,
    /// Nothing once there is no more to read.
    body: Option<ResponseBody>,
    /// Whether the last event was decoded.
    is_complete: bool,
    /// The beginning of the body, while nothing was understood of it.
    unparsed_start: Option<Vec<u8>>,
    /// A frame that could not be read, at the very beginning.
    problem: Option<String>,
    idle_timer: Option<IdleTimer>,
}

/// Notices that nothing comes. The timer runs on while something does, and is set anew only when it
/// rings: a token costs a look at the clock.
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

    /// Waits until the model has said something. What fails before that can be tried again, since
    /// nobody has seen anything of it.
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

    /// From now on, this much silence is too much.
    pub fn set_idle_limit(&mut self, limit: Duration) {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep(limit));
        self.idle_timer = Some(IdleTimer { limit, since, timer });
    }

    /// Takes the next bytes, or notes that there are none.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut body) = self.body.take() else { return Poll::Ready(()) };
        let Poll::Ready(read) = body.poll_read(cx, &mut |bytes| self.feed(bytes)) else {
            self.body = Some(body);
            return Poll::Pending;
        };
        match read {
            // What has come is enough; behind the rest, the connection can be used again.
            Ok(true) if self.is_complete => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(drain(body));
                }
            }
            _ if self.is_complete || self.failed.is_some() || self.has_read_enough() => {}
            Ok(true) => self.body = Some(body),
            // Whether it was cut off or has come to its end, the decoder knows what is missing.
            Ok(false) | Err(_) => self.decode(None),
        }
        Poll::Ready(())
    }

    /// Whether it is no stream, and as much of it was read as may say what it is.
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
                // It is no stream. The rest may say what it is.
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
                // To leave it out would be to lose something that the model said.
                Err(error) => {
                    let why = error::sanitize(&error.to_string(), secret);
                    let message = format!("{who} sent what cannot be read: {why}");
                    *failed = Some(ModelError::new(ErrorType::Upstream, message));
                }
            }
        };
        match bytes {
            Some(bytes) => decoder.feed(bytes, &mut each),
            None => decoder.end(&mut each),
        }
    }

    /// An answer that failed before it said anything.
    fn early_failure(&self, end: &ModelCallEnd) -> ModelError {
        let Some(error) = &end.error else { return self.unreadable() };
        if end.finished_reason == FinishedReason::Truncated && self.is_not_stream() {
            return self.unreadable();
        }
        let kind = error.r#type.clone();
        let said = error::sanitize(&error.message, &self.secret);
        let message = format!("{} failed: {said}", self.model_id);
        if matches!(kind, ErrorType::RateLimit | ErrorType::Upstream | ErrorType::Connection) {
            ModelError::transient(kind, message)
        } else {
            ModelError::new(kind, message)
        }
    }

    /// An answer in which there is nothing to be understood.
    fn unreadable(&self) -> ModelError {
        let problem = self.problem.as_deref().unwrap_or("this is no stream");
        let problem = error::sanitize(problem, &self.secret);
        let message = format!("{} sent no answer that can be read: {problem}", self.model_id);
        ModelError::new(ErrorType::Upstream, message + &self.body_excerpt())
    }

    fn unparsed_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.unparsed_start.as_deref().unwrap_or_default().trim_ascii())
    }

    /// Whether what has come is not even the beginning of a stream.
    fn is_not_stream(&self) -> bool {
        let head = self.unparsed_text();
        let is_frame = ["data:", "event:", ":", "id:"].iter().any(|it| head.starts_with(it));
        let is_cut = || head.starts_with('{') && serde_json::from_str::<IgnoredAny>(&head).is_err();
        !(head.is_empty() || is_frame || is_cut())
    }

    /// What a body says that is no stream.
    fn body_excerpt(&self) -> String {
        let told = if self.is_not_stream() {
            error::error_text(&self.unparsed_text())
        } else {
            String::new()
        };
        let said = error::sanitize(&told, &self.secret);
        if said.is_empty() { said } else { format!(" ({said})") }
    }
}

/// What comes before a model says anything.
fn is_prelude(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::ModelCallStart(_) | EventKind::Custom(_))
}

/// Makes an event whole. Whether it is the last.
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

/// Reads the rest of a complete answer, so that its connection can be used again.
async fn drain(mut body: ResponseBody) {
    let rest = async {
        let mut read = 0;
        while read < error::MAX_BODY_BYTES
            && body.read(|bytes| read += bytes.len()).await == Ok(true)
        {}
    };
    // Whether it came or not, that was all.
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
            let message = format!("{} said nothing more for {is_silent:?}", this.model_id);
            this.failed = Some(ModelError::transient(ErrorType::Upstream, message));
        }
    }
}

impl IdleTimer {
    /// Ready once there was too much of it.
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
