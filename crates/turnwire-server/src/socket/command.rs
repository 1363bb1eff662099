//! The commands of the wires `turnwire` and `agentscope`.

use super::connection::{Flow, SocketConnection};
use crate::auth::{Action, Caller};
use crate::error::{ApiError, ApiResult};
use crate::ingest;
use crate::routes::read_message;
use crate::stream::{Merge, StartPosition, resolve_token};
use crate::turns::client_events;
use crate::turns::send::{IfBusy, send};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use turnwire_core::Head;
use turnwire_log::Session;

/// The fields of an answer, without its `id`.
type Fields = Map<String, Value>;

/// A command. Each type uses some of the fields.
#[derive(Debug, Default, Deserialize)]
struct Command<'a> {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    last_event_id: Option<String>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    queue: bool,
    #[serde(default, borrow)]
    events: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
}

/// The longest `id` that is echoed.
const LONGEST_ID: usize = 256;

/// The part of an invalid command that may still be readable.
#[derive(Debug, Default, Deserialize)]
struct CommandHead {
    #[serde(default)]
    r#type: Value,
    #[serde(default)]
    id: Value,
}

impl SocketConnection {
    /// Runs the command of a text message, and answers it.
    pub async fn handle_command(&mut self, text: &str) -> Flow {
        let command: Command<'_> = match serde_json::from_str(text) {
            Ok(command) => command,
            Err(why) => {
                let CommandHead { r#type, id } = serde_json::from_str(text).unwrap_or_default();
                let word = r#type.as_str().unwrap_or_default();
                let error = ApiError::bad_request(format!("invalid command: {why}"))
                    .hint("a command is a JSON object with a `type`");
                return self.send_error(word, echoed_id(Some(id)).as_ref(), &error).await;
            }
        };
        let id = echoed_id(command.id.clone());
        if command.r#type == "subscribe" {
            return self.subscribe(&command, id).await;
        }
        match self.run_command(&command).await {
            Ok(answer) => self.send_answer(answer, id).await,
            Err(error) => {
                self.send_error(&command.r#type, id.as_ref(), &error).await?;
                if command.r#type == "auth" { self.after_bad_token() } else { Flow::Continue(()) }
            }
        }
    }

    async fn run_command(&mut self, command: &Command<'_>) -> ApiResult<Fields> {
        match &*command.r#type {
            "ping" => Ok(into_fields(json!({"type": "pong"}))),
            "auth" => self.auth(command).await,
            "unsubscribe" => {
                let id = session_id_of(command)?;
                let was_there = self.subscriptions.remove(id).await;
                let answer = json!({"type": "unsubscribed", "session_id": id});
                was_there.then(|| into_fields(answer)).ok_or_else(|| {
                    ApiError::conflict("this socket is not subscribed to this session")
                        .kind("not_subscribed")
                })
            }
            "events" => self.post_events(command).await,
            "chat" => self.chat(command).await,
            "stop" => {
                let (caller, session) = self.session_for(command, Action::Chat).await?;
                let taken = client_events::stop_reply(&self.app, &session, &caller).await?;
                Ok(accepted(&session, taken.last))
            }
            "" => Err(ApiError::bad_request("a command has a `type`").hint(COMMANDS)),
            _ => {
                Err(ApiError::bad_request("unknown command").kind("unknown_command").hint(COMMANDS))
            }
        }
    }

    async fn auth(&mut self, command: &Command<'_>) -> ApiResult<Fields> {
        let token = command.token.as_deref().ok_or_else(|| {
            ApiError::bad_request("`auth` has no `token`")
                .hint("{\"type\":\"auth\",\"token\":\"…\"}")
        })?;
        self.authenticate(token).await?;
        Ok(into_fields(json!({"type": "authenticated"})))
    }

    async fn subscribe(&mut self, command: &Command<'_>, id: Option<Value>) -> Flow {
        let subscriber = match self.new_subscriber(command).await {
            Ok(subscriber) => subscriber,
            Err(error) => return self.send_error("subscribe", id.as_ref(), &error).await,
        };
        let session = subscriber.session();
        let head = session.head_state();
        let answer = json!({
            "type": "subscribed",
            "session_id": session.id(),
            "status": head.status,
            "last_seq": head.head,
            "last_event_id": session.resume_token(head.head),
        });
        // The answer comes before the first event.
        self.send_answer(into_fields(answer), id).await?;
        self.subscriptions.start(subscriber);
        Flow::Continue(())
    }

    async fn new_subscriber(
        &mut self,
        command: &Command<'_>,
    ) -> ApiResult<crate::stream::SessionSubscriber> {
        let (_, session) = self.session_for(command, Action::Read).await?;
        let token = command.last_event_id.as_deref().filter(|token| !token.is_empty());
        let start = match token.or(command.after.as_deref()) {
            None | Some("") => StartPosition::Beginning,
            Some("now") if token.is_none() => StartPosition::Now,
            Some(token) => resolve_token(&session, session.first_seq().await?, token).into(),
        };
        let merge = if command.raw { Merge::Nothing } else { Merge::Deltas };
        self.subscriptions.prepare(&session, start, merge).await
    }

    async fn post_events(&mut self, command: &Command<'_>) -> ApiResult<Fields> {
        let caller = self.current_caller()?;
        let events = command.events.filter(|events| events.get().starts_with('['));
        let events = events.ok_or_else(|| {
            ApiError::bad_request("`events` has no `events`").hint("`events` must be a JSON list")
        })?;
        let session = self.open_session(&caller, session_id_of(command)?).await?;
        let bytes = events.get().as_bytes();
        let batch = ingest::read_batch(&self.app, &session, self.wire.name, bytes).await?;
        let published =
            ingest::accept_client_events(&self.app, &caller, &session, batch, None).await?;
        let mut answer = accepted(&session, published.last);
        answer.insert("stored".to_owned(), published.stored.into());
        answer.insert("repeated".to_owned(), published.repeated.into());
        Ok(answer)
    }

    async fn chat(&mut self, command: &Command<'_>) -> ApiResult<Fields> {
        let (_, session) = self.session_for(command, Action::Chat).await?;
        let message = match (command.message, command.content) {
            (Some(message), _) if message.get().starts_with('{') => message.get().to_owned(),
            (Some(content), _) | (None, Some(content)) => {
                format!("{{\"content\":{}}}", content.get())
            }
            (None, None) => {
                return Err(ApiError::bad_request("`chat` has neither `content` nor `message`")
                    .hint("{\"type\":\"chat\",\"session_id\":\"…\",\"content\":\"hello\"}"));
            }
        };
        let msg = read_message(message.as_bytes())?;
        let if_busy = if command.queue { IfBusy::Queue } else { IfBusy::Refuse };
        let sent = send(&self.app, &session, msg, if_busy, None).await?;
        let mut answer = accepted(&session, Head::EMPTY);
        answer.extend(into_fields(
            serde_json::to_value(sent.accepted()).map_err(ApiError::internal)?,
        ));
        Ok(answer)
    }

    async fn session_for(
        &self,
        command: &Command<'_>,
        action: Action,
    ) -> ApiResult<(Caller, Arc<Session>)> {
        let caller = self.current_caller()?;
        caller.require(action)?;
        let session = self.open_session(&caller, session_id_of(command)?).await?;
        Ok((caller, session))
    }

    async fn send_answer(&self, mut answer: Fields, id: Option<Value>) -> Flow {
        if let Some(id) = id {
            answer.insert("id".to_owned(), id);
        }
        self.send_text(Value::Object(answer).to_string()).await
    }

    pub(super) async fn send_error(
        &self,
        command: &str,
        id: Option<&Value>,
        error: &ApiError,
    ) -> Flow {
        if let Some(detail) = error.detail_text() {
            tracing::warn!(command, detail, "a command on a socket failed");
        }
        let mut answer = into_fields(json!({
            "type": "error",
            "command": command,
            "code": error.name(),
            "message": error.message(),
            "hint": error.hint_text(),
        }));
        answer.retain(|_, value| value.as_str() != Some(""));
        self.send_answer(answer, id.cloned()).await
    }
}

const COMMANDS: &str = "commands are auth, subscribe, unsubscribe, events, chat, stop and ping";

fn into_fields(value: Value) -> Fields {
    if let Value::Object(fields) = value { fields } else { Fields::default() }
}

fn accepted(session: &Session, last: Head) -> Fields {
    let token = session.resume_token(last);
    into_fields(json!({"type": "accepted", "session_id": session.id(), "last_event_id": token}))
}

fn session_id_of<'c>(command: &'c Command<'_>) -> ApiResult<&'c str> {
    command
        .session_id
        .as_deref()
        .ok_or_else(|| ApiError::bad_request(format!("`{}` has no `session_id`", command.r#type)))
}

/// The `id` to echo: a string or a number.
fn echoed_id(id: Option<Value>) -> Option<Value> {
    id.filter(|id| id.is_number() || id.as_str().is_some_and(|text| text.len() <= LONGEST_ID))
}
