//! The files of a `chat` command of the blocks protocol.
//!
//! Files are fetched before the message is logged, which takes a while. Meanwhile the client sees a
//! provisional turn: its frames have no `event_id`. The logged turn has the same id and replaces it
//! from its `message_start` on. If a file cannot be fetched, nothing is logged, and the provisional
//! turn ends with the error.

use super::super::connection::SocketConnection;
use crate::blobs;
use crate::error::{ApiError, ApiResult};
use crate::links;
use crate::stream::write_socket_frame;
use serde_json::{Value, json};
use turnwire_core::event::{Custom, CustomValue, ReplyEnd, ReplyStart};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{ErrorType, Event, EventKind, Msg, ReplyError};
use turnwire_log::store::SessionKey;
use turnwire_wires::blocks::Chat;
use turnwire_wires::{Encode, EncoderOptions, Frames};

/// The turn in which the files are shown.
pub(super) struct FileTurn<'a> {
    /// The session, which may not exist yet.
    pub key: &'a SessionKey,
    /// The agent that answers in it.
    pub agent: &'a str,
    /// The reply that will follow.
    pub reply_id: &'a str,
}

/// A message that can be logged.
pub(super) struct MessageWithFiles {
    pub msg: Msg,
    /// The events of its turn: that files are processed, and the result.
    pub events: Vec<Event<'static>>,
    /// The provisional turn.
    pub shown: Option<ProvisionalTurn>,
}

impl SocketConnection {
    /// Fetches the files of a message.
    pub(super) async fn fetch_files(
        &self,
        chat: &Chat,
        place: &FileTurn<'_>,
    ) -> ApiResult<MessageWithFiles> {
        let msg = chat.to_msg();
        if chat.content_urls.is_empty() {
            return Ok(MessageWithFiles { msg, events: Vec::new(), shown: None });
        }
        let files: Vec<Value> =
            chat.content_urls.iter().map(|file| json!({"url": displayed_url(&file.url)})).collect();
        let (count, word) = (files.len(), if files.len() == 1 { "file" } else { "files" });
        let begun = json!({"status": "processing", "files": files});
        let ended = json!({"status": "completed", "message": format!("Processed {count} {word}")});
        let mut shown = None;
        if links::has_slow_links(&self.app.config, &msg) {
            shown = Some(self.show_processing(chat, place, &begun).await?);
        }
        match self.store_files(msg, place).await {
            Ok(msg) => {
                let events =
                    [begun, ended].map(|value| Event::new("", file_processing_event(value)));
                Ok(MessageWithFiles { msg, events: events.into(), shown })
            }
            Err(error) => {
                self.show_failed(shown, place, &error).await;
                Err(error)
            }
        }
    }

    async fn store_files(&self, msg: Msg, place: &FileTurn<'_>) -> ApiResult<Msg> {
        let tenant = &*place.key.tenant;
        let taken = links::fetch_links(&self.app, tenant, vec![msg]).await?.pop();
        let msg = taken
            .ok_or_else(|| ApiError::internal("the message of an uploaded file is missing"))?;
        blobs::offload_data(&self.app, tenant, msg).await
    }

    /// Shows that files are processed.
    async fn show_processing(
        &self,
        chat: &Chat,
        place: &FileTurn<'_>,
        begun: &Value,
    ) -> ApiResult<ProvisionalTurn> {
        let encoding = EncoderOptions {
            session_id: Some(place.key.id.to_string()),
            ..EncoderOptions::default()
        };
        let encoding = encoding.with(chat.display_mode.unwrap_or_default());
        let encoder = self.wire.encoder(&encoding).map_err(ApiError::internal)?;
        let mut shown = ProvisionalTurn { encoder, frames: Frames::default() };
        let start = ReplyStart {
            session_id: place.key.id.to_string(),
            name: place.agent.to_owned(),
            ..ReplyStart::default()
        };
        self.send_provisional(
            &mut shown,
            place,
            [start.into(), file_processing_event(begun.clone()).into()],
        )
        .await;
        Ok(shown)
    }

    /// Ends a provisional turn that no logged turn will replace.
    pub(super) async fn show_failed(
        &self,
        shown: Option<ProvisionalTurn>,
        place: &FileTurn<'_>,
        error: &ApiError,
    ) {
        let Some(mut shown) = shown else { return };
        let ended = file_processing_event(json!({"status": "error", "message": error.message()}));
        let end = ReplyEnd {
            session_id: place.key.id.to_string(),
            ..ReplyEnd::failed(ReplyError::new(ErrorType::InvalidRequest, error.message()))
        };
        self.send_provisional(&mut shown, place, [ended.into(), end.into()]).await;
    }

    async fn send_provisional(
        &self,
        shown: &mut ProvisionalTurn,
        place: &FileTurn<'_>,
        kinds: impl IntoIterator<Item = EventKind<'static>>,
    ) {
        shown.frames.clear();
        for kind in kinds {
            let event = Event::new(place.reply_id.to_owned(), kind).stamped(&SystemStamp);
            shown.encoder.encode(&event, &mut shown.frames);
        }
        for (_, frame) in shown.frames.iter() {
            let mut text = String::new();
            write_socket_frame(frame, &place.key.id, None, &mut text);
            // If the client is gone, the read loop notices it.
            let _ = self.send_text(text.trim_end().to_owned()).await;
        }
    }
}

/// A turn that is shown but not logged.
pub(super) struct ProvisionalTurn {
    encoder: Box<dyn Encode>,
    frames: Frames,
}

fn file_processing_event(value: Value) -> Custom {
    Custom { name: "file_processing".to_owned(), value: CustomValue(value.into()) }
}

/// A URL as it is shown: without inline data.
fn displayed_url(url: &str) -> &str {
    match url.split_once(',') {
        Some((head, _)) if head.starts_with("data:") => head,
        _ => url,
    }
}
