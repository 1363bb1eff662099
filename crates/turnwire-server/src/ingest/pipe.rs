//! Stores a stream as one reply, while it arrives.
//!
//! The stream may be of any wire with a decoder, such as the response of a model provider. Its
//! events are stored as they come. Whatever happens to the stream, its reply ends.

mod reply_writer;

use super::params::PipeQuery;
use super::producer::Publisher;
use super::publish::SkippedEvent;
use crate::App;
use crate::auth::{Caller, Scope, expired_error, wait_until_expired};
use crate::cluster::operation::take_ownership;
use crate::error::{ApiError, ApiResult};
use crate::extract;
use crate::limits::UnreadBytes;
use axum::body::Body;
use http_body::Body as _;
use reply_writer::{PipedReply, server_stopping};
use std::sync::Arc;
use tokio::time::Instant;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Error, ErrorType, Event, FinishedReason, Head, ReplyError};
use turnwire_log::Session;
use turnwire_log::store::Producer;
use turnwire_wires::{Decoded, Decoder, DecoderOptions, Wire};

/// A stream on its way into a session.
pub(crate) struct Pipe {
    decoder: Decoder,
    reply: PipedReply,
    /// When the sender's credentials expire.
    expires_at: Option<Instant>,
}

/// What became of a stream.
#[derive(Debug)]
pub(crate) struct PipeResult {
    pub reply_id: String,
    pub last: Head,
    pub finished_reason: FinishedReason,
    /// Only in tolerant mode.
    pub skipped: Option<Vec<SkippedEvent>>,
}

/// Why a stream ends.
enum PipeEnd {
    /// Its body has ended.
    EndOfStream,
    /// Somebody stopped the reply.
    Interrupted,
    /// It broke off.
    Aborted(ApiError),
    /// An event does not fit.
    BadEvent(ApiError),
    /// The reply does not belong to this stream any more.
    LostReply(ApiError),
}

/// A decoded event or the error instead of it, with its line.
type DecodedEvent = (u64, Result<Event<'static>, Error>);

impl Pipe {
    /// Prepares to store a stream, if a reply can begin now.
    pub async fn new(
        app: Arc<App>,
        session: Arc<Session>,
        caller: &Caller,
        wire: &'static Wire,
        publisher: Option<Publisher<'_>>,
        query: PipeQuery,
    ) -> ApiResult<Self> {
        let limit = app.config.limits.event.bytes();
        let tolerance = query.tolerant.into();
        let given_id = query.into_reply_id()?;
        let decoding = DecoderOptions {
            reply_id: given_id.clone(),
            max_frame_bytes: limit,
            ..DecoderOptions::default()
        };
        // A request without a producer header is a producer of its own, for this reply only.
        let (id, fence) = publisher.map_or_else(
            || (format!("pipe-{}", SystemStamp.id()), 0),
            |publisher| (publisher.id.to_owned(), publisher.fence),
        );
        let producer = Producer { id, fence, holder: caller.0.holder.to_string() };
        let is_admin = caller.has_scope(Scope::Admin);
        let reply = PipedReply {
            app,
            session,
            wire,
            producer,
            is_admin,
            tolerance,
            given_id,
            reply_ids: None,
            has_tried: false,
            has_begun: false,
            ended: None,
            last: Head::EMPTY,
            count: 0,
            skipped: Vec::new(),
            stored: 0,
        };
        take_ownership(&reply.app, &reply.session).await?;
        let given: Vec<&str> = reply.given_id.as_deref().into_iter().collect();
        reply.session.transact(&given, |tx| reply.check_may_begin(tx)).await?;
        let decoder = wire.decoder(&decoding).map_err(ApiError::internal)?;
        Ok(Self { decoder, reply, expires_at: caller.expires_at() })
    }

    /// Stores a whole body. When this returns the reply has ended, durably.
    pub async fn run(mut self, body: Body) -> ApiResult<PipeResult> {
        let stop = self.read_stream(body).await;
        let interrupted = FinishedReason::Interrupted;
        match stop {
            PipeEnd::EndOfStream if self.reply.has_begun => {
                // Blocks that the stream left open end as interrupted.
                self.reply.end_reply(&interrupted, None).await?;
                self.reply.into_result()
            }
            PipeEnd::EndOfStream => {
                Err(ApiError::bad_request("the body has no event").hint(format!(
                    "send a stream of the wire {}, or set another with ?wire=",
                    self.reply.wire.name
                )))
            }
            PipeEnd::Interrupted => {
                self.reply.end_reply(&interrupted, None).await?;
                self.reply.into_result()
            }
            PipeEnd::Aborted(error) => {
                self.reply.end_reply(&interrupted, None).await?;
                Err(error)
            }
            PipeEnd::BadEvent(error) => {
                let reason = ReplyError::new(ErrorType::InvalidRequest, error.message());
                self.reply.end_reply(&FinishedReason::Error, Some(&reason)).await?;
                self.reply.app.ingest.counts.count_refused(1);
                Err(error)
            }
            PipeEnd::LostReply(error) => Err(error),
        }
    }

    async fn read_stream(&mut self, mut body: Body) -> PipeEnd {
        let patience = self.reply.app.config.producers.silence.0;
        let closing = self.reply.app.force_stop.clone();
        let mut owed = body.size_hint().exact();
        let mut head = self.reply.session.watch_head();
        let mut seen = head.borrow_and_update().head;
        let mut deadline = Instant::now() + patience;
        let tenant = self.reply.session.key().tenant.clone();
        let mut unread = UnreadBytes::new(self.reply.app.buffered.clone(), tenant);
        loop {
            let chunk = tokio::select! {
                chunk = extract::next_chunk(&mut body, deadline - Instant::now()) => chunk,
                changed = head.changed(), if self.reply.has_begun => {
                    let now = *head.borrow_and_update();
                    match self.reply.was_stopped(&mut seen, now.head).await {
                        _ if changed.is_err() || now.is_deleted => {
                            return PipeEnd::LostReply(turnwire_log::Error::NoSession.into());
                        }
                        Ok(false) => continue,
                        Ok(true) => return PipeEnd::Interrupted,
                        Err(error) => return PipeEnd::LostReply(error),
                    }
                }
                () = closing.cancelled() => return PipeEnd::Aborted(server_stopping()),
                () = wait_until_expired(self.expires_at) => {
                    return PipeEnd::Aborted(expired_error().hint(
                        "the reply was ended as interrupted, and what came before is stored; a stream \
                         needs credentials that last as long as it does",
                    ));
                }
            };
            let mut steps = Vec::new();
            let bytes = match chunk {
                Ok(_) if Instant::now() >= deadline => return PipeEnd::Aborted(silence_timeout()),
                Ok(bytes) => bytes,
                Err(error) => return PipeEnd::Aborted(error),
            };
            match &bytes {
                Some(bytes) => {
                    if let Err(error) = unread.add(bytes.len()) {
                        return PipeEnd::Aborted(error);
                    }
                    owed = owed.map(|owed| owed.saturating_sub(bytes.len() as u64));
                    self.decoder.feed(bytes, &mut |decoded| steps.push(into_decoded(decoded)));
                }
                // A lost connection looks like the end of its body.
                None if owed.is_some_and(|owed| owed > 0) || closing.is_cancelled() => {
                    return PipeEnd::Aborted(ApiError::bad_request("the body broke off"));
                }
                None => {
                    if self.reply.count == 0 {
                        // If nothing came before, an incomplete last line is still an event.
                        self.decoder
                            .feed(b"\n\n", &mut |decoded| steps.push(into_decoded(decoded)));
                        if steps.is_empty() {
                            return PipeEnd::EndOfStream;
                        }
                    }
                    self.decoder.end(&mut |decoded| steps.push(into_decoded(decoded)));
                }
            }
            if !steps.is_empty() {
                unread.clear();
            }
            let before = self.reply.stored;
            if let Err(stop) = self.reply.store_events(steps).await {
                return stop;
            }
            if bytes.is_none() {
                return PipeEnd::EndOfStream;
            }
            // Bytes alone do not keep a reply open, nor do events that are left out.
            if self.reply.stored > before {
                deadline = Instant::now() + patience;
            }
        }
    }
}

fn silence_timeout() -> ApiError {
    ApiError::timeout("no event received for too long; the reply was ended as interrupted")
        .hint("the operator can raise `producers.silence` in turnwire.toml")
}

fn into_decoded(decoded: Decoded<'_>) -> DecodedEvent {
    (decoded.line, decoded.event.map(Event::into_owned))
}
