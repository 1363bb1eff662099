//! The files that belong to what somebody says.
//!
//! They are brought in before anything is logged, which takes a while. Until then whoever speaks sees
//! a turn that is only shown: its frames have no `event_id`. The turn of the log has the same id and
//! takes its place, from its own `message_start` on; where a file cannot be had there is none, and the
//! one that is shown ends with the error.

use super::super::connection::SocketConnection;
use crate::blobs;
use crate::error::{ApiError, ApiResult};
use crate::links;
use serde_json::{Map, Value, json};
use turnwire_core::event::{Custom, CustomValue, ReplyEnd, ReplyStart};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{ErrorType, Event, EventKind, FinishedReason, Msg, ReplyError};
use turnwire_log::store::SessionKey;
use turnwire_wires::blocks::Chat;
use turnwire_wires::{Encode, EncoderOptions, Frames};

/// In which turn the files are shown.
pub(super) struct FileTurn<'a> {
    /// The session, which may not be there yet.
    pub key: &'a SessionKey,
    /// Who answers in it.
    pub agent: &'a str,
    /// The reply to come.
    pub reply_id: &'a str,
}

/// A message that can be logged.
pub(super) struct MessageWithFiles {
    pub msg: Msg,
    /// What belongs to its turn: that files were looked at, and what came of it.
    pub events: Vec<Event<'static>>,
    /// The turn that was shown meanwhile.
    pub shown: Option<ProvisionalTurn>,
}

impl SocketConnection {
    /// Brings in the files of what somebody says.
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
        let msg = taken.ok_or_else(|| ApiError::internal("a message is gone"))?;
        blobs::offload_data(&self.app, tenant, msg).await
    }

    /// Shows that files are looked at.
    async fn show_processing(
        &self,
        chat: &Chat,
        place: &FileTurn<'_>,
        begun: &Value,
    ) -> ApiResult<ProvisionalTurn> {
        let encoding = EncoderOptions {
            session_id: Some(place.key.id.to_string()),
            display_mode: chat.display_mode.unwrap_or_default(),
            ..EncoderOptions::default()
        };
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

    /// Ends a turn that was shown, where there is none in the log to take its place.
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
            finished_reason: FinishedReason::Error,
            error: Some(ReplyError {
                r#type: ErrorType::InvalidRequest,
                message: error.message().to_owned(),
                ..ReplyError::default()
            }),
            ..ReplyEnd::default()
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
            let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(frame) else {
                continue;
            };
            fields.insert("session_id".to_owned(), (*place.key.id).into());
            // Who is gone need not be told; the loop that reads notices it.
            let _ = self.send_text(Value::Object(fields).to_string()).await;
        }
    }
}

/// A turn that is only shown.
pub(super) struct ProvisionalTurn {
    encoder: Box<dyn Encode>,
    frames: Frames,
}

fn file_processing_event(value: Value) -> Custom {
    Custom { name: "file_processing".to_owned(), value: CustomValue(value.into()) }
}

/// A URL as it is shown: bytes that stand in it are left out.
fn displayed_url(url: &str) -> &str {
    match url.split_once(',') {
        Some((head, _)) if head.starts_with("data:") => head,
        _ => url,
    }
}
