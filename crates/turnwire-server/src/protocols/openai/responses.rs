//! `/v1/responses`: create, retrieve, cancel, delete; the input of a response; the tokens of a request.
//!
//! A response is a reply up to its end, or up to where it waits for tool results; after the results the next
//! response begins. The reply continues whatever the client does, so every response runs in the background and
//! can be retrieved.

mod compact;
mod current_response;
mod delete;
mod echo;
mod input;
mod input_tokens;
mod item_reference;
mod items;
mod request;
mod response_id;
pub(crate) mod socket;
mod submission;

use super::models;
use crate::app::App;
use crate::auth::{Caller, expired_error};
use crate::deliveries::Delivery;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Path, Query};
use crate::protocols::model_api::ModelRequest;
use crate::protocols::{self, add_ignored_header, with_ignored_options, with_session_header};
use crate::stream::{
    CollectedAnswer, PausePolicy, ReplyPosition, ReplyStreamOptions, ReplySubscriber,
};
use crate::turns::client_context::check_options;
use crate::turns::client_events;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
pub(crate) use compact::{CompactedResponse, compact};
use current_response::read_current;
pub(crate) use delete::{DeletedView, delete};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
pub(crate) use input::list_input_items;
pub(crate) use input_tokens::{InputTokens, count_input_tokens};
use item_reference::InputItem;
pub(crate) use items::ItemList;
pub(super) use items::{ItemQuery, message_items};
use request::CreateRequest;
pub(super) use request::{invalid_request, parse_input};
use response_id::{FoundResponse, ResponseId, is_tool_result};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use submission::Submission;
use turnwire_core::event::UserInterrupt;
use turnwire_core::{Event, Json, Msg};
use turnwire_wires::openai_responses::ResponseSettings;
use turnwire_wires::{EncoderOptions, Wire};

fn wire() -> ApiResult<&'static Wire> {
    Wire::named("openai-responses")
        .ok_or_else(|| ApiError::internal("the wire openai-responses is missing"))
}

/// The options of a response's encoder.
fn encoding(found: &FoundResponse) -> EncoderOptions {
    let options = EncoderOptions {
        session_id: Some(found.session.id().to_owned()),
        model: Some(found.session.agent().to_owned()),
        id: Some(found.id.to_string()),
        wants_json: found.wants_json,
        ..EncoderOptions::default()
    };
    options.with(ResponseSettings::from_request(&found.request))
}

/// Sends user messages or tool results, and returns the agent's response.
pub(crate) async fn create(request: ModelRequest) -> ApiResult<Response> {
    let ModelRequest { app, caller, uri, headers, body } = request;
    let request =
        Submission { app: &app, caller: &caller, uri: &uri, headers: &headers, body: &body };
    let started = StartedResponse::start(request).await?;
    // The response may take minutes and does not need the body: free the memory.
    drop(body);
    let StartedResponse { found, ignored, delivery, stream, background } = started;
    if background && !stream {
        let current = read_current(&found).await?;
        // The client reads the rest by the id.
        delivery.complete();
        return Ok(with_ignored_header(json_response(&found, &current), &ignored));
    }
    let encoding = EncoderOptions { collects: !stream, ..encoding(&found) };
    let follow = follow(&app, &caller, &found, encoding).await?.with_delivery(delivery);
    if stream {
        return Ok(with_ignored_header(protocols::sse_response(&app, follow.unmerged()), &ignored));
    }
    let response = match follow.collect().await? {
        CollectedAnswer::Complete(response) => response,
        CollectedAnswer::Expired => return Err(expired_error()),
        CollectedAnswer::ServerStopped => {
            return Err(protocols::stopping_error(found.session.id()));
        }
    };
    let response = response.and_then(Result::ok);
    let response = response.ok_or_else(|| ApiError::internal("the response is empty"))?;
    let response = with_ignored_options(response, &ignored);
    Ok(with_ignored_header(json_response(&found, &response), &ignored))
}

/// A response that a request has started.
struct StartedResponse {
    found: FoundResponse,
    /// The options of the request that have no effect.
    ignored: Vec<String>,
    delivery: Delivery,
    stream: bool,
    background: bool,
}

impl StartedResponse {
    /// Stores what is new in a request, and starts its response.
    async fn start(submission: Submission<'_>) -> ApiResult<Self> {
        let app = submission.app;
        let mut request = CreateRequest::parse(submission.body)?;
        models::require_model(app, &request.model)?;
        request.context.headers = protocols::passed_headers(submission.headers);
        let messages: Vec<Msg> =
            request.input.iter().filter_map(InputItem::message).cloned().collect();
        let ignored = check_options(app, &request.model, &request.context, &messages)?;
        request.context.ignored_options.clone_from(&ignored);
        let (stream, background) = (request.stream, request.background);
        let (found, delivery) = submission.submit(request).await?;
        Ok(Self { found, ignored, delivery, stream, background })
    }
}

fn with_ignored_header(mut response: Response, ignored: &[String]) -> Response {
    add_ignored_header(&mut response, ignored);
    response
}

/// What stands behind the `?`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct RetrieveQuery {
    /// Stream the response's events.
    #[serde(default)]
    stream: bool,
    /// Only events after this sequence number.
    starting_after: Option<u64>,
}

/// Returns a response as it is now, or streams its events: all, or only those after a number.
pub async fn retrieve(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<RetrieveQuery>,
) -> ApiResult<Response> {
    let found = find_response(&app, &caller, &id).await?;
    if !query.stream {
        return Ok(json_response(&found, &read_current(&found).await?));
    }
    let follow = follow(&app, &caller, &found, encoding(&found)).await?.unmerged();
    // Unmerged, the frames of a response are numbered from 0 without gaps.
    let skipped = query.starting_after.map_or(0, |number| number.saturating_add(1));
    Ok(protocols::sse_response(&app, follow.skip_frames(skipped)))
}

/// Stops a response. One that has ended does not change.
pub async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let found = find_response(&app, &caller, &id).await?;
    let stop = Event::new(found.id.reply.clone(), UserInterrupt {});
    client_events::accept_events(&app, &found.session, &caller, &[stop]).await?;
    Ok(json_response(&found, &read_current(&found).await?))
}

fn json_response(found: &FoundResponse, response: &Json) -> Response {
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let response = (json, response.text().to_owned()).into_response();
    with_session_header(found.session.id(), response)
}

/// The stream of a response.
async fn follow(
    app: &App,
    caller: &Caller,
    found: &FoundResponse,
    encoding: EncoderOptions,
) -> ApiResult<ReplySubscriber> {
    let options = ReplyStreamOptions {
        wire: wire()?,
        encoding,
        reply_id: found.id.reply.clone(),
        begin: found
            .id
            .results
            .map_or(ReplyPosition::Start, |seq| ReplyPosition::After(seq.previous())),
        pause: PausePolicy::ExternalOnly,
        expires_at: caller.expires_at(),
    };
    Ok(protocols::follow_reply(app, &found.session, options).await?.end_before(is_tool_result))
}

/// A response of a session that the caller may use.
async fn find_response(app: &App, caller: &Caller, id: &str) -> ApiResult<FoundResponse> {
    let found = ResponseId::find(id, app, caller).await?.ok_or_else(|| {
        ApiError::not_found(format!("Response with id '{id}' not found."))
            .kind("response_not_found")
            .hint("check the id; the session of the response may have been deleted")
    })?;
    if found.is_kept {
        return Ok(found);
    }
    Err(ApiError::gone(format!("retention has removed the events of the response {id}"))
        .kind("trimmed")
        .hint(format!("GET /v1/sessions/{}/messages still has the message", found.session.id())))
}
