//! The commands of the blocks protocol.
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

use super::connection::{Flow, SocketConnection};
use crate::auth::Action;
use crate::error::{ApiError, ApiResult};
use crate::protocols::blocks::{Question, find_question};
use crate::protocols::create_session;
use crate::routes::new_session_key;
use crate::stream::{Merge, ResumePoint, SessionSubscriber, StartPosition, resolve_token};
use crate::turns::client_events;
use crate::turns::send::{SendRequest, check_not_busy, send_all};
use files::{FileTurn, MessageWithFiles};
use std::collections::HashSet;
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Json, Seq};
use turnwire_log::Session;
use turnwire_log::store::SessionStatus;
use turnwire_wires::blocks::{
    AnswerFrame, Approval, Chat, Command, IncomingCommand, ServerAnswer, SubscriptionStatus,
};

/// The wire's name.
pub(super) const WIRE: &str = "blocks";

const COMMANDS: &str = "a command is a JSON object with a `type`; commands are auth, subscribe, chat, \
                        approval, stop and ping";

/// The longest `id` that is echoed, as JSON.
const LONGEST_ID: usize = 256;

/// The first message of the server.
pub(super) fn greeting() -> String {
    AnswerFrame { answer: ServerAnswer::Connected, id: None }.to_json()
}

/// The answer to a command, and a subscription that starts after it.
struct CommandResult {
    answer: ServerAnswer,
    subscriber: Option<SessionSubscriber>,
}

impl From<ServerAnswer> for CommandResult {
    fn from(answer: ServerAnswer) -> Self {
        Self { answer, subscriber: None }
    }
}

impl SocketConnection {
    /// Runs the command of a text message, and answers it.
    pub(super) async fn handle_blocks_command(&mut self, text: &str) -> Flow {
        let IncomingCommand { id, command_type: word, command } = IncomingCommand::from_json(text);
        let id = echoed_id(id);
        let is_auth = matches!(command, Ok(Command::Auth { .. }));
        let done = match command {
            Ok(command) => self.run_blocks_command(command).await,
            Err(error) => Err(ApiError::bad_request(error.message().to_owned()).hint(COMMANDS)),
        };
        match done {
            Ok(CommandResult { answer, subscriber: watch }) => {
                // The answer comes before the first frame.
                self.send_text(AnswerFrame { answer, id }.to_json()).await?;
                if let Some(subscriber) = watch {
                    self.subscriptions.start(subscriber);
                }
                Flow::Continue(())
            }
            Err(error) => {
                self.send_blocks_error(word, id, &error).await?;
                if is_auth { self.after_bad_token() } else { Flow::Continue(()) }
            }
        }
    }

    async fn run_blocks_command(&mut self, command: Command) -> ApiResult<CommandResult> {
        match command {
            Command::Ping => Ok(ServerAnswer::Pong.into()),
            Command::Auth { token } => {
                self.authenticate(&token).await?;
                Ok(ServerAnswer::AuthOk.into())
            }
            Command::Subscribe { session_id, last_event_id } => {
                self.subscribe_blocks(&session_id, last_event_id.as_deref()).await
            }
            Command::Chat(chat) => self.chat_blocks(chat).await,
            Command::Approval(approval) => self.approve(&approval).await,
            Command::Stop { session_id } => {
                let caller = self.current_caller()?;
                caller.require(Action::Chat)?;
                let session = self.open_session(&caller, &session_id).await?;
                client_events::stop_reply(&self.app, &session, &caller).await?;
                Ok(ServerAnswer::Accepted { session_id, message_id: None }.into())
            }
        }
    }

    async fn subscribe_blocks(
        &mut self,
        id: &str,
        token: Option<&str>,
    ) -> ApiResult<CommandResult> {
        let caller = self.current_caller()?;
        caller.require(Action::Read)?;
        let session = self.open_session(&caller, id).await?;
        let start = match token {
            None => StartPosition::Beginning,
            Some(token) => resolve_token(&session, session.first_seq().await?, token).into(),
        };
        let subscriber = self.subscriptions.prepare(&session, start, Merge::Deltas).await?;
        let status = match session.head_state().status {
            SessionStatus::Idle => SubscriptionStatus::Completed,
            SessionStatus::Running | SessionStatus::Waiting => SubscriptionStatus::Running,
        };
        let answer = ServerAnswer::Subscribed { session_id: id.to_owned(), status };
        Ok(CommandResult { answer, subscriber: Some(subscriber) })
    }

    /// Sends a message. The client is subscribed from that message on.
    async fn chat_blocks(&mut self, chat: Chat) -> ApiResult<CommandResult> {
        let caller = self.current_caller()?;
        caller.require(Action::Chat)?;
        let key = new_session_key(&caller, chat.session_id.clone())?;
        let is_watched = self.subscriptions.is_subscribed(&key.id);
        if !is_watched && caller.can(Action::Read) {
            self.subscriptions.check_room()?;
        }
        let there = self.app.log.open_session(&key).await?;
        if let Some(session) = &there {
            check_not_busy(&self.app, session, &chat.to_msg()).await.map_err(with_blocks_hint)?;
        }
        // A request that fails must not create a session.
        let reply_id = SystemStamp.id();
        let default = self.app.config.default_agent();
        let agent = there.as_ref().map_or(default, |session| session.agent());
        let place = FileTurn { key: &key, agent, reply_id: &reply_id };
        let MessageWithFiles { msg, events, shown } = self.fetch_files(&chat, &place).await?;
        let request = async {
            let session = match &there {
                Some(session) => session.clone(),
                None => create_session(&self.app, key.clone(), default).await?,
            };
            let (messages, reply_id) = (vec![msg], Some(reply_id.clone()));
            let request = SendRequest { messages, events, reply_id, ..SendRequest::default() };
            let sent = send_all(&self.app, &session, request).await.map_err(with_blocks_hint)?;
            Ok((session, sent))
        };
        let (session, sent) = match request.await {
            Ok(request) => request,
            Err(error) => {
                self.show_failed(shown, &place, &error).await;
                return Err(error);
            }
        };
        let accepted = sent.accepted();
        let watch = if is_watched || !caller.can(Action::Read) {
            None
        } else {
            let start = position_before(&session, &accepted.last_event_id).await?;
            Some(self.subscriptions.prepare(&session, start, Merge::Deltas).await?)
        };
        let message_id = accepted.reply_id.clone();
        let answer = ServerAnswer::Accepted { session_id: session.id().to_owned(), message_id };
        Ok(CommandResult { answer, subscriber: watch })
    }

    /// Answers pending approvals.
    async fn approve(&mut self, approval: &Approval) -> ApiResult<CommandResult> {
        let caller = self.current_caller()?;
        caller.require(Action::Confirm)?;
        let session = self.open_session(&caller, &approval.session_id).await?;
        let question = find_question(&session, Seq::new(approval.approval_key.count)).await?;
        let answer = to_confirmation(approval, &question)?;
        let event = Event::new(question.reply_id, answer);
        client_events::accept_events(&self.app, &session, &caller, &[event]).await?;
        let session_id = approval.session_id.clone();
        Ok(ServerAnswer::Accepted { session_id, message_id: None }.into())
    }

    /// Answers with an error.
    pub(super) async fn send_blocks_error(
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
        self.send_text(AnswerFrame { answer, id }.to_json()).await
    }
}

/// Tells the client that a subscription has ended.
pub(super) fn subscription_ended(session: &str, error: &ApiError) -> String {
    let answer = ServerAnswer::Error {
        code: error.name().to_owned(),
        message: error.message().to_owned(),
        hint: None,
        command: Some("subscribe".to_owned()),
        session_id: Some(session.to_owned()),
    };
    AnswerFrame { answer, id: None }.to_json()
}

/// Replaces hints with those of this protocol.
fn with_blocks_hint(error: ApiError) -> ApiError {
    match error.name() {
        "busy" => error.hint("answer it, stop it, or wait for message_stop"),
        _ => error,
    }
}

/// The position before a message, or before the producer's turn that is open there.
async fn position_before(session: &Session, token: &str) -> ApiResult<StartPosition> {
    let cursor = match resolve_token(session, session.first_seq().await?, token) {
        ResumePoint::After(cursor) => cursor,
        ResumePoint::Invalid(_) => session.head_state().head,
    };
    let before = cursor.minus(1);
    let before = session.open_from().await?.map_or(before, |open| before.min(open.previous()));
    Ok(StartPosition::After(before))
}

/// The decisions as an event. A decision without `tool_use_id` is for the call at the same place of
/// the question.
fn to_confirmation(
    approval: &Approval,
    question: &Question,
) -> ApiResult<turnwire_core::event::UserConfirmResult> {
    let mut seen = HashSet::new();
    for decision in &approval.decisions {
        let Some(id) = &decision.tool_use_id else { continue };
        if !question.calls.iter().any(|call| call.id == *id) {
            return Err(ApiError::unprocessable(format!(
                "the question {} has no call {id:?}; nothing was stored",
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
            .hint("send one decision for each of its `action_requests`, with its tool_use_id")
    })
}

/// The `id` to echo: a string or a number.
fn echoed_id(id: Option<Json>) -> Option<Json> {
    id.filter(|id| {
        let is_plain = id
            .text()
            .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit());
        is_plain && id.text().len() <= LONGEST_ID
    })
}
