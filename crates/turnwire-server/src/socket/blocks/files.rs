//! The files that belong to what somebody says.
//!
//! Nothing is fetched: a URL is handed on to the agent, and whoever runs the model reads it. Of the
//! blobs that are stored here it is looked up whether they are there.

use crate::App;
use crate::auth::Caller;
use crate::blobs;
use crate::config::Sha256;
use crate::error::ApiResult;
use serde_json::json;
use turnwire_core::Event;
use turnwire_core::event::{Custom, CustomValue};
use turnwire_wires::blocks::ContentUrl;

/// How many of the files that are missing are named.
const NAMED: usize = 8;

/// Looks at the files of a message, and says what is to be told of them: that they are looked at,
/// then what came of it.
pub(super) async fn look_at(
    app: &App,
    caller: &Caller,
    files: &mut [ContentUrl],
) -> ApiResult<Vec<Event<'static>>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for file in files.iter_mut() {
        let Some(hash) = own_blob(app, &file.url) else { continue };
        match app.log.store().blob(caller.tenant(), hash).await? {
            Some(blob) => {
                file.url = blobs::url(&app.config, &hash);
                file.mime_type.get_or_insert(blob.media_type);
            }
            None => missing.push(file.url.clone()),
        }
    }
    let shown: Vec<_> = files.iter().map(|file| json!({"url": shown(&file.url)})).collect();
    let begun = json!({"status": "processing", "files": shown});
    let ended = if missing.is_empty() {
        let word = if files.len() == 1 { "file" } else { "files" };
        json!({"status": "completed", "message": format!("Processed {} {word}", files.len())})
    } else {
        missing.truncate(NAMED);
        json!({"status": "error", "message": format!("Not found: {}", missing.join(", "))})
    };
    Ok([begun, ended]
        .into_iter()
        .map(|value| {
            let value = CustomValue(value.into());
            Event::new("", Custom { name: "file_processing".to_owned(), value })
        })
        .collect())
}

/// The hash of a blob of ours that a URL names.
fn own_blob(app: &App, url: &str) -> Option<[u8; 32]> {
    let (base, id) = url.rsplit_once('/')?;
    let hash: Sha256 = id.parse().ok()?;
    let ours = blobs::url(&app.config, &hash.0);
    let is_ours = base == "/v1/blobs" || ours.rsplit_once('/').is_some_and(|(own, _)| own == base);
    is_ours.then_some(hash.0)
}

/// A URL as it is shown: bytes that stand in it are left out.
fn shown(url: &str) -> &str {
    match url.split_once(',') {
        Some((head, _)) if head.starts_with("data:") => head,
        _ => url,
    }
}
