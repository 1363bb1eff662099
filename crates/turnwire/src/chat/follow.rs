//! A reply, followed to its end: shown as it comes, its questions answered, stopped by Ctrl-C.

use super::ask::{Answer, Asker};
use super::page::Style;
use super::screen::Quiet;
use super::view::View;
use crate::client::{Client, History, Notice, Patience, SessionInfo, Trouble, Watch, Watching};
use std::io;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use turnwire_core::event::UserInterrupt;
use turnwire_core::{Event, EventKind, FinishedReason, Role};

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);
/// How many letters of the first message are a session's title.
const TITLE: usize = 60;

/// How a reply went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Went {
    Completed,
    /// It failed, or ended before its end.
    Failed,
    /// A person stopped it.
    Stopped,
    /// A person went away, and it goes on.
    Left,
}

/// What keeps a conversation from going on.
#[derive(Debug)]
pub(crate) enum Over {
    /// Nobody can read what is written.
    Write(io::Error),
    /// What was to be said was not taken.
    NotSent(Trouble),
    Server(Trouble),
}

impl From<io::Error> for Over {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Trouble> for Over {
    fn from(trouble: Trouble) -> Self {
        Self::Server(trouble)
    }
}

/// A conversation in one session.
pub(crate) struct Talk {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) agent: String,
    epoch: String,
    seq: u64,
    /// Nothing was said in it yet, and it has no title.
    is_new: bool,
    pub(crate) view: View,
    pub(crate) asker: Asker,
    interrupts: Interrupts,
    /// How long a lost stream is waited for.
    patience: Patience,
}

/// What happens while a reply is followed.
enum Next {
    Notice(Result<Notice, Trouble>),
    Interrupt,
    Stopped(Result<(), Trouble>),
    Tick,
}

impl Talk {
    pub(crate) fn new(
        client: Client,
        session: &SessionInfo,
        view: View,
        asker: Asker,
        patience: Patience,
    ) -> io::Result<Self> {
        let mut talk = Self {
            client,
            session: String::new(),
            agent: String::new(),
            epoch: String::new(),
            seq: 0,
            is_new: false,
            view,
            asker,
            interrupts: Interrupts::listen()?,
            patience,
        };
        talk.enter(session);
        Ok(talk)
    }

    /// Goes to a session, behind all that is in it.
    pub(crate) fn enter(&mut self, session: &SessionInfo) {
        self.session.clone_from(&session.id);
        self.agent.clone_from(&session.agent);
        self.epoch.clone_from(&session.epoch);
        self.seq = session.last_seq;
        self.is_new = session.last_seq == 0 && session.title.is_none();
    }

    /// Goes behind what a history shows.
    pub(crate) fn go_behind(&mut self, history: &History) {
        if let Some((epoch, seq)) = history.last_event_id.rsplit_once('.') {
            epoch.clone_into(&mut self.epoch);
            self.seq = seq.parse().unwrap_or(self.seq);
        }
    }

    /// Sends a text, and follows what is answered.
    pub(crate) async fn say(&mut self, text: &str) -> Result<Went, Over> {
        if std::mem::take(&mut self.is_new) {
            // By which a list of sessions says what they were about. It works without.
            let title: String = super::one_line(text).chars().take(TITLE).collect();
            let _ = self.client.entitle(&self.session, title.trim()).await;
        }
        let sent = self.client.send(&self.session, text).await.map_err(Over::NotSent)?;
        self.view.typed(&sent.message_id);
        self.follow(sent.reply_id, Questions::None).await
    }

    /// Follows a reply to its end; `None`: the next one.
    pub(crate) async fn follow(
        &mut self,
        mut reply: Option<String>,
        mut questions: Questions,
    ) -> Result<Went, Over> {
        let mut quiet = self.quiet();
        let mut watch = self.watch();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut lost, mut is_stopped) = (false, false);
        let mut stopping: Option<JoinHandle<Result<(), Trouble>>> = None;
        loop {
            let next = tokio::select! {
                biased;
                () = self.interrupts.next() => Next::Interrupt,
                notice = watch.next() => Next::Notice(notice),
                Some(stopped) = async { Some(stopping.as_mut()?.await) } => {
                    stopping = None;
                    Next::Stopped(stopped.unwrap_or(Ok(())))
                }
                _ = tick.tick() => Next::Tick,
            };
            match next {
                Next::Tick if questions == Questions::Open && !lost => {
                    drop(quiet.take());
                    questions = self.questions().await?;
                    if questions == Questions::Left {
                        return Ok(Went::Left);
                    }
                    quiet = self.quiet();
                }
                Next::Tick => self.view.tick(lost)?,
                Next::Interrupt if is_stopped => return Ok(Went::Left),
                Next::Interrupt => {
                    is_stopped = true;
                    self.view.note(Style::YELLOW, "■ stopping; Ctrl-C again leaves")?;
                    stopping = Some(self.stop());
                }
                Next::Stopped(Ok(())) => {}
                Next::Stopped(Err(trouble)) => {
                    is_stopped = false;
                    self.view.note(Style::RED, &format!("✗ it cannot be stopped: {trouble}"))?;
                }
                Next::Notice(Ok(Notice::Lost(why))) => {
                    lost = true;
                    let note = format!("! connection lost: {why}; trying again");
                    self.view.note(Style::YELLOW, &note)?;
                }
                Next::Notice(Ok(Notice::Back)) => {
                    lost = false;
                    self.view.note(Style::GREEN, "✓ connected again")?;
                }
                Next::Notice(Err(trouble)) => return Err(trouble.into()),
                Next::Notice(Ok(Notice::Event(event, json))) => {
                    lost = false;
                    self.view.event(&event, &json)?;
                    (self.epoch, self.seq) = (watch.at().0.to_owned(), watch.at().1);
                    match &event.kind {
                        EventKind::ReplyStart(_) if !event.is_from_sub_agent() => {
                            reply.get_or_insert_with(|| event.reply_id.to_string());
                        }
                        EventKind::ReplyEnd(end) if reply.as_deref() == Some(&*event.reply_id) => {
                            return Ok(went(&end.finished_reason, end.error.is_some()));
                        }
                        EventKind::RequireUserConfirm(_)
                        | EventKind::RequireExternalExecution(_) => questions = Questions::Open,
                        EventKind::Reset(_) => {
                            let session = self.client.session(&self.session).await?;
                            if session.status == "idle" {
                                // What was followed is not in this session any more.
                                self.enter(&session);
                                self.view.note(Style::YELLOW, "! nothing runs in it now")?;
                                return Ok(Went::Failed);
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
    pub(crate) async fn follow_open(&mut self, history: &History) -> Result<Went, Over> {
        let open = history.messages.iter().rev().find(|msg| {
            msg.role() == Role::Assistant && msg.finished_at().is_none() && !msg.id().is_empty()
        });
        let reply = open.map(|msg| msg.id().to_owned());
        self.follow(reply, Questions::Open).await
    }

    /// Asks what waits for an answer now. What an event asked may be answered already, by somebody
    /// else or because it took too long; only the session knows. Where the server is away, they stay
    /// open until it is back.
    async fn questions(&mut self) -> Result<Questions, Over> {
        match self.ask_all().await {
            Err(Over::Server(Trouble::Lost(_))) => Ok(Questions::Open),
            done => done,
        }
    }

    async fn ask_all(&mut self) -> Result<Questions, Over> {
        let pending = self.client.session(&self.session).await?.pending;
        for waiting in pending {
            let confirm = waiting.confirm.iter().map(|call| (call, true));
            let external = waiting.external.iter().map(|call| (call, false));
            for (call, is_question) in confirm.chain(external) {
                let answer = if is_question {
                    self.asker.confirm(&mut self.view, call).await?
                } else {
                    self.asker.execute(&mut self.view, call).await?
                };
                let kind = match answer {
                    Answer::Say(kind) => kind,
                    Answer::Leave => return Ok(Questions::Left),
                    Answer::Stop => {
                        self.view.note(Style::YELLOW, "■ stopping")?;
                        self.client.answer(&self.session, interrupt()).await?;
                        return Ok(Questions::None);
                    }
                };
                let event = Event::new(waiting.reply_id.clone(), kind);
                match self.client.answer(&self.session, event).await {
                    Err(trouble) if trouble.is("already_answered") => {
                        self.view.note(Style::YELLOW, "! that was answered already, elsewhere")?;
                    }
                    done => done?,
                }
            }
        }
        Ok(Questions::None)
    }

    fn watch(&self) -> Watch {
        let raw = matches!(self.view, View::Json);
        let (session, epoch, seq) = (self.session.clone(), self.epoch.clone(), self.seq);
        let what = Watching { session, epoch, seq, raw };
        Watch::new(self.client.place().clone(), self.patience, what)
    }

    /// Asks the server to stop the reply. Nobody waits for the answer: the server may be away.
    fn stop(&self) -> JoinHandle<Result<(), Trouble>> {
        let (client, session) = (self.client.clone(), self.session.clone());
        tokio::spawn(async move { client.answer(&session, interrupt()).await })
    }

    /// Waits for a Ctrl-C that no line editor takes, as on a terminal that cannot do anything.
    pub(crate) async fn interrupted(&mut self) {
        self.interrupts.next().await;
    }

    /// Asks the server to stop what runs.
    pub(crate) async fn stop_now(&self) -> Result<(), Trouble> {
        self.client.answer(&self.session, interrupt()).await
    }

    /// At a terminal, what is typed while an answer comes is not shown in the middle of it.
    fn quiet(&self) -> Option<Quiet> {
        matches!(self.asker, Asker::Person(_)).then(Quiet::new)
    }
}

/// Whether something waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Questions {
    None,
    /// Something may wait: the session is to be asked.
    Open,
    /// The person went away.
    Left,
}

fn interrupt() -> Event<'static> {
    Event::new("", UserInterrupt {})
}

fn went(reason: &FinishedReason, has_error: bool) -> Went {
    match reason {
        _ if has_error => Went::Failed,
        FinishedReason::Completed | FinishedReason::Length | FinishedReason::ToolCalls => {
            Went::Completed
        }
        FinishedReason::Interrupted => Went::Stopped,
        FinishedReason::ExceedMaxIters
        | FinishedReason::Error
        | FinishedReason::Refusal
        | FinishedReason::ContentFilter
        | FinishedReason::Truncated
        | FinishedReason::Other(_) => Went::Failed,
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
