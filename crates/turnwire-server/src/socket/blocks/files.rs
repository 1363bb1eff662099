//! The files that belong to what somebody says.
//!
//! They are brought in before anything is logged, which takes a while. Until then whoever speaks sees
//! a turn that is only shown: its frames have no `event_id`. The turn of the log has the same id and
//! takes its place, from its own `message_start` on; where a file cannot be had there is none, and the
//! one that is shown ends with the error.

use super::super::desk::Desk;
use crate::blobs;
use crate::error::{ApiError, ApiResult};
use crate::links;
use serde_json::{Map, Value, json};
use turnwire_core::event::{Custom, CustomValue, ReplyEnd, ReplyStart};
use turnwire_core::stamp::System;
use turnwire_core::{ErrorType, Event, EventKind, FinishedReason, Msg, ReplyError};
use turnwire_log::store::SessionKey;
use turnwire_wires::blocks::Chat;
use turnwire_wires::{Encode, Encoding, Frames};

/// In which turn the files are shown.
pub(super) struct Place<'a> {
    /// The session, which may not be there yet.
    pub key: &'a SessionKey,
    /// Who answers in it.
    pub agent: &'a str,
    /// The reply to come.
    pub reply_id: &'a str,
}

impl Desk {
    /// Brings in the files of what somebody says. The message that can be logged, and what belongs to
    /// its turn: that files were looked at, and what came of it.
    pub(super) async fn with_files(
        &self,
        chat: &Chat,
        place: &Place<'_>,
    ) -> ApiResult<(Msg, Vec<Event<'static>>)> {
        let msg = chat.to_msg();
        if chat.content_urls.is_empty() {
            return Ok((msg, Vec::new()));
        }
        let files: Vec<Value> =
            chat.content_urls.iter().map(|file| json!({"url": shown(&file.url)})).collect();
        let count = files.len();
        let begun = json!({"status": "processing", "files": files});
        let mut shown = None;
        if links::are_in(&self.app.config, &msg) {
            shown = Some(self.show(chat, place, &begun).await?);
        }
        let tenant = &*place.key.tenant;
        let taken = match links::take_in(&self.app, tenant, vec![msg]).await {
            Ok(mut taken) => taken.pop().ok_or_else(|| ApiError::internal("a message is gone")),
            Err(error) => Err(error),
        };
        let taken = match taken {
            Ok(msg) => blobs::offload(&self.app, tenant, msg).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(msg) => {
                let word = if count == 1 { "file" } else { "files" };
                let ended =
                    json!({"status": "completed", "message": format!("Processed {count} {word}")});
                Ok((msg, vec![Event::new("", custom(begun)), Event::new("", custom(ended))]))
            }
            Err(error) => {
                if let Some(shown) = shown {
                    self.show_failed(shown, place, &error).await;
                }
                Err(error)
            }
        }
    }

    /// Shows that files are looked at.
    async fn show(&self, chat: &Chat, place: &Place<'_>, begun: &Value) -> ApiResult<Shown> {
        let encoding = Encoding {
            session_id: Some(place.key.id.to_string()),
            display_mode: chat.display_mode.unwrap_or_default(),
            ..Encoding::default()
        };
        let encoder = self.wire.encoder(&encoding).map_err(ApiError::internal)?;
        let mut shown = Shown { encoder, frames: Frames::default() };
        let start = ReplyStart {
            session_id: place.key.id.to_string(),
            name: place.agent.to_owned(),
            ..ReplyStart::default()
        };
        self.tell(&mut shown, place, [start.into(), custom(begun.clone()).into()]).await;
        Ok(shown)
    }

    /// Shows that they cannot be had.
    async fn show_failed(&self, mut shown: Shown, place: &Place<'_>, error: &ApiError) {
        let ended = custom(json!({"status": "error", "message": error.message()}));
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
        self.tell(&mut shown, place, [ended.into(), end.into()]).await;
    }

    async fn tell(
        &self,
        shown: &mut Shown,
        place: &Place<'_>,
        kinds: impl IntoIterator<Item = EventKind<'static>>,
    ) {
        shown.frames.clear();
        for kind in kinds {
            let event = Event::new(place.reply_id.to_owned(), kind).stamped(&System);
            shown.encoder.event(&event, &mut shown.frames);
        }
        for (_, frame) in shown.frames.iter() {
            let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(frame) else {
                continue;
            };
            fields.insert("session_id".to_owned(), (*place.key.id).into());
            // Who is gone need not be told; the loop that reads notices it.
            let _ = self.write(Value::Object(fields).to_string()).await;
        }
    }
}

/// A turn that is only shown.
struct Shown {
    encoder: Box<dyn Encode>,
    frames: Frames,
}

fn custom(value: Value) -> Custom {
    Custom { name: "file_processing".to_owned(), value: CustomValue(value.into()) }
}

/// A URL as it is shown: bytes that stand in it are left out.
fn shown(url: &str) -> &str {
    match url.split_once(',') {
        Some((head, _)) if head.starts_with("data:") => head,
        _ => url,
    }
}
