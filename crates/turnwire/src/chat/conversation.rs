//! A reply, followed to its end: shown as it comes, its questions answered, stopped by Ctrl-C.

use super::approval::{Approver, Decision};
use super::page::Style;
use super::screen::EchoOff;
use super::view::View;
use crate::client::{
    Client, ClientError, EventStream, History, RetryLimit, SessionInfo, StreamNotice, StreamTarget,
};
use std::io;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use turnwire_core::event::UserInterrupt;
use turnwire_core::{Event, EventKind, FinishedReason, Role};

/// How often the spinner turns.
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);
/// How many letters of the first message are a session's title.
const MAX_TITLE_CHARS: usize = 60;

/// How a reply went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyOutcome {
    Completed,
    /// It failed, or ended before its end.
    Failed,
    /// A person stopped it.
    Stopped,
    /// A person went away, and it goes on.
    Detached,
}

/// What keeps a conversation from going on.
#[derive(Debug)]
pub(crate) enum ChatError {
    /// Nobody can read what is written.
    Write(io::Error),
    /// What was to be said was not taken.
    NotSent(ClientError),
    Server(ClientError),
}

impl From<io::Error> for ChatError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<ClientError> for ChatError {
    fn from(trouble: ClientError) -> Self {
        Self::Server(trouble)
    }
}

/// A conversation in one session.
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) agent: String,
    epoch: String,
    seq: u64,
    /// Nothing was said in it yet, and it has no title.
    is_new: bool,
    pub(crate) view: View,
    pub(crate) approver: Approver,
    interrupts: Interrupts,
    /// How long a lost stream is waited for.
    retry_limit: RetryLimit,
}

/// What happens while a reply is followed.
enum LoopEvent {
    Notice(Result<StreamNotice, ClientError>),
    Interrupt,
    Stopped(Result<(), ClientError>),
    Tick,
}

impl Conversation {
    pub(crate) fn new(
        client: Client,
        session: &SessionInfo,
        view: View,
        asker: Approver,
        patience: RetryLimit,
    ) -> io::Result<Self> {
        let mut talk = Self {
            client,
            session: String::new(),
            agent: String::new(),
            epoch: String::new(),
            seq: 0,
            is_new: false,
            view,
            approver: asker,
            interrupts: Interrupts::listen()?,
            retry_limit: patience,
        };
        talk.enter_session(session);
        Ok(talk)
    }

    /// Goes to a session, behind all that is in it.
    pub(crate) fn enter_session(&mut self, session: &SessionInfo) {
        self.session.clone_from(&session.id);
        self.agent.clone_from(&session.agent);
        self.epoch.clone_from(&session.epoch);
        self.seq = session.last_seq;
        self.is_new = session.last_seq == 0 && session.title.is_none();
    }

    /// Goes behind what a history shows.
    pub(crate) fn set_cursor_after(&mut self, history: &History) {
        if let Some((epoch, seq)) = history.last_event_id.rsplit_once('.') {
            epoch.clone_into(&mut self.epoch);
            self.seq = seq.parse().unwrap_or(self.seq);
        }
    }

    /// Sends a text, and follows what is answered.
    pub(crate) async fn send_message(&mut self, text: &str) -> Result<ReplyOutcome, ChatError> {
        if std::mem::take(&mut self.is_new) {
            // By which a list of sessions says what they were about. It works without.
            let title: String = super::one_line(text).chars().take(MAX_TITLE_CHARS).collect();
            let _ = self.client.set_title(&self.session, title.trim()).await;
        }
        let sent =
            self.client.send_message(&self.session, text).await.map_err(ChatError::NotSent)?;
        self.view.hide_typed_message(&sent.message_id);
        self.follow_reply(sent.reply_id, PendingCheck::None).await
    }

    /// Follows a reply to its end; `None`: the next one.
    pub(crate) async fn follow_reply(
        &mut self,
        mut reply: Option<String>,
        mut questions: PendingCheck,
    ) -> Result<ReplyOutcome, ChatError> {
        let mut quiet = self.disable_echo();
        let mut watch = self.open_stream();
        let mut tick = interval(SPINNER_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut lost, mut is_stopped) = (false, false);
        let mut stopping: Option<JoinHandle<Result<(), ClientError>>> = None;
        loop {
            let next = tokio::select! {
                biased;
                () = self.interrupts.next() => LoopEvent::Interrupt,
                notice = watch.next() => LoopEvent::Notice(notice),
                Some(stopped) = async { Some(stopping.as_mut()?.await) } => {
                    stopping = None;
                    LoopEvent::Stopped(stopped.unwrap_or(Ok(())))
                }
                _ = tick.tick() => LoopEvent::Tick,
            };
            match next {
                LoopEvent::Tick if questions == PendingCheck::Open && !lost => {
                    drop(quiet.take());
                    questions = self.answer_pending_calls().await?;
                    if questions == PendingCheck::Detached {
                        return Ok(ReplyOutcome::Detached);
                    }
                    quiet = self.disable_echo();
                }
                LoopEvent::Tick => self.view.update_spinner(lost)?,
                LoopEvent::Interrupt if is_stopped => return Ok(ReplyOutcome::Detached),
                LoopEvent::Interrupt => {
                    is_stopped = true;
                    self.view.show_note(Style::YELLOW, "■ stopping; Ctrl-C again leaves")?;
                    stopping = Some(self.spawn_stop());
                }
                LoopEvent::Stopped(Ok(())) => {}
                LoopEvent::Stopped(Err(trouble)) => {
                    is_stopped = false;
                    self.view
                        .show_note(Style::RED, &format!("✗ it cannot be stopped: {trouble}"))?;
                }
                LoopEvent::Notice(Ok(StreamNotice::Disconnected(why))) => {
                    lost = true;
                    let note = format!("! connection lost: {why}; trying again");
                    self.view.show_note(Style::YELLOW, &note)?;
                }
                LoopEvent::Notice(Ok(StreamNotice::Reconnected)) => {
                    lost = false;
                    self.view.show_note(Style::GREEN, "✓ connected again")?;
                }
                LoopEvent::Notice(Err(trouble)) => return Err(trouble.into()),
                LoopEvent::Notice(Ok(StreamNotice::Event(event, json))) => {
                    lost = false;
                    self.view.show_event(&event, &json)?;
                    (self.epoch, self.seq) = (watch.position().0.to_owned(), watch.position().1);
                    match &event.kind {
                        EventKind::ReplyStart(_) if !event.is_from_sub_agent() => {
                            reply.get_or_insert_with(|| event.reply_id.to_string());
                        }
                        EventKind::ReplyEnd(end) if reply.as_deref() == Some(&*event.reply_id) => {
                            return Ok(reply_outcome(&end.finished_reason, end.error.is_some()));
                        }
                        EventKind::RequireUserConfirm(_)
                        | EventKind::RequireExternalExecution(_) => questions = PendingCheck::Open,
                        EventKind::Reset(_) => {
                            let session = self.client.get_session(&self.session).await?;
                            if session.status == "idle" {
                                // What was followed is not in this session any more.
                                self.enter_session(&session);
                                self.view.show_note(Style::YELLOW, "! nothing runs in it now")?;
                                return Ok(ReplyOutcome::Failed);
                            }
                            reply = None;
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Follows what is open in the session already, after its questions are answered.
    pub(crate) async fn follow_open_reply(
        &mut self,
        history: &History,
    ) -> Result<ReplyOutcome, ChatError> {
        let open = history.messages.iter().rev().find(|msg| {
            msg.role() == Role::Assistant && msg.finished_at().is_none() && !msg.id().is_empty()
        });
        let reply = open.map(|msg| msg.id().to_owned());
        self.follow_reply(reply, PendingCheck::Open).await
    }

    /// Asks what waits for an answer now. What an event asked may be answered already, by somebody
    /// else or because it took too long; only the session knows. Where the server is away, they stay
    /// open until it is back.
    async fn answer_pending_calls(&mut self) -> Result<PendingCheck, ChatError> {
        match self.try_answer_pending_calls().await {
            Err(ChatError::Server(ClientError::Transient(_))) => Ok(PendingCheck::Open),
            done => done,
        }
    }

    async fn try_answer_pending_calls(&mut self) -> Result<PendingCheck, ChatError> {
        let pending = self.client.get_session(&self.session).await?.pending;
        for waiting in pending {
            let confirm = waiting.confirm.iter().map(|call| (call, true));
            let external = waiting.external.iter().map(|call| (call, false));
            for (call, is_question) in confirm.chain(external) {
                let answer = if is_question {
                    self.approver.ask_confirmation(&mut self.view, call).await?
                } else {
                    self.approver.ask_tool_result(&mut self.view, call).await?
                };
                let kind = match answer {
                    Decision::Respond(kind) => kind,
                    Decision::Leave => return Ok(PendingCheck::Detached),
                    Decision::Stop => {
                        self.view.show_note(Style::YELLOW, "■ stopping")?;
                        self.client.send_event(&self.session, interrupt_event()).await?;
                        return Ok(PendingCheck::None);
                    }
                };
                let event = Event::new(waiting.reply_id.clone(), kind);
                match self.client.send_event(&self.session, event).await {
                    Err(trouble) if trouble.has_type("already_answered") => {
                        self.view
                            .show_note(Style::YELLOW, "! that was answered already, elsewhere")?;
                    }
                    done => done?,
                }
            }
        }
        Ok(PendingCheck::None)
    }

    fn open_stream(&self) -> EventStream {
        let raw = matches!(self.view, View::Json);
        let (session, epoch, seq) = (self.session.clone(), self.epoch.clone(), self.seq);
        let what = StreamTarget { session, epoch, seq, raw };
        EventStream::new(self.client.endpoint().clone(), self.retry_limit, what)
    }

    /// Asks the server to stop the reply. Nobody waits for the answer: the server may be away.
    fn spawn_stop(&self) -> JoinHandle<Result<(), ClientError>> {
        let (client, session) = (self.client.clone(), self.session.clone());
        tokio::spawn(async move { client.send_event(&session, interrupt_event()).await })
    }

    /// Waits for a Ctrl-C that no line editor takes, as on a terminal that cannot do anything.
    pub(crate) async fn wait_for_interrupt(&mut self) {
        self.interrupts.next().await;
    }

    /// Asks the server to stop what runs.
    pub(crate) async fn stop_reply(&self) -> Result<(), ClientError> {
        self.client.send_event(&self.session, interrupt_event()).await
    }

    /// At a terminal, what is typed while an answer comes is not shown in the middle of it.
    fn disable_echo(&self) -> Option<EchoOff> {
        matches!(self.approver, Approver::Interactive(_)).then(EchoOff::new)
    }
}

/// Whether something waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingCheck {
    None,
    /// Something may wait: the session is to be asked.
    Open,
    /// The person went away.
    Detached,
}

fn interrupt_event() -> Event<'static> {
    Event::new("", UserInterrupt {})
}

fn reply_outcome(reason: &FinishedReason, has_error: bool) -> ReplyOutcome {
    match reason {
        _ if has_error => ReplyOutcome::Failed,
        FinishedReason::Completed | FinishedReason::Length | FinishedReason::ToolCalls => {
            ReplyOutcome::Completed
        }
        FinishedReason::Interrupted => ReplyOutcome::Stopped,
        FinishedReason::ExceedMaxIters
        | FinishedReason::Error
        | FinishedReason::Refusal
        | FinishedReason::ContentFilter
        | FinishedReason::Truncated
        | FinishedReason::Other(_) => ReplyOutcome::Failed,
    }
}

/// Ctrl-C, while no line is being edited. None is missed between two looks.
#[cfg(unix)]
struct Interrupts(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Interrupts {
    fn listen() -> io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map(Self)
    }

    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
