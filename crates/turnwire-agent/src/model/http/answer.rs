//! The bytes of an answer into events, as they come.

use super::client::Body;
use super::failure;
use super::key::Secret;
use crate::model::{MODEL, ModelError};
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
const REST: Duration = Duration::from_secs(1);

/// An answer on its way in. Dropping it closes the connection.
pub(super) struct Incoming {
    /// The provider and the model, for people.
    pub who: String,
    /// What the model is called where the provider does not say so.
    pub model: String,
    pub secret: Secret,
    pub decoder: Decoder,
    /// What was decoded and not passed on yet.
    queue: VecDeque<Event<'static>>,
    /// What comes behind that, as the last.
    failed: Option<ModelError>,
    /// Nothing once there is no more to read.
    body: Option<Body>,
    /// Whether the last event was decoded.
    is_over: bool,
    /// The beginning of the body, while nothing was understood of it.
    head: Option<Vec<u8>>,
    /// A frame that could not be read, at the very beginning.
    problem: Option<String>,
    silence: Option<Silence>,
}

/// Notices that nothing comes. The timer runs on while something does, and is set anew only when it
/// rings: a token costs a look at the clock.
struct Silence {
    limit: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Incoming {
    pub fn new(who: String, model: String, secret: Secret, decoder: Decoder, body: Body) -> Self {
        Self {
            who,
            model,
            secret,
            decoder,
            queue: VecDeque::new(),
            failed: None,
            body: Some(body),
            is_over: false,
            head: Some(Vec::new()),
            problem: None,
            silence: None,
        }
    }

    /// Waits until the model has said something. What fails before that can be tried again, since
    /// nobody has seen anything of it.
    pub async fn begin(&mut self) -> Result<(), ModelError> {
        loop {
            let first = self.queue.iter().find(|event| !is_prelude(event));
            match first.map(|event| &event.kind) {
                Some(EventKind::ModelCallEnd(end)) if end.error.is_some() => {
                    return Err(self.broken(end));
                }
                Some(_) => {
                    self.head = None;
                    return Ok(());
                }
                None if self.body.is_none() => {
                    return Err(self.failed.take().unwrap_or_else(|| self.nothing()));
                }
                None => poll_fn(|cx| self.read(cx)).await,
            }
        }
    }

    /// From now on, this much silence is too much.
    pub fn limit_silence(&mut self, limit: Duration) {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep(limit));
        self.silence = Some(Silence { limit, since, timer });
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
            Ok(true) if self.is_over => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(drain(body));
                }
            }
            _ if self.is_over || self.failed.is_some() || self.is_enough() => {}
            Ok(true) => self.body = Some(body),
            // Whether it was cut off or has come to its end, the decoder knows what is missing.
            Ok(false) | Err(_) => self.decode(None),
        }
        Poll::Ready(())
    }

    /// Whether it is no stream, and as much of it was read as may say what it is.
    fn is_enough(&self) -> bool {
        self.problem.is_some() && self.head.as_ref().is_some_and(|head| head.len() >= failure::MOST)
    }

    fn feed(&mut self, bytes: &[u8]) {
        if let Some(silence) = &mut self.silence {
            silence.since = Instant::now();
        }
        if let Some(head) = &mut self.head {
            let room = failure::MOST.saturating_sub(head.len());
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
        let Self { decoder, queue, failed, problem, secret, model, who, head, is_over, .. } = self;
        let mut each = |decoded: Decoded<'_>| {
            if *is_over || failed.is_some() || problem.is_some() {
                return;
            }
            match decoded.event {
                Ok(event) => {
                    let mut event = event.into_owned();
                    *is_over = finish(&mut event, who, model, secret);
                    queue.push_back(event);
                }
                Err(error) if head.is_some() && !queue.iter().any(|event| !is_prelude(event)) => {
                    *problem = Some(error.to_string());
                }
                // To leave it out would be to lose something that the model said.
                Err(error) => {
                    let why = failure::said(&error.to_string(), secret);
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
    fn broken(&self, end: &ModelCallEnd) -> ModelError {
        let Some(error) = &end.error else { return self.nothing() };
        if end.finished_reason == FinishedReason::Truncated && self.is_no_stream() {
            return self.nothing();
        }
        let kind = error.r#type.clone();
        let said = failure::said(&error.message, &self.secret);
        let message = format!("{} failed: {said}", self.who);
        match kind {
            ErrorType::RateLimit | ErrorType::Upstream | ErrorType::Connection => {
                ModelError::passing(kind, message)
            }
            kind => ModelError::new(kind, message),
        }
    }

    /// An answer in which there is nothing to be understood.
    fn nothing(&self) -> ModelError {
        let problem = self.problem.as_deref().unwrap_or("this is no stream");
        let problem = failure::said(problem, &self.secret);
        let message = format!("{} sent no answer that can be read: {problem}", self.who);
        ModelError::new(ErrorType::Upstream, message + &self.rest())
    }

    fn head(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.head.as_deref().unwrap_or_default().trim_ascii())
    }

    /// Whether what has come is not even the beginning of a stream.
    fn is_no_stream(&self) -> bool {
        let head = self.head();
        let is_frame = ["data:", "event:", ":", "id:"].iter().any(|it| head.starts_with(it));
        let is_cut = || head.starts_with('{') && serde_json::from_str::<IgnoredAny>(&head).is_err();
        !(head.is_empty() || is_frame || is_cut())
    }

    /// What a body says that is no stream.
    fn rest(&self) -> String {
        let told = if self.is_no_stream() { failure::told(&self.head()) } else { String::new() };
        let said = failure::said(&told, &self.secret);
        if said.is_empty() { said } else { format!(" ({said})") }
    }
}

/// What comes before a model says anything.
fn is_prelude(event: &Event<'_>) -> bool {
    matches!(event.kind, EventKind::ModelCallStart(_) | EventKind::Custom(_))
}

/// Makes an event whole. Whether it is the last.
fn finish(event: &mut Event<'static>, who: &str, model: &str, secret: &Secret) -> bool {
    match &mut event.kind {
        EventKind::ModelCallStart(start) if start.model_name.is_empty() => {
            model.clone_into(&mut start.model_name);
            false
        }
        EventKind::ModelCallEnd(end) => {
            if let Some(error) = &mut end.error {
                error.message = secret.redacted(std::mem::take(&mut error.message));
                let notes = Json::from_value(&event.metadata);
                if notes.is_ok_and(|notes| secret.is_in(notes.text())) {
                    event.metadata = turnwire_core::Fields::default();
                }
            }
            // What a provider calls its model need not be what it was asked for; and the one that
            // stands in for another has other prices.
            event.metadata.insert(MODEL, who);
            // A truncated one that is not at the end is a call that the provider began anew.
            end.finished_reason != FinishedReason::Truncated
        }
        _ => false,
    }
}

/// Reads the rest of a complete answer, so that its connection can be used again.
async fn drain(mut body: Body) {
    let rest = async {
        let mut read = 0;
        while read < failure::MOST && body.read(|bytes| read += bytes.len()).await == Ok(true) {}
    };
    // Whether it came or not, that was all.
    let _ = tokio::time::timeout(REST, rest).await;
}

impl Stream for Incoming {
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
            let Some(silence) = &mut this.silence else { return Poll::Pending };
            let is_silent = ready!(silence.poll(cx));
            let message = format!("{} said nothing more for {is_silent:?}", this.who);
            this.failed = Some(ModelError::passing(ErrorType::Upstream, message));
        }
    }
}

impl Silence {
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
