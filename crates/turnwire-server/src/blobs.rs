//! Blobs: files that are too large for the log, stored once per tenant under their SHA-256.

pub(crate) mod media_type;
mod upload;

pub(crate) use upload::{StoredBlob, Upload, store_blob};

use crate::app::App;
use crate::auth::hex;
use crate::config::{Config, Sha256};
use crate::error::{ApiError, ApiResult};
use bytes::Bytes;
use turnwire_core::{ContentBlock, DataBlock, Msg, Source, TextBlock};
use turnwire_log::Store;
use turnwire_wires::model_request::describe_omitted_data as left_out_words;

/// How many bytes of blobs a model gets with one conversation: about what providers accept in one
/// request.
const MAX_INLINED_BYTES: usize = 24 * 1024 * 1024;

/// Longer base64 is stored as a blob, not in the log.
pub const MAX_BASE64_IN_LOG: usize = 64 * 1024;

/// The URL of a blob.
pub fn blob_url(config: &Config, hash: &[u8; 32]) -> String {
    format!("{}/v1/blobs/{}", config.base_url(), blob_id(hash))
}

/// The id of a blob: its hash in hexadecimal digits.
pub fn blob_id(hash: &[u8; 32]) -> String {
    hex(hash, hash.len())
}

/// The hash of the blob that a URL names, on this or another server. Equal hashes mean equal bytes.
pub(crate) fn hash_in_url(url: &str) -> Option<[u8; 32]> {
    let (base, id) = url.rsplit_once('/')?;
    let hash: Sha256 = id.parse().ok()?;
    base.ends_with("/v1/blobs").then_some(hash.0)
}

/// Whether the URL of a blob is one of this server's.
pub(crate) fn is_own_url(config: &Config, url: &str) -> bool {
    let base = |url: &str| url.rsplit_once('/').map(|(base, _)| base.to_owned());
    let theirs = base(url);
    theirs.as_deref() == Some("/v1/blobs") || theirs == base(&blob_url(config, &[0; 32]))
}

/// Stores the large data of a message as blobs, and puts their URLs in its place. Data that is not
/// base64 is refused, large or not.
pub async fn offload_data(app: &App, tenant: &str, msg: Msg) -> ApiResult<Msg> {
    let bad = |at: usize, why: turnwire_core::Error| {
        ApiError::unprocessable(format!("content[{at}]: invalid base64: {why}"))
    };
    for (at, block) in msg.content().iter().enumerate() {
        if let ContentBlock::Data(block) = block
            && !is_large(block)
        {
            decode_whole(&mut block.clone()).transpose().map_err(|why| bad(at, why))?;
        }
    }
    if !has_large_data(&msg) {
        return Ok(msg);
    }
    let mut content = msg.content().to_vec();
    for (at, block) in content.iter_mut().enumerate() {
        if let ContentBlock::Data(block) = block
            && is_large(block)
        {
            offload_block(app, tenant, block).await.map_err(|error| match error {
                OffloadError::InvalidBase64(why) => bad(at, why),
                OffloadError::Rejected(error) => error,
            })?;
        }
    }
    msg.to_builder().content(content).build().map_err(ApiError::internal)
}

/// Replaces the URLs of blobs by their bytes, the newest first, because a model's provider cannot read
/// them here. A blob that is too large or deleted becomes a sentence that says so.
pub(crate) async fn inline_blobs(
    store: &dyn Store,
    config: &Config,
    tenant: &str,
    history: &mut [Msg],
) -> turnwire_log::Result<()> {
    let mut room = MAX_INLINED_BYTES;
    for msg in history.iter_mut().rev() {
        if !msg.blocks::<DataBlock>().any(|block| referenced_blob(block).is_some()) {
            continue;
        }
        let mut content = msg.content().to_vec();
        for block in content.iter_mut().rev() {
            let ContentBlock::Data(data) = block else { continue };
            let Some((url, hash)) = referenced_blob(data) else { continue };
            // A blob that is too large is not read.
            let size = store.find_blob_info(tenant, hash).await?.map(|info| info.size);
            let is_too_large = size.is_some_and(|size| size > room as u64);
            let found = if is_too_large { None } else { store.read_blob(tenant, hash).await? };
            let is_ours = is_own_url(config, url);
            let left_out = match found {
                Some(blob) => {
                    room = room.saturating_sub(blob.bytes.len());
                    let kind = data.media_type().map_or_else(
                        || media_type::essence_or_unknown(&blob.media_type),
                        str::to_owned,
                    );
                    data.source = DataBlock::bytes(&blob.bytes, kind).source;
                    continue;
                }
                None if is_too_large => "the files of this conversation are too large together",
                None if is_ours => "it is not stored any more",
                // The URL of another server.
                None => continue,
            };
            *block = TextBlock::new(left_out_words(data, left_out)).into();
        }
        if let Ok(built) = msg.to_builder().content(content).build() {
            *msg = built;
        }
    }
    Ok(())
}

fn referenced_blob(block: &DataBlock) -> Option<(&str, [u8; 32])> {
    match &block.source {
        Source::Url(source) => hash_in_url(&source.url).map(|hash| (source.url.as_str(), hash)),
        Source::Base64(_) | Source::Other(_) => None,
    }
}

/// Whether a message has data that belongs into a blob.
pub(crate) fn has_large_data(msg: &Msg) -> bool {
    msg.blocks::<DataBlock>().any(is_large)
}

fn is_large(block: &DataBlock) -> bool {
    matches!(&block.source, Source::Base64(source) if source.data.len() > MAX_BASE64_IN_LOG)
}

/// The bytes of a complete block.
fn decode_whole(block: &mut DataBlock) -> Option<Result<Vec<u8>, turnwire_core::Error>> {
    block.finished_at.get_or_insert_default();
    block.decoded()
}

enum OffloadError {
    InvalidBase64(turnwire_core::Error),
    Rejected(ApiError),
}

async fn offload_block(app: &App, tenant: &str, block: &mut DataBlock) -> Result<(), OffloadError> {
    let Some(bytes) = decode_whole(block) else { return Ok(()) };
    let bytes = Bytes::from(bytes.map_err(OffloadError::InvalidBase64)?);
    let media_type = block.media_type().map(media_type::essence_or_unknown);
    let declared_type = media_type.as_deref().unwrap_or(media_type::UNKNOWN);
    let stored =
        store_blob(app, tenant, declared_type, bytes).await.map_err(OffloadError::Rejected)?;
    let url = blob_url(&app.config, &stored.hash);
    block.source = Source::url(url, media_type);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::sha256;
    use turnwire_core::{Part, content_blocks};
    use turnwire_log::MemoryStore;
    use turnwire_log::store::Blob;

    async fn stored(store: &MemoryStore, byte: u8, size: usize) -> String {
        let bytes = Bytes::from(vec![byte; size]);
        let hash = sha256(&bytes);
        let blob = Blob { media_type: "image/png".to_owned(), bytes };
        store.put_blob("t", hash, blob).await.unwrap();
        blob_url(&Config::default(), &hash)
    }

    fn message(urls: &[&str]) -> Msg {
        let parts = urls.iter().map(|url| Part::Data(DataBlock::url(*url, "image/jpeg")));
        Msg::user("ann", parts.collect::<Vec<_>>())
    }

    /// What each block became.
    fn describe_blocks(msg: &Msg) -> Vec<String> {
        let word = |block: &ContentBlock| match block {
            ContentBlock::Data(block) => match block.decoded() {
                Some(bytes) => format!("{} of {:?}", bytes.unwrap().len(), block.media_type()),
                None => "a link".to_owned(),
            },
            ContentBlock::Text(block) => block.text.clone(),
            content_blocks!(Thinking Hint ToolCall ToolResult Other) => String::new(),
        };
        msg.content().iter().map(word).collect()
    }

    #[tokio::test]
    async fn a_model_is_handed_the_newest_bytes_that_have_room() {
        let (store, config) = (MemoryStore::default(), Config::default());
        let large = stored(&store, 1, MAX_INLINED_BYTES - 10).await;
        let (small, tiny) = (stored(&store, 2, 11).await, stored(&store, 3, 10).await);
        let gone = blob_url(&config, &[9; 32]);
        let elsewhere = format!("https://b.example/v1/blobs/{}", blob_id(&[9; 32]));
        let mut history = [
            message(&[&small]),
            message(&[&gone, &elsewhere, "https://a.example/x.png"]),
            message(&[&tiny, &large]),
        ];
        inline_blobs(&store, &config, "t", &mut history).await.unwrap();
        let [oldest, middle, newest] = &history;
        assert_eq!(
            describe_blocks(newest),
            [
                r#"10 of Some("image/jpeg")"#.to_owned(),
                format!(r#"{} of Some("image/jpeg")"#, MAX_INLINED_BYTES - 10)
            ]
        );
        let middle = describe_blocks(middle);
        assert_eq!(middle[0], "[image/jpeg was left out: it is not stored any more]");
        assert_eq!(middle[1..], ["a link", "a link"]);
        let [left_out] = &describe_blocks(oldest)[..] else { unreachable!() };
        assert_eq!(
            left_out,
            "[image/jpeg was left out: the files of this conversation are too large together]"
        );
        // What is another tenant's is not there.
        let mut history = [message(&[&small])];
        inline_blobs(&store, &config, "u", &mut history).await.unwrap();
        assert_eq!(
            describe_blocks(&history[0]),
            ["[image/jpeg was left out: it is not stored any more]"]
        );
    }
}
