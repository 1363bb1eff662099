//! The messages of the Responses API's WebSocket: a client sends `response.create`, and gets the events of the response,
//! one per message. Called by `crate::socket`, which reads and writes the connection.
//!
//! A response is the same as over HTTP. What belongs to the connection is only which responses a request with
//! `store: false` may continue, and a request that was prepared with `generate: false`.

use super::request::{CreateRequest, invalid_request};
use super::submission::{Submission, previous_not_found};
use super::{StartedResponse, encoding, follow, models, wire};
use crate::app::App;
use crate::auth::Caller;
use crate::error::{ApiError, ApiResult, OpenAiErrorBody};
use crate::limits::ReservedBytes;
use crate::listen::ClientConnection;
use crate::socket::{self, SocketOptions};
use crate::stream::ReplySubscriber;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Uri};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use turnwire_core::event::{ReplyEnd, ReplyStart};
use turnwire_core::stamp::{Stamp, SystemStamp};
use turnwire_core::{Event, Fields, FinishedReason, Json};
use turnwire_wires::openai_responses::ResponseSettings;
use turnwire_wires::{EncoderOptions, Frames};

/// How many responses of a connection a request with `store: false` can continue.
const MAX_KNOWN: usize = 64;
/// The longest `stream_id`.
const MAX_STREAM_ID: usize = 256;
/// The prefix of the id of a request that was only prepared. No stored response has it.
const PREPARED_PREFIX: &str = "resp_prepared_";
/// Headers of the handshake that say something of one request, not of every message.
const ONE_REQUEST: [HeaderName; 2] = [
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("x-stainless-retry-count"),
];
/// Fields that only belong to the transport: the response is always streamed, and runs in any case.
const TRANSPORT_FIELDS: [&str; 5] = ["type", "event_id", "stream", "stream_options", "background"];

/// One connection.
pub(crate) struct ResponseSocket {
    uri: Uri,
    /// The headers of the handshake.
    headers: HeaderMap,
    /// The responses of this connection, the newest last.
    known: VecDeque<String>,
    prepared: Option<PreparedRequest>,
}

/// A request with `generate: false`: the next one continues it.
struct PreparedRequest {
    id: String,
    input: Vec<Json>,
    /// The response that it continues itself.
    previous: Option<Json>,
    conversation: Option<Json>,
    /// The input stays in memory.
    _reserved: ReservedBytes,
}

/// An error, and the lane that it belongs to.
pub(crate) struct SocketError {
    error: ApiError,
    stream_id: Option<String>,
}

impl From<ApiError> for SocketError {
    fn from(error: ApiError) -> Self {
        Self { error, stream_id: None }
    }
}

impl SocketError {
    /// The message that tells the client.
    pub(crate) fn message(&self) -> String {
        #[derive(Serialize)]
        struct ErrorEvent<'e> {
            r#type: &'static str,
            status: u16,
            #[serde(flatten)]
            body: OpenAiErrorBody,
            #[serde(skip_serializing_if = "Option::is_none")]
            stream_id: Option<&'e str>,
        }
        let event = ErrorEvent {
            r#type: "error",
            status: self.error.status().as_u16(),
            body: OpenAiErrorBody::from(&self.error),
            stream_id: self.stream_id.as_deref(),
        };
        serde_json::to_string(&event).unwrap_or_default()
    }
}

/// Opens a WebSocket on which the client creates responses.
pub(crate) async fn open_response_socket(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    conn: Option<Extension<Arc<ClientConnection>>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let options = SocketOptions {
        wire: wire()?,
        // A message is what the body of a request is over HTTP.
        max_message: app.config.limits.body.bytes(),
        responses: Some(ResponseSocket::new(uri, headers)),
    };
    socket::accept(upgrade, app, Some(caller), options, conn)
}

impl ResponseSocket {
    fn new(uri: Uri, mut headers: HeaderMap) -> Self {
        for name in ONE_REQUEST {
            headers.remove(name);
        }
        Self { uri, headers, known: VecDeque::new(), prepared: None }
    }

    /// Handles the message of a client. `None`: there is nothing to answer.
    pub(crate) async fn handle(
        &mut self,
        app: &Arc<App>,
        caller: &Caller,
        text: &str,
    ) -> Result<Option<ResponseMessages>, SocketError> {
        let mut body: Fields = serde_json::from_str(text)
            .map_err(|error| invalid_request(format!("invalid message: {error}")).hint(MESSAGES))?;
        match body.get::<String>("type").ok().flatten().as_deref() {
            Some("response.create") => {}
            // Codex sends this after each response; there is nothing to do.
            Some("response.processed") => return Ok(None),
            _ => {
                let kind = "unknown_message_type";
                return Err(invalid_request("unknown message type")
                    .kind(kind)
                    .hint(MESSAGES)
                    .into());
            }
        }
        let stream_id = take_stream_id(&mut body)?;
        match self.create(app, caller, body).await {
            Ok(source) => Ok(Some(ResponseMessages { source, stream_id })),
            Err(error) => Err(SocketError { error, stream_id }),
        }
    }

    /// Creates a response. The one that it continues is forgotten if that fails.
    async fn create(
        &mut self,
        app: &Arc<App>,
        caller: &Caller,
        body: Fields,
    ) -> ApiResult<MessageSource> {
        let previous = read::<String>(&body, "previous_response_id")?;
        let created = self.try_create(app, caller, body, previous.as_deref()).await;
        if created.is_err()
            && let Some(previous) = previous
        {
            self.known.retain(|id| *id != previous);
            self.prepared.take_if(|prepared| prepared.id == previous);
        }
        created
    }

    async fn try_create(
        &mut self,
        app: &Arc<App>,
        caller: &Caller,
        mut body: Fields,
        previous: Option<&str>,
    ) -> ApiResult<MessageSource> {
        for field in TRANSPORT_FIELDS {
            body.remove(field);
        }
        let generates = read::<bool>(&body, "generate")?.unwrap_or(true);
        body.remove("generate");
        let is_stored = read::<bool>(&body, "store")?.unwrap_or(true);
        if let Some(prepared) = self.prepared.as_ref().filter(|it| Some(&*it.id) == previous) {
            prepared.add_to(&mut body)?;
        } else if let Some(id) = previous
            && !is_stored
            && !self.known.iter().any(|known| known == id)
        {
            return Err(previous_not_found(id));
        }
        if !generates {
            return self.prepare(app, caller, body);
        }
        let body = Json::from(body);
        let submission = Submission {
            app,
            caller,
            uri: &self.uri,
            headers: &self.headers,
            body: body.text().as_bytes(),
        };
        let StartedResponse { found, delivery, .. } = StartedResponse::start(submission).await?;
        let follow = follow(app, caller, &found, encoding(&found)).await?;
        self.remember(found.id.to_string());
        Ok(MessageSource::Reply(Box::new(follow.unmerged().with_delivery(delivery))))
    }

    fn remember(&mut self, id: String) {
        if self.known.len() == MAX_KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(id);
    }

    /// Keeps a request, so that the next one needs to send only what is new. Nothing is stored.
    fn prepare(
        &mut self,
        app: &App,
        caller: &Caller,
        mut body: Fields,
    ) -> ApiResult<MessageSource> {
        let input = input_items(body.remove("input"))?;
        let bytes = input.iter().map(|item| item.text().len()).sum();
        let reserved = app.buffered.reserve(caller.tenant(), bytes)?;
        body.insert("input", Json::from_value(&input).map_err(ApiError::internal)?);
        let request = CreateRequest::parse(Json::from(body.clone()).text().as_bytes())?;
        models::require_model(app, &request.model)?;
        let id = format!("{PREPARED_PREFIX}{}", SystemStamp.id());
        let frames = empty_response(&id, request.model, &body)?;
        self.prepared = Some(PreparedRequest {
            id,
            input,
            previous: body.remove("previous_response_id"),
            conversation: body.remove("conversation"),
            _reserved: reserved,
        });
        Ok(MessageSource::Ready(frames))
    }
}

const MESSAGES: &str = "send {\"type\": \"response.create\", \"model\": \"…\", \"input\": \"…\"}";

impl PreparedRequest {
    /// Puts what was prepared before what a request adds.
    fn add_to(&self, body: &mut Fields) -> ApiResult<()> {
        let mut input = self.input.clone();
        input.extend(input_items(body.remove("input"))?);
        body.insert("input", Json::from_value(&input).map_err(ApiError::internal)?);
        body.remove("previous_response_id");
        body.insert_some("previous_response_id", self.previous.clone());
        body.insert_some("conversation", self.conversation.clone());
        Ok(())
    }
}

/// The events of a response, as messages.
pub(crate) struct ResponseMessages {
    source: MessageSource,
    /// The lane of the connection that the client has named; each message repeats it.
    stream_id: Option<String>,
}

enum MessageSource {
    Reply(Box<ReplySubscriber>),
    /// All there is.
    Ready(Frames),
}

impl ResponseMessages {
    /// The next messages, one per line. Empty: nothing has happened for a while. `None`: the response has ended.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, SocketError>> {
        let frames = match &mut self.source {
            MessageSource::Reply(reply) => reply.next_frames().await?,
            MessageSource::Ready(frames) if frames.is_empty() => return None,
            MessageSource::Ready(frames) => Ok(std::mem::take(frames)),
        };
        Some(match frames {
            Ok(frames) => Ok(self.lines(&frames)),
            Err(error) => {
                Err(SocketError { error: error.into(), stream_id: self.stream_id.clone() })
            }
        })
    }

    fn lines(&self, frames: &Frames) -> Bytes {
        let lane = self
            .stream_id
            .as_ref()
            .map(|id| format!("{{\"stream_id\":{},", Json::from(id.as_str()).text()));
        let mut lines = String::new();
        for (_, text) in frames.iter() {
            match (&lane, text.strip_prefix('{')) {
                (Some(lane), Some(rest)) => lines.extend([lane.as_str(), rest]),
                _ => lines.push_str(text),
            }
            lines.push('\n');
        }
        lines.into()
    }
}

/// The frames of a response without output.
fn empty_response(id: &str, model: String, body: &Fields) -> ApiResult<Frames> {
    let options =
        EncoderOptions { id: Some(id.to_owned()), model: Some(model), ..EncoderOptions::default() };
    let options = options.with(ResponseSettings::from_request(body));
    let mut encoder = wire()?.encoder(&options).map_err(ApiError::internal)?;
    let mut frames = Frames::default();
    let start = Event::new(id, ReplyStart::default());
    let end = ReplyEnd { finished_reason: FinishedReason::Completed, ..ReplyEnd::default() };
    for event in [start, Event::new(id, end)] {
        encoder.encode(&event, &mut frames);
    }
    encoder.end(&mut frames);
    Ok(frames)
}

/// The items of an input; a text is a user message.
fn input_items(input: Option<Json>) -> ApiResult<Vec<Json>> {
    let Some(input) = input.filter(|input| !input.is_null()) else { return Ok(Vec::new()) };
    if input.text().starts_with('"') {
        let message: Fields =
            [("role", Json::from("user")), ("content", input)].into_iter().collect();
        return Ok(vec![message.into()]);
    }
    let items = input.parse_as();
    items.map_err(|_| invalid_request("`input` must be a string or a list of items"))
}

fn take_stream_id(body: &mut Fields) -> ApiResult<Option<String>> {
    let id = read::<String>(body, "stream_id")?;
    body.remove("stream_id");
    if id.as_ref().is_some_and(|id| id.len() > MAX_STREAM_ID) {
        return Err(invalid_request(format!("`stream_id` is longer than {MAX_STREAM_ID} bytes")));
    }
    Ok(id)
}

/// Reads a field; null counts as missing.
fn read<T: serde::de::DeserializeOwned>(body: &Fields, key: &str) -> ApiResult<Option<T>> {
    body.get(key).map_err(|error| invalid_request(format!("invalid `{key}`: {error}")))
}
