//! Stores the events of a stream under one reply.

use super::super::WIRES;
use super::super::params::Tolerance;
use super::super::producer::{Publisher, busy};
use super::super::publish::SkippedEvent;
use super::{DecodedEvent, PipeEnd, PipeResult};
use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::turns::event_origin::EventOrigin;
use crate::turns::{end_all_replies, persist, stamp_event};
use std::sync::Arc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use turnwire_agent::AgentError;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Error, ErrorKind, Event, EventKind, FinishedReason, Head, ReplyError};
use turnwire_log::store::{EventLines, Producer};
use turnwire_log::{PushOutcome, Session, Transaction};
use turnwire_wires::Wire;

/// The reply id of streams that have none.
const PLACEHOLDER_ID: &str = "reply";
/// How many skipped events are reported.
const MAX_REPORTED: usize = 100;
/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The reply that a stream becomes.
pub(super) struct PipedReply {
    pub app: Arc<App>,
    pub session: Arc<Session>,
    pub wire: &'static Wire,
    pub producer: Producer,
    /// Whether it may take over from another holder.
    pub is_admin: bool,
    pub tolerance: Tolerance,
    pub given_id: Option<String>,
    /// The reply's id in the stream, and in the log.
    pub reply_ids: Option<(String, String)>,
    /// An append was tried.
    pub has_tried: bool,
    /// Something was stored.
    pub has_begun: bool,
    pub ended: Option<FinishedReason>,
    pub last: Head,
    pub count: usize,
    pub skipped: Vec<SkippedEvent>,
    /// How many events were stored.
    pub stored: u64,
}

impl PipedReply {
    /// Stores decoded events, up to the first that does not fit.
    pub async fn store_events(&mut self, steps: Vec<DecodedEvent>) -> Result<(), PipeEnd> {
        let mut events = Vec::with_capacity(steps.len());
        let mut problem = None;
        for (line, event) in steps {
            let at = self.count;
            self.count += 1;
            match event.and_then(|event| self.assign_ids(event)) {
                Ok(event) => events.push((at, line, event)),
                Err(why) if self.tolerance == Tolerance::Tolerant => self.skip(at, line, "", &why),
                Err(why) => {
                    problem = Some(self.event_error(at, line, "", &why));
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.commit(events).await?;
        }
        problem.map_or(Ok(()), |problem| Err(PipeEnd::BadEvent(problem)))
    }

    /// The event as it is stored: with the reply's id, and with an id and a time of its own.
    fn assign_ids(&mut self, mut event: Event<'static>) -> Result<Event<'static>, Error> {
        let refused = match EventOrigin::from_kind(&event.kind) {
            EventOrigin::Conversation => "it is not part of a reply",
            EventOrigin::Approver => "only a user can confirm, not a producer",
            EventOrigin::Agent | EventOrigin::Client | EventOrigin::Publisher => "",
        };
        if !refused.is_empty() {
            let message = format!("{}: {refused}", event.kind.type_name());
            return Err(Error::new(ErrorKind::NotAnEvent, message));
        }
        let is_own = event.kind.is_part_of_reply() && !event.is_from_sub_agent();
        if is_own && self.reply_ids.is_none() {
            let theirs = event.reply_id.to_string();
            // Some providers send the same placeholder every time.
            let no_id =
                theirs.is_empty() || theirs == PLACEHOLDER_ID && !WIRES.contains(&self.wire.name);
            let stream = || if no_id { SystemStamp.id() } else { theirs.clone() };
            let ours = self.given_id.clone().unwrap_or_else(stream);
            self.reply_ids = Some((theirs, ours));
        }
        if let Some((theirs, ours)) = &self.reply_ids {
            if event.reply_id == *theirs || is_own && event.reply_id.is_empty() {
                event.reply_id = ours.clone().into();
            } else if is_own {
                let message = format!(
                    "{} is of the reply {}; this stream is one reply, {theirs}",
                    event.kind.type_name(),
                    event.reply_id
                );
                return Err(Error::new(ErrorKind::WrongReply, message));
            }
        }
        Ok(stamp_event(event, &self.session))
    }

    async fn commit(
        &mut self,
        mut events: Vec<(usize, u64, Event<'static>)>,
    ) -> Result<(), PipeEnd> {
        let touched: Vec<String> = events
            .iter()
            .filter(|(_, _, event)| event.kind.is_part_of_reply())
            .map(|(_, _, event)| event.reply_id.to_string())
            .collect();
        let mut touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        touched.dedup();
        let (session, closing) = (self.session.clone(), self.app.force_stop.clone());
        let mut lost = None;
        let mut outcome = CommitOutcome::default();
        let done = persist(&session, &closing, &touched, |tx| {
            outcome = CommitOutcome::default();
            if let Err(error) = self.check_may_continue(tx) {
                lost = Some(error);
                return Err(AgentError::Stopped);
            }
            self.has_tried = true;
            for (at, line, event) in &mut events {
                match tx.push(event, None) {
                    Ok(PushOutcome::Stored(_)) => outcome.stored += 1,
                    Ok(PushOutcome::Repeated) => outcome.repeated += 1,
                    Err(why) => {
                        let word = event.kind.type_name().to_owned();
                        outcome.refused.push((*at, *line, word, why));
                        if self.tolerance == Tolerance::Strict {
                            break;
                        }
                        continue;
                    }
                }
                if let EventKind::ReplyEnd(end) = &event.kind
                    && self.is_own(&event.reply_id)
                {
                    outcome.ended = Some(end.finished_reason.clone());
                }
            }
            if outcome.stored > 0 {
                self.publisher().record(tx);
            }
            Ok(())
        })
        .await;
        let receipt = match (done, lost) {
            (Ok(((), receipt)), _) => receipt,
            (Err(_), Some(error)) => return Err(PipeEnd::LostReply(error)),
            (Err(AgentError::Stopped), None) => return Err(PipeEnd::Aborted(server_stopping())),
            (Err(error), None) => return Err(PipeEnd::LostReply(log_error(&session, &error))),
        };
        self.last = receipt.head;
        self.has_begun |= outcome.stored > 0;
        self.stored += outcome.stored;
        self.ended = outcome.ended.or(self.ended.take());
        self.app.ingest.counts.count_stored(outcome.stored, outcome.repeated);
        for (at, line, word, why) in outcome.refused {
            match self.tolerance {
                Tolerance::Strict => {
                    return Err(PipeEnd::BadEvent(self.event_error(at, line, &word, &why)));
                }
                Tolerance::Tolerant => self.skip(at, line, &word, &why),
            }
        }
        Ok(())
    }

    fn publisher(&self) -> Publisher<'_> {
        let Producer { id, fence, holder } = &self.producer;
        Publisher { id, fence: *fence, holder, is_admin: self.is_admin }
    }

    fn is_own(&self, reply: &str) -> bool {
        self.reply_ids.as_ref().is_some_and(|(_, ours)| ours == reply)
    }

    /// Checks that a reply can begin.
    pub fn check_may_begin(&self, tx: &Transaction<'_>) -> ApiResult<()> {
        self.publisher().check_may_write(tx)?;
        if let Some(open) = tx.replies().first() {
            return Err(busy(&format!("the reply {} is open", open.msg().id())));
        }
        let ours = self.reply_ids.as_ref().map(|(_, ours)| ours).or(self.given_id.as_ref());
        if let Some(ours) = ours.filter(|ours| tx.is_finished(ours)) {
            return Err(ApiError::conflict(format!("a message {ours} exists already"))
                .kind("duplicate")
                .hint("if it is the same stream, it is already stored; otherwise use another ?reply_id="));
        }
        Ok(())
    }

    /// Checks that the reply still belongs to this stream.
    fn check_may_continue(&self, tx: &Transaction<'_>) -> ApiResult<()> {
        // A failed attempt may have been written after all.
        let is_there = self.has_tried && self.publisher().is_current(tx) && tx.is_produced();
        if !self.has_begun && !is_there {
            return self.check_may_begin(tx);
        }
        self.publisher().check_may_write(tx)?;
        let is_open = self.reply_ids.as_ref().is_none_or(|(_, ours)| tx.reply(ours).is_some());
        let is_new = self.reply_ids.as_ref().is_some_and(|(_, ours)| !tx.is_finished(ours));
        if is_open || is_new || self.ended.is_some() {
            return Ok(());
        }
        Err(ApiError::conflict("another request ended the reply; the rest was not stored")
            .kind("ended"))
    }

    /// Ends the open replies, if there are any.
    pub async fn end_reply(
        &mut self,
        reason: &FinishedReason,
        error: Option<&ReplyError>,
    ) -> ApiResult<()> {
        if !self.has_tried {
            return Ok(());
        }
        let (session, closing) = (self.session.clone(), self.app.force_stop.clone());
        let close = |tx: &mut Transaction<'_>| {
            let is_ours = self.publisher().is_current(tx) && tx.is_produced();
            if is_ours { end_all_replies(tx, &session, reason, error) } else { Ok(false) }
        };
        let closed = if closing.is_cancelled() {
            // A server that stops does not wait for a full disk.
            let never = CancellationToken::new();
            let time_limit = self.app.config.limits.stop_timeout.0;
            let closed = timeout(time_limit, persist(&session, &never, &[], close));
            closed.await.unwrap_or(Err(AgentError::Stopped))
        } else {
            persist(&session, &closing, &[], close).await
        };
        match closed {
            Ok((has_closed, receipt)) => {
                self.last = receipt.head;
                if has_closed && self.ended.is_none() {
                    self.ended = Some(reason.clone());
                }
                Ok(())
            }
            Err(AgentError::Stopped) => Err(server_stopping()),
            Err(error) => Err(log_error(&session, &error)),
        }
    }

    /// Whether somebody has stopped the reply since the last call.
    pub async fn was_stopped(&self, seen: &mut Head, head: Head) -> ApiResult<bool> {
        while *seen < head {
            let rows = self.session.read_events(seen.next(), READ_BYTES).await?;
            let Some(read) = rows.last().map(EventLines::last) else { break };
            for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                if memchr::memmem::find(line, b"\"USER_INTERRUPT\"").is_none() {
                    continue;
                }
                let event = Session::parse_event(seq, line)?;
                let stops = matches!(event.kind, EventKind::UserInterrupt(_));
                if stops && self.is_own(&event.reply_id) {
                    return Ok(true);
                }
            }
            *seen = read.into();
        }
        Ok(false)
    }

    pub fn into_result(self) -> ApiResult<PipeResult> {
        let (Some((_, reply_id)), Some(finished_reason)) = (self.reply_ids, self.ended) else {
            return Err(ApiError::unprocessable("the stream contains no reply").kind("no_reply"));
        };
        let skipped = (self.tolerance == Tolerance::Tolerant).then_some(self.skipped);
        Ok(PipeResult { reply_id, last: self.last, finished_reason, skipped })
    }

    #[cold]
    fn skip(&mut self, at: usize, line: u64, word: &str, why: &Error) {
        self.app.ingest.counts.count_refused(1);
        if self.skipped.len() < MAX_REPORTED {
            let message = format!("line {line}: {why}");
            self.skipped.push(SkippedEvent { at, r#type: word.to_owned(), message });
        }
    }

    #[cold]
    fn event_error(&self, at: usize, line: u64, word: &str, why: &Error) -> ApiError {
        let joint = if word.is_empty() { "" } else { ", " };
        let message = format!(
            "event {at} of the stream (line {line}{joint}{word}) is not a valid event of the wire {}: {why}",
            self.wire.name
        );
        let error = if why.kind() == ErrorKind::TooLong {
            ApiError::too_large(message)
        } else {
            ApiError::unprocessable(message).kind("refused")
        };
        error.hint("what came before it is stored, and the reply was ended with an error; `tolerant=true` leaves out events that do not fit")
    }
}

/// The result of an append.
#[derive(Default)]
struct CommitOutcome {
    stored: u64,
    repeated: u64,
    refused: Vec<(usize, u64, String, Error)>,
    ended: Option<FinishedReason>,
}

pub(super) fn server_stopping() -> ApiError {
    ApiError::unavailable("the server is stopping; the reply was ended as interrupted")
        .retry_after(1)
}

/// The error of an append that the log did not take.
fn log_error(session: &Session, error: &AgentError) -> ApiError {
    if session.head_state().is_deleted {
        return turnwire_log::Error::NoSession.into();
    }
    ApiError::internal(error)
}
