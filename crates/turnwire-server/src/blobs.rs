//! Bytes that are too large for the log: stored once per tenant, under their hash.

use crate::app::App;
use crate::auth::sha256;
use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use bytes::Bytes;
use std::fmt::Write as _;
use turnwire_core::block::UrlSource;
use turnwire_core::{ContentBlock, DataBlock, Msg, Source};
use turnwire_log::store::Blob;

/// Base64 longer than this does not go into the log.
pub const LARGE: usize = 64 * 1024;

/// The address of a blob.
pub fn url(config: &Config, hash: &[u8; 32]) -> String {
    let base = if let Some(url) = &config.public_url {
        url.0.as_str().trim_end_matches('/').to_owned()
    } else {
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", config.listen.0)
    };
    format!("{base}/v1/blobs/{}", id(hash))
}

/// The id of a blob: its hash in hexadecimal digits.
pub fn id(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string never fails.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Moves large data of a message to where blobs are, and leaves their addresses. Data that is no
/// base64 is refused, large or not: nobody could do anything with it later.
pub async fn offload(app: &App, tenant: &str, msg: Msg) -> ApiResult<Msg> {
    let bad = |at: usize, why: turnwire_core::Error| {
        ApiError::unprocessable(format!("content[{at}]: the data is no base64: {why}"))
    };
    for (at, block) in msg.content().iter().enumerate() {
        if let ContentBlock::Data(block) = block
            && !is_large(block)
        {
            whole(&mut block.clone()).transpose().map_err(|why| bad(at, why))?;
        }
    }
    if !msg.blocks::<DataBlock>().any(is_large) {
        return Ok(msg);
    }
    let mut content = msg.content().to_vec();
    for (at, block) in content.iter_mut().enumerate() {
        if let ContentBlock::Data(block) = block
            && is_large(block)
        {
            move_out(app, tenant, block).await.map_err(|error| match error {
                Out::Bad(why) => bad(at, why),
                Out::Log(error) => error.into(),
            })?;
        }
    }
    msg.to_builder().content(content).build().map_err(ApiError::internal)
}

fn is_large(block: &DataBlock) -> bool {
    matches!(&block.source, Source::Base64(source) if source.data.len() > LARGE)
}

/// The bytes of a block that does not grow any more: one that has ended has to be whole.
fn whole(block: &mut DataBlock) -> Option<Result<Vec<u8>, turnwire_core::Error>> {
    block.finished_at.get_or_insert_default();
    block.decoded()
}

enum Out {
    Bad(turnwire_core::Error),
    Log(turnwire_log::Error),
}

async fn move_out(app: &App, tenant: &str, block: &mut DataBlock) -> Result<(), Out> {
    let Some(bytes) = whole(block) else { return Ok(()) };
    let bytes = Bytes::from(bytes.map_err(Out::Bad)?);
    let media_type = block.media_type().map(str::to_owned);
    let hash = sha256(&bytes);
    let blob = Blob {
        media_type: media_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned()),
        bytes,
    };
    app.log.store().put_blob(tenant, hash, blob).await.map_err(Out::Log)?;
    let url = url(&app.config, &hash);
    block.source = Source::Url(UrlSource { url, media_type, ..UrlSource::default() });
    Ok(())
}
