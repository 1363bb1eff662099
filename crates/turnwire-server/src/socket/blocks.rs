//! The blocks protocol's commands, and their answers.
//!
//! | command | answer |
//! |---|---|
//! | (the socket opens) | `connected` |
//! | `{"type":"auth","token"}` | `auth_ok` |
//! | `{"type":"subscribe","session_id","last_event_id"?}` | `subscribed`, then frames |
//! | `{"type":"chat","session_id"?,"message","content_urls"?,"display_mode"?}` | `accepted` |
//! | `{"type":"approval","session_id"?,"approval_key","decisions"}` | `accepted` |
//! | `{"type":"stop","session_id"}` | `accepted` |
//! | `{"type":"ping"}` | `pong` |

mod files;

use super::desk::{Desk, Flow};
use crate::auth::Action;
use crate::error::{ApiError, ApiResult};
use crate::protocols::blocks::{Question, question};
use crate::protocols::make;
use crate::routes::new_key;
use crate::stream::{Merge, Place, Start, Watcher, place};
use crate::turns::answers;
use crate::turns::send::{Say, is_free, say};
use files::{Brought, Place as FilesPlace};
use std::collections::HashSet;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Json};
use turnwire_log::Session;
use turnwire_log::store::SessionStatus;
use turnwire_wires::blocks::{ServerAnswer, Approval, Chat, Command, IncomingCommand, AnswerFrame, SubscriptionStatus};

/// The wire's name.
pub(super) const WIRE: &str = "blocks";

const COMMANDS: &str = "a command is a JSON object with a `type`; commands are auth, subscribe, chat, \
                        approval, stop and ping";

/// The longest `id` that is repeated, as JSON.
const LONGEST_ID: usize = 256;

/// What is said first.
pub(super) fn greeting() -> String {
    AnswerFrame { answer: ServerAnswer::Connected, id: None }.to_json()
}

/// An answer, and what is watched from then on.
struct Done {
    answer: ServerAnswer,
    watch: Option<Watcher>,
}

impl From<ServerAnswer> for Done {
    fn from(answer: ServerAnswer) -> Self {
        Self { answer, watch: None }
    }
}

impl Desk {
    /// Does what a text message asks for, and answers.
    pub(super) async fn blocks(&mut self, text: &str) -> Flow {
        let IncomingCommand { id, command_type: word, command } = IncomingCommand::from_json(text);
        let id = repeated(id);
        let is_auth = matches!(command, Ok(Command::Auth { .. }));
        let done = match command {
            Ok(command) => self.done(command).await,
            Err(error) => Err(ApiError::bad_request(error.message().to_owned()).hint(COMMANDS)),
        };
        match done {
            Ok(Done { answer, watch }) => {
                // The answer comes before the first frame.
                self.write(AnswerFrame { answer, id }.to_json()).await?;
                if let Some(watcher) = watch {
                    self.subscriptions.begin(watcher);
                }
                Flow::Continue(())
            }
            Err(error) => {
                self.refuse_blocks(word, id, &error).await?;
                if is_auth { self.after_bad_token() } else { Flow::Continue(()) }
            }
        }
    }

    async fn done(&mut self, command: Command) -> ApiResult<Done> {
        match command {
            Command::Ping => Ok(ServerAnswer::Pong.into()),
            Command::Auth { token } => {
                self.take_token(&token).await?;
                Ok(ServerAnswer::AuthOk.into())
            }
            Command::Subscribe { session_id, last_event_id } => {
                self.watch(&session_id, last_event_id.as_deref()).await
            }
            Command::Chat(chat) => self.chat_blocks(chat).await,
            Command::Approval(approval) => self.approve(&approval).await,
            Command::Stop { session_id } => {
                let caller = self.known()?;
                caller.check(Action::Chat)?;
                let session = self.open(&caller, &session_id).await?;
                answers::stop(&self.app, &session, &caller).await?;
                Ok(ServerAnswer::Accepted { session_id, message_id: None }.into())
            }
        }
    }

    async fn watch(&mut self, id: &str, token: Option<&str>) -> ApiResult<Done> {
        let caller = self.known()?;
        caller.check(Action::Read)?;
        let session = self.open(&caller, id).await?;
        let start = match token {
            None => Start::Beginning,
            Some(token) => place(&session, session.first_seq().await?, token).into(),
        };
        let watcher = self.subscriptions.prepare(&session, start, Merge::Deltas).await?;
        let status = match session.head_state().status {
            SessionStatus::Idle => SubscriptionStatus::Completed,
            SessionStatus::Running | SessionStatus::Waiting => SubscriptionStatus::Running,
        };
        let answer = ServerAnswer::Subscribed { session_id: id.to_owned(), status };
        Ok(Done { answer, watch: Some(watcher) })
    }

    /// Says something. Whoever does so is shown what comes of it, from its own words on.
    async fn chat_blocks(&mut self, chat: Chat) -> ApiResult<Done> {
        let caller = self.known()?;
        caller.check(Action::Chat)?;
        let key = new_key(&caller, chat.session_id.clone())?;
        let is_watched = self.subscriptions.watches(&key.id);
        if !is_watched && caller.can(Action::Read) {
            self.subscriptions.has_room()?;
        }
        let there = self.app.log.open_session(&key).await?;
        if let Some(session) = &there {
            is_free(&self.app, session, &chat.to_msg()).await.map_err(in_our_words)?;
        }
        // What cannot be said makes no session either.
        let reply_id = SystemStamp.id();
        let default = &self.app.config.default_agent;
        let agent = there.as_ref().map_or(default.as_str(), |session| session.agent());
        let place = FilesPlace { key: &key, agent, reply_id: &reply_id };
        let Brought { msg, events, shown } = self.with_files(&chat, &place).await?;
        let said = async {
            let session = match &there {
                Some(session) => session.clone(),
                None => make(&self.app, key.clone(), default).await?,
            };
            let (messages, reply_id) = (vec![msg], Some(reply_id.clone()));
            let said = Say { messages, events, reply_id, ..Say::default() };
            let sent = say(&self.app, &session, said).await.map_err(in_our_words)?;
            Ok((session, sent))
        };
        let (session, sent) = match said.await {
            Ok(said) => said,
            Err(error) => {
                self.show_failed(shown, &place, &error).await;
                return Err(error);
            }
        };
        let accepted = sent.accepted();
        let watch = if is_watched || !caller.can(Action::Read) {
            None
        } else {
            let start = before(&session, &accepted.last_event_id).await?;
            Some(self.subscriptions.prepare(&session, start, Merge::Deltas).await?)
        };
        let message_id = accepted.reply_id.clone();
        let answer = ServerAnswer::Accepted { session_id: session.id().to_owned(), message_id };
        Ok(Done { answer, watch })
    }

    /// Answers a question.
    async fn approve(&mut self, approval: &Approval) -> ApiResult<Done> {
        let caller = self.known()?;
        caller.check(Action::Confirm)?;
        let session = self.open(&caller, &approval.session_id).await?;
        let question = question(&session, approval.approval_key.count).await?;
        let answer = decided(approval, &question)?;
        let event = Event::new(question.reply_id, answer);
        answers::take(&self.app, &session, &caller, &[event]).await?;
        let session_id = approval.session_id.clone();
        Ok(ServerAnswer::Accepted { session_id, message_id: None }.into())
    }

    /// Says what cannot be done.
    pub(super) async fn refuse_blocks(
        &self,
        word: Option<String>,
        id: Option<Json>,
        error: &ApiError,
    ) -> Flow {
        if let Some(detail) = error.detail_text() {
            tracing::warn!(command = word, detail, "a command on a socket failed");
        }
        let answer = ServerAnswer::Error {
            code: error.name().to_owned(),
            message: error.message().to_owned(),
            hint: Some(error.hint_text().to_owned()).filter(|hint| !hint.is_empty()),
            command: word.map(|word| word.chars().take(64).collect()),
            session_id: None,
        };
        self.write(AnswerFrame { answer, id }.to_json()).await
    }
}

/// What a client is told of a session that it cannot watch any longer.
pub(super) fn ended(session: &str, error: &ApiError) -> String {
    let answer = ServerAnswer::Error {
        code: error.name().to_owned(),
        message: error.message().to_owned(),
        hint: None,
        command: Some("subscribe".to_owned()),
        session_id: Some(session.to_owned()),
    };
    AnswerFrame { answer, id: None }.to_json()
}

/// Says what to do in the words of this protocol.
fn in_our_words(error: ApiError) -> ApiError {
    match error.name() {
        "busy" => error.hint("answer it, stop it, or wait for its message_stop"),
        _ => error,
    }
}

/// The place before a message; before the turn that goes on there, where an agent elsewhere has one.
async fn before(session: &Session, token: &str) -> ApiResult<Start> {
    let seq = match place(session, session.first_seq().await?, token) {
        Place::After(seq) => seq,
        Place::Nowhere(_) => session.head_state().head,
    };
    let open = session.open_from().map_or(seq, |open| open.get().min(seq));
    Ok(Start::After(open.saturating_sub(1)))
}

/// What a person decided about the calls of a question. Those that are not named are the ones in
/// the same places of the question.
fn decided(
    approval: &Approval,
    question: &Question,
) -> ApiResult<turnwire_core::event::UserConfirmResult> {
    let mut seen = HashSet::new();
    for decision in &approval.decisions {
        let Some(id) = &decision.tool_use_id else { continue };
        if !question.calls.iter().any(|call| call.id == *id) {
            return Err(ApiError::unprocessable(format!(
                "the question {} is not about a call {id:?}; nothing was stored",
                approval.approval_key
            ))
            .kind("unknown_call")
            .hint("`tool_use_id` is one of those in its `action_requests`"));
        }
        if !seen.insert(id) {
            return Err(ApiError::unprocessable(format!("the call {id} is answered twice"))
                .kind("unknown_call"));
        }
    }
    approval.to_event(&question.calls).map_err(|error| {
        ApiError::unprocessable(error.message().to_owned())
            .kind("unknown_call")
            .hint("one decision for each of the question's `action_requests`, with its tool_use_id")
    })
}

/// An `id` as it is repeated: a text or a number.
fn repeated(id: Option<Json>) -> Option<Json> {
    id.filter(|id| {
        let is_plain = id
            .text()
            .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit());
        is_plain && id.text().len() <= LONGEST_ID
    })
}
