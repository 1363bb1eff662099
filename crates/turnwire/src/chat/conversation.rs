//! One conversation: sends messages, follows a reply to its end, answers its pending calls, and
//! stops it on Ctrl-C.

use super::approval::{Approver, Decision};
use super::attachments::Attachments;
use super::page::Style;
use super::resume_hint::ResumeHint;
use super::screen::TerminalMode;
use super::view::View;
use crate::client::{
    Client, ClientError, EventStream, History, RetryLimit, SessionInfo, StreamNotice, StreamTarget,
};
use std::io;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use turnwire_core::event::UserInterrupt;
use turnwire_core::{Event, EventKind, FinishedReason, Head, Role, event_kinds};

/// The interval of the spinner.
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);
/// How many characters of the first message become the session's title.
const MAX_TITLE_CHARS: usize = 60;

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyOutcome {
    Completed,
    /// It failed, or was truncated.
    Failed,
    /// The user stopped it.
    Stopped,
    /// The user left, and it continues.
    Detached,
}

/// Why a conversation cannot continue.
#[derive(Debug)]
pub(crate) enum ChatError {
    /// Output failed.
    Write(io::Error),
    /// A message was not accepted.
    NotSent(ClientError),
    Server(ClientError),
}

impl From<io::Error> for ChatError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<ClientError> for ChatError {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

/// A conversation in one session.
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) agent: String,
    epoch: String,
    cursor: Head,
    /// The session has no messages and no title yet.
    is_new: bool,
    pub(crate) view: View,
    pub(crate) approver: Approver,
    /// Files for the next message.
    pub(crate) attachments: Attachments,
    /// How to continue its sessions later.
    pub(crate) resume: ResumeHint,
    interrupts: Interrupts,
    /// How long to retry a lost stream.
    retry_limit: RetryLimit,
}

/// What can happen while a reply is followed.
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
        approver: Approver,
        retry_limit: RetryLimit,
    ) -> io::Result<Self> {
        let mut conversation = Self {
            client,
            session: String::new(),
            agent: String::new(),
            epoch: String::new(),
            cursor: Head::EMPTY,
            is_new: false,
            view,
            approver,
            attachments: Attachments::default(),
            resume: ResumeHint::none(),
            interrupts: Interrupts::listen()?,
            retry_limit,
        };
        conversation.enter_session(session);
        Ok(conversation)
    }

    /// Switches to a session, with the cursor at its head.
    pub(crate) fn enter_session(&mut self, session: &SessionInfo) {
        self.session.clone_from(&session.id);
        self.agent.clone_from(&session.agent);
        self.epoch.clone_from(&session.epoch);
        self.cursor = session.last_seq;
        self.is_new = session.last_seq.is_empty() && session.title.is_none();
    }

    /// Moves the cursor to the end of a history.
    pub(crate) fn set_cursor_after(&mut self, history: &History) {
        if let Some((epoch, seq)) = history.last_event_id.rsplit_once('.') {
            epoch.clone_into(&mut self.epoch);
            self.cursor = seq.parse().map_or(self.cursor, Head::new);
        }
    }

    /// Sends a message and follows its reply.
    pub(crate) async fn send_message(&mut self, text: &str) -> Result<ReplyOutcome, ChatError> {
        if std::mem::take(&mut self.is_new) {
            // The title is for lists of sessions; a failure does not matter.
            let title: String = super::one_line(text).chars().take(MAX_TITLE_CHARS).collect();
            let _ = self.client.set_title(&self.session, title.trim()).await;
        }
        let content = self.attachments.content(text);
        let sent =
            self.client.send_message(&self.session, &content).await.map_err(ChatError::NotSent)?;
        self.attachments.clear();
        self.view.hide_typed_message(&sent.message_id);
        self.follow_reply(sent.reply_id, PendingCheck::None).await
    }

    /// Follows a reply to its end; `None`: the next reply.
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
                    self.view.show_note(Style::YELLOW, "■ stopping; press Ctrl-C again to quit")?;
                    stopping = Some(self.spawn_stop());
                }
                LoopEvent::Stopped(Ok(())) => {}
                LoopEvent::Stopped(Err(error)) => {
                    is_stopped = false;
                    self.view
                        .show_note(Style::RED, &format!("✗ cannot stop the reply: {error}"))?;
                }
                LoopEvent::Notice(Ok(StreamNotice::Disconnected(why))) => {
                    lost = true;
                    let note = format!("! connection lost: {why}; reconnecting");
                    self.view.show_note(Style::YELLOW, &note)?;
                }
                LoopEvent::Notice(Ok(StreamNotice::Reconnected)) => {
                    lost = false;
                    self.view.show_note(Style::GREEN, "✓ reconnected")?;
                }
                LoopEvent::Notice(Err(error)) => return Err(error.into()),
                LoopEvent::Notice(Ok(StreamNotice::Event(event, json))) => {
                    lost = false;
                    self.view.show_event(&event, &json)?;
                    let (epoch, cursor) = watch.position();
                    (self.epoch, self.cursor) = (epoch.to_owned(), cursor);
                    match &event.kind {
                        EventKind::ReplyStart(_) if !event.is_from_sub_agent() => {
                            reply.get_or_insert_with(|| event.reply_id.to_string());
                        }
                        EventKind::ReplyEnd(end) if reply.as_deref() == Some(&*event.reply_id) => {
                            return Ok(reply_outcome(&end.finished_reason, end.error.is_some()));
                        }
                        event_kinds!(RequireUserConfirm RequireExternalExecution) => {
                            questions = PendingCheck::Open;
                        }
                        EventKind::Reset(_) => {
                            let session = self.client.get_session(&self.session).await?;
                            if session.status == "idle" {
                                // The followed reply is no longer in this session.
                                self.enter_session(&session);
                                self.view.show_note(
                                    Style::YELLOW,
                                    "! the session was reset; no reply is running",
                                )?;
                                return Ok(ReplyOutcome::Failed);
                            }
                            reply = None;
                        }
                        event_kinds!(
                            UserConfirmResult ExternalExecutionResult Custom Message Supersede
                            Unknown reply model_call content tool notice
                        ) => {}
                    }
                }
            }
        }
    }

    /// Follows the reply that is already open, and answers its pending calls.
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

    /// Answers the calls that are pending now. A call may already be answered by another client or
    /// have expired; only the session knows. If the server is unreachable, the check is repeated
    /// later.
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
                    Err(error) if error.has_type("already_answered") => {
                        self.view
                            .show_note(Style::YELLOW, "! another client has already answered")?;
                    }
                    done => done?,
                }
            }
        }
        Ok(PendingCheck::None)
    }

    fn open_stream(&self) -> EventStream {
        let raw = matches!(self.view, View::Json);
        let (session, epoch, cursor) = (self.session.clone(), self.epoch.clone(), self.cursor);
        let what = StreamTarget { session, epoch, cursor, raw };
        EventStream::new(self.client.endpoint().clone(), self.retry_limit, what)
    }

    /// Asks the server to stop the reply, in a task: the server may be unreachable.
    fn spawn_stop(&self) -> JoinHandle<Result<(), ClientError>> {
        let (client, session) = (self.client.clone(), self.session.clone());
        tokio::spawn(async move { client.send_event(&session, interrupt_event()).await })
    }

    /// Waits for a Ctrl-C that the line editor does not handle, as on a dumb terminal.
    pub(crate) async fn wait_for_interrupt(&mut self) {
        self.interrupts.next().await;
    }

    /// Asks the server to stop the running reply.
    pub(crate) async fn stop_reply(&self) -> Result<(), ClientError> {
        self.client.send_event(&self.session, interrupt_event()).await
    }

    /// Turns the echo off at a terminal, so that typed characters do not appear inside the reply.
    fn disable_echo(&self) -> Option<TerminalMode> {
        matches!(self.approver, Approver::Interactive(_)).then(TerminalMode::echo_off)
    }
}

/// Whether the session has pending calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingCheck {
    None,
    /// There may be some: ask the session.
    Open,
    /// The user left.
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

/// Ctrl-C while no line is edited. None is missed between two polls.
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
