//! A stream into the log, as one reply.
//!
//! The stream may be of any wire that can be read, such as a provider's answer that is passed on as
//! it comes. What comes is stored as it comes; whatever happens to the stream, its reply ends.

mod writing;

use super::params::Params;
use super::producer::Publisher;
use super::publish::Skipped;
use crate::App;
use crate::auth::{Caller, Scope, expired, wait_for};
use crate::error::{ApiError, ApiResult};
use crate::extract;
use crate::limits::UnreadBytes;
use axum::body::Body;
use http_body::Body as _;
use std::sync::Arc;
use tokio::time::Instant;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Error, ErrorType, Event, FinishedReason, ReplyError};
use turnwire_log::Session;
use turnwire_log::store::Producer;
use turnwire_wires::{Decoded, Decoder, DecoderOptions, Wire};
use writing::{Writing, stops};

/// A stream on its way into a session.
pub(crate) struct Pipe {
    decoder: Decoder,
    reply: Writing,
    /// When the credentials of whoever sends it expire.
    expires_at: Option<Instant>,
}

/// What became of a stream.
#[derive(Debug)]
pub(crate) struct Piped {
    pub reply_id: String,
    pub last: u64,
    pub finished_reason: FinishedReason,
    /// Only where leaving out was asked for.
    pub skipped: Option<Vec<Skipped>>,
}

/// Why nothing more is read of a stream.
enum Stop {
    /// It is over.
    Over,
    /// Somebody stopped the reply.
    Interrupted,
    /// It broke off.
    BrokeOff(ApiError),
    /// Something in it does not fit.
    Problem(ApiError),
    /// The reply is no longer this stream's.
    Lost(ApiError),
}

/// What was decoded: an event, or why there is none; with its line.
type Step = (u64, Result<Event<'static>, Error>);

impl Pipe {
    /// Gets ready, if a reply can begin now.
    pub async fn new(
        app: Arc<App>,
        session: Arc<Session>,
        caller: &Caller,
        wire: &'static Wire,
        publisher: Option<Publisher<'_>>,
        params: Params,
    ) -> ApiResult<Self> {
        let limit = app.config.limits.event.bytes();
        let decoding = DecoderOptions { reply_id: params.reply_id.clone(), max_frame_bytes: limit, ..DecoderOptions::default() };
        // Who names no producer is one of its own, for this one reply.
        let (id, fence) = publisher.map_or_else(
            || (format!("pipe-{}", SystemStamp.id()), 0),
            |publisher| (publisher.id.to_owned(), publisher.fence),
        );
        let producer = Producer { id, fence, holder: caller.0.holder.to_string() };
        let is_admin = caller.may(Scope::Admin);
        let reply = Writing {
            app,
            session,
            wire,
            producer,
            is_admin,
            tolerance: params.tolerance,
            given_id: params.reply_id,
            own: None,
            tried: false,
            begun: false,
            ended: None,
            last: 0,
            count: 0,
            skipped: Vec::new(),
            stored: 0,
        };
        let given: Vec<&str> = reply.given_id.as_deref().into_iter().collect();
        reply.session.transact(&given, |tx| reply.may_begin(tx)).await?;
        let decoder = wire.decoder(&decoding).map_err(ApiError::internal)?;
        Ok(Self { decoder, reply, expires_at: caller.expires_at() })
    }

    /// Takes a whole body in. When this returns the reply has ended, durably.
    pub async fn run(mut self, body: Body) -> ApiResult<Piped> {
        let stop = self.read(body).await;
        let interrupted = FinishedReason::Interrupted;
        match stop {
            Stop::Over if self.reply.begun => {
                // What the stream left open has been interrupted.
                self.reply.close(&interrupted, None).await?;
                self.reply.piped()
            }
            Stop::Over => {
                Err(ApiError::bad_request("there is no event in the body").hint(format!(
                    "send a stream of the wire {}, or name another with ?wire=",
                    self.reply.wire.name
                )))
            }
            Stop::Interrupted => {
                self.reply.close(&interrupted, None).await?;
                self.reply.piped()
            }
            Stop::BrokeOff(error) => {
                self.reply.close(&interrupted, None).await?;
                Err(error)
            }
            Stop::Problem(error) => {
                let reason = ReplyError {
                    r#type: ErrorType::InvalidRequest,
                    message: error.message().to_owned(),
                    ..ReplyError::default()
                };
                self.reply.close(&FinishedReason::Error, Some(&reason)).await?;
                self.reply.app.ingest.counts.refuse(1);
                Err(error)
            }
            Stop::Lost(error) => Err(error),
        }
    }

    async fn read(&mut self, mut body: Body) -> Stop {
        let patience = self.reply.app.config.producers.silence.0;
        let closing = self.reply.app.closing.clone();
        let mut owed = body.size_hint().exact();
        let mut head = self.reply.session.watch_head();
        let mut seen = head.borrow_and_update().head;
        let mut deadline = Instant::now() + patience;
        let tenant = self.reply.session.key().tenant.clone();
        let mut unread = UnreadBytes::new(self.reply.app.buffered.clone(), tenant);
        loop {
            let chunk = tokio::select! {
                chunk = extract::next(&mut body, deadline - Instant::now()) => chunk,
                changed = head.changed(), if self.reply.begun => {
                    let now = *head.borrow_and_update();
                    match self.reply.was_stopped(&mut seen, now.head).await {
                        _ if changed.is_err() || now.is_deleted => {
                            return Stop::Lost(turnwire_log::Error::NoSession.into());
                        }
                        Ok(false) => continue,
                        Ok(true) => return Stop::Interrupted,
                        Err(error) => return Stop::Lost(error),
                    }
                }
                () = closing.cancelled() => return Stop::BrokeOff(stops()),
                () = wait_for(self.expires_at) => {
                    return Stop::BrokeOff(expired().hint(
                        "the reply was ended as interrupted, and what came before is stored; a stream \
                         needs credentials that last as long as it does",
                    ));
                }
            };
            let mut steps = Vec::new();
            let bytes = match chunk {
                Ok(_) if Instant::now() >= deadline => return Stop::BrokeOff(no_event_came()),
                Ok(bytes) => bytes,
                Err(error) => return Stop::BrokeOff(error),
            };
            match &bytes {
                Some(bytes) => {
                    if let Err(error) = unread.add(bytes.len()) {
                        return Stop::BrokeOff(error);
                    }
                    owed = owed.map(|owed| owed.saturating_sub(bytes.len() as u64));
                    self.decoder.feed(bytes, &mut |decoded| steps.push(step(decoded)));
                }
                // A connection that is gone looks like the end of its body.
                None if owed.is_some_and(|owed| owed > 0) || closing.is_cancelled() => {
                    return Stop::BrokeOff(ApiError::bad_request("the body broke off"));
                }
                None => {
                    if self.reply.count == 0 {
                        // Where nothing came before, what is left is no stream that broke off.
                        self.decoder.feed(b"\n\n", &mut |decoded| steps.push(step(decoded)));
                        if steps.is_empty() {
                            return Stop::Over;
                        }
                    }
                    self.decoder.end(&mut |decoded| steps.push(step(decoded)));
                }
            }
            if !steps.is_empty() {
                unread.clear();
            }
            let before = self.reply.stored;
            if let Err(stop) = self.reply.take(steps).await {
                return stop;
            }
            if bytes.is_none() {
                return Stop::Over;
            }
            // Bytes alone do not keep a reply open, and neither do lines that are left out.
            if self.reply.stored > before {
                deadline = Instant::now() + patience;
            }
        }
    }
}

fn no_event_came() -> ApiError {
    ApiError::timeout("no event came for too long; the reply was ended as interrupted")
        .hint("the operator can change `silence` in turnwire.toml, [producers]")
}

fn step(decoded: Decoded<'_>) -> Step {
    (decoded.line, decoded.event.map(Event::into_owned))
}
