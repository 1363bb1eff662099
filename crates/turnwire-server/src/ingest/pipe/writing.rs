//! The events of a stream into the log, under one reply.

use super::super::WIRES;
use super::super::params::Tolerance;
use super::super::producer::{Publisher, busy};
use super::super::publish::Skipped;
use super::{Piped, Step, Stop};
use crate::App;
use crate::error::{ApiError, ApiResult};
use crate::turns::{end_all, filled, persist};
use std::sync::Arc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use turnwire_agent::AgentError;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Error, ErrorKind, Event, EventKind, FinishedReason, ReplyError, Seq};
use turnwire_log::store::{EventLines, Producer};
use turnwire_log::{PushOutcome, Session, Transaction};
use turnwire_wires::Wire;

/// The id of a reply whose stream gives it none.
const NO_ID: &str = "reply";
/// How many of the events that were left out are reported.
const REPORTED: usize = 100;
/// How much is read of the log at a time.
const CHUNK: usize = 256 * 1024;

/// A reply that is written.
pub(super) struct Writing {
    pub app: Arc<App>,
    pub session: Arc<Session>,
    pub wire: &'static Wire,
    pub producer: Producer,
    /// Whether it may take over from another holder.
    pub is_admin: bool,
    pub tolerance: Tolerance,
    pub given_id: Option<String>,
    /// The reply's id in the stream, and here.
    pub own: Option<(String, String)>,
    /// Something was handed to the log.
    pub tried: bool,
    /// Something is in the log.
    pub begun: bool,
    pub ended: Option<FinishedReason>,
    pub last: u64,
    pub count: usize,
    pub skipped: Vec<Skipped>,
    /// How many events were stored.
    pub stored: u64,
}

impl Writing {
    /// Stores what came, up to what does not fit.
    pub async fn take(&mut self, steps: Vec<Step>) -> Result<(), Stop> {
        let mut events = Vec::with_capacity(steps.len());
        let mut problem = None;
        for (line, event) in steps {
            let at = self.count;
            self.count += 1;
            match event.and_then(|event| self.adopt(event)) {
                Ok(event) => events.push((at, line, event)),
                Err(why) if self.tolerance == Tolerance::Tolerant => self.skip(at, line, "", &why),
                Err(why) => {
                    problem = Some(self.problem(at, line, "", &why));
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.commit(events).await?;
        }
        problem.map_or(Ok(()), |problem| Err(Stop::Problem(problem)))
    }

    /// The event as it is here: under the reply's id, with an id and a time of its own.
    fn adopt(&mut self, mut event: Event<'static>) -> Result<Event<'static>, Error> {
        let refused = match &event.kind {
            EventKind::Message(_) | EventKind::Supersede(_) | EventKind::Reset(_) => {
                "it is no part of a reply"
            }
            EventKind::UserConfirmResult(_) => "a person has to confirm; a producer cannot",
            _ => "",
        };
        if !refused.is_empty() {
            let message = format!("{}: {refused}", event.kind.type_name());
            return Err(Error::new(ErrorKind::NotAnEvent, message));
        }
        let is_own = event.kind.is_part_of_reply() && !event.is_from_sub_agent();
        if is_own && self.own.is_none() {
            let theirs = event.reply_id.to_string();
            // A provider that gives no id gets the same one every time.
            let no_id = theirs.is_empty() || theirs == NO_ID && !WIRES.contains(&self.wire.name);
            let stream = || if no_id { SystemStamp.id() } else { theirs.clone() };
            let ours = self.given_id.clone().unwrap_or_else(stream);
            self.own = Some((theirs, ours));
        }
        if let Some((theirs, ours)) = &self.own {
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
        Ok(filled(event, &self.session))
    }

    async fn commit(&mut self, mut events: Vec<(usize, u64, Event<'static>)>) -> Result<(), Stop> {
        let touched: Vec<String> = events
            .iter()
            .filter(|(_, _, event)| event.kind.is_part_of_reply())
            .map(|(_, _, event)| event.reply_id.to_string())
            .collect();
        let mut touched: Vec<&str> = touched.iter().map(String::as_str).collect();
        touched.dedup();
        let (session, closing) = (self.session.clone(), self.app.closing.clone());
        let mut lost = None;
        let mut outcome = Outcome::default();
        let done = persist(&session, &closing, &touched, |tx| {
            outcome = Outcome::default();
            if let Err(error) = self.may_go_on(tx) {
                lost = Some(error);
                return Err(AgentError::Stopped);
            }
            self.tried = true;
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
                self.publisher().note(tx);
            }
            Ok(())
        })
        .await;
        let receipt = match (done, lost) {
            (Ok(((), receipt)), _) => receipt,
            (Err(_), Some(error)) => return Err(Stop::Lost(error)),
            (Err(AgentError::Stopped), None) => return Err(Stop::BrokeOff(stops())),
            (Err(halt), None) => return Err(Stop::Lost(gone(&session, &halt))),
        };
        self.last = receipt.head;
        self.begun |= outcome.stored > 0;
        self.stored += outcome.stored;
        self.ended = outcome.ended.or(self.ended.take());
        self.app.ingest.counts.store(outcome.stored, outcome.repeated);
        for (at, line, word, why) in outcome.refused {
            match self.tolerance {
                Tolerance::Strict => {
                    return Err(Stop::Problem(self.problem(at, line, &word, &why)));
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
        self.own.as_ref().is_some_and(|(_, ours)| ours == reply)
    }

    /// Whether a reply can begin.
    pub fn may_begin(&self, tx: &Transaction<'_>) -> ApiResult<()> {
        self.publisher().check(tx)?;
        if let Some(open) = tx.replies().first() {
            return Err(busy(&format!("the reply {} is open", open.msg().id())));
        }
        let ours = self.own.as_ref().map(|(_, ours)| ours).or(self.given_id.as_ref());
        if let Some(ours) = ours.filter(|ours| tx.is_finished(ours)) {
            return Err(ApiError::conflict(format!("there is a message {ours} already"))
                .kind("duplicate")
                .hint("if it is the same stream, all of it is stored; otherwise give it another ?reply_id="));
        }
        Ok(())
    }

    /// Whether the reply is still this stream's.
    fn may_go_on(&self, tx: &Transaction<'_>) -> ApiResult<()> {
        // A try that failed may have come through after all.
        let is_there = self.tried && self.publisher().is_last(tx) && tx.is_produced();
        if !self.begun && !is_there {
            return self.may_begin(tx);
        }
        self.publisher().check(tx)?;
        let is_open = self.own.as_ref().is_none_or(|(_, ours)| tx.reply(ours).is_some());
        let is_new = self.own.as_ref().is_some_and(|(_, ours)| !tx.is_finished(ours));
        if is_open || is_new || self.ended.is_some() {
            return Ok(());
        }
        Err(ApiError::conflict("somebody else has ended the reply; the rest was not stored")
            .kind("ended"))
    }

    /// Ends what is open, where anything is.
    pub async fn close(
        &mut self,
        reason: &FinishedReason,
        error: Option<&ReplyError>,
    ) -> ApiResult<()> {
        if !self.tried {
            return Ok(());
        }
        let (session, closing) = (self.session.clone(), self.app.closing.clone());
        let close = |tx: &mut Transaction<'_>| {
            let is_ours = self.publisher().is_last(tx) && tx.is_produced();
            if is_ours { end_all(tx, &session, reason, error) } else { Ok(false) }
        };
        let closed = if closing.is_cancelled() {
            // Who stops does not wait for a disk that is full.
            let never = CancellationToken::new();
            let patience = self.app.config.limits.stop_timeout.0;
            let closed = timeout(patience, persist(&session, &never, &[], close));
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
            Err(AgentError::Stopped) => Err(stops()),
            Err(halt) => Err(gone(&session, &halt)),
        }
    }

    /// Whether somebody has asked to stop the reply, in what came since this was last looked at.
    pub async fn was_stopped(&self, seen: &mut u64, last: u64) -> ApiResult<bool> {
        while *seen < last {
            let from = Seq::new(*seen + 1).unwrap_or(Seq::FIRST);
            let rows = self.session.read_events(from, CHUNK).await?;
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
            *seen = read;
        }
        Ok(false)
    }

    pub fn piped(self) -> ApiResult<Piped> {
        let (Some((_, reply_id)), Some(finished_reason)) = (self.own, self.ended) else {
            return Err(ApiError::unprocessable("the stream holds no reply").kind("no_reply"));
        };
        let skipped = (self.tolerance == Tolerance::Tolerant).then_some(self.skipped);
        Ok(Piped { reply_id, last: self.last, finished_reason, skipped })
    }

    #[cold]
    fn skip(&mut self, at: usize, line: u64, word: &str, why: &Error) {
        self.app.ingest.counts.refuse(1);
        if self.skipped.len() < REPORTED {
            let message = format!("line {line}: {why}");
            self.skipped.push(Skipped { at, r#type: word.to_owned(), message });
        }
    }

    #[cold]
    fn problem(&self, at: usize, line: u64, word: &str, why: &Error) -> ApiError {
        let joint = if word.is_empty() { "" } else { ", " };
        let message = format!(
            "event {at} of the stream (line {line}{joint}{word}) is no event of the wire {} that fits: {why}",
            self.wire.name
        );
        let error = match why.kind() {
            ErrorKind::TooLong => ApiError::too_large(message),
            _ => ApiError::unprocessable(message).kind("refused"),
        };
        error.hint("what came before it is stored, and the reply was ended with an error; `tolerant=true` leaves out what does not fit")
    }
}

/// What came of some events.
#[derive(Default)]
struct Outcome {
    stored: u64,
    repeated: u64,
    refused: Vec<(usize, u64, String, Error)>,
    ended: Option<FinishedReason>,
}

pub(super) fn stops() -> ApiError {
    ApiError::unavailable("the server stops; the reply was ended as interrupted").retry_after(1)
}

/// Why the log took nothing more.
fn gone(session: &Session, halt: &AgentError) -> ApiError {
    if session.head_state().is_deleted {
        return turnwire_log::Error::NoSession.into();
    }
    ApiError::internal(halt)
}
