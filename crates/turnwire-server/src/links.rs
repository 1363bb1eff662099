//! Fetches the links in messages and stores the files as blobs, before a message is logged.
//!
//! A model may not be able to follow a link, and the file may be gone tomorrow. So the file is stored once,
//! as a blob, and the message points to the blob; the link stays beside it, as `original_url`.
//!
//! | link | what happens |
//! |---|---|
//! | `http`, `https` | fetched, unless the settings leave it to the model |
//! | `file` | read, below the one folder that the settings open |
//! | a blob of this server | must exist |
//! | anything else, such as `gs:` or a provider's own id | stays as it is |
//!
//! Whoever may send messages can make this server request any link. So it connects to nothing outside the
//! public internet: see `web` and `address`.

mod address;
mod file;
mod link_error;
mod sniff;
mod web;

pub use sniff::detect_media_type;

pub(crate) use link_error::redacted_url;

use crate::app::App;
use crate::auth::sha256;
use crate::blobs::{self, media_type};
use crate::config::{Config, LinksConfig};
use crate::error::{ApiError, ApiResult};
use crate::limits::{FairQueue, ReservedBytes};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use link_error::LinkError;
use std::collections::HashMap;
use std::path::PathBuf;
use tokio::time::{Instant, timeout_at};
use turnwire_core::block::{DataKind, UrlSource};
use turnwire_core::{BlockKind, ContentBlock, DataBlock, Msg, Source};
use turnwire_log::log::now_ms;
use url::Url;
use web::WebFetcher;

/// The field of a source that has the original link.
const ORIGINAL_URL: &str = "original_url";
/// How many links of one request are fetched at the same time.
const CONCURRENT_PER_REQUEST: usize = 4;
/// The longest file name that is taken from a link.
const MAX_FILE_NAME: usize = 128;

/// Fetches links, fairly between tenants.
#[derive(Debug)]
pub(crate) struct Links {
    web: WebFetcher,
    queue: FairQueue,
}

impl Links {
    pub(crate) fn new(config: &Config) -> Self {
        let LinksConfig { at_once, at_once_per_tenant, .. } = config.links;
        let share = if config.auth.has_credentials() { at_once / 4 } else { at_once };
        let queue = FairQueue::new(at_once, at_once_per_tenant.unwrap_or(share));
        Self { web: WebFetcher::default(), queue }
    }
}

/// A fetched file.
struct FetchedFile {
    bytes: Bytes,
    /// The media type that its server sends.
    declared_type: Option<String>,
    /// The file's name.
    name: Option<String>,
    /// The bytes count in the memory budget until this is dropped.
    held: ReservedBytes,
}

/// The blob that replaces a link.
struct StoredLink {
    url: String,
    media_type: Option<String>,
    /// The original link and its file name, unless it named a blob of this server.
    original: Option<(String, Option<String>)>,
}

/// Where a link leads.
#[derive(Debug)]
enum LinkTarget {
    Web(Url),
    File(PathBuf, Url),
    Blob([u8; 32]),
}

/// A link that has to be fetched or checked.
struct PendingLink {
    /// The index of its block in the message.
    at: usize,
    url: String,
    /// The media type of the block.
    declared_type: Option<String>,
    target: LinkTarget,
}

/// Whether a message has links that have to be fetched or read.
pub(crate) fn has_slow_links(config: &Config, msg: &Msg) -> bool {
    let mut links = links_in(msg);
    links.any(|(_, _, source)| {
        !matches!(link_target(config, &source.url), Ok(None | Some(LinkTarget::Blob(_))))
    })
}

/// Fetches the links of messages for a tenant. All files are stored when this returns; after an error none
/// of the messages may be logged.
pub(crate) async fn fetch_links(
    app: &App,
    tenant: &str,
    messages: Vec<Msg>,
) -> ApiResult<Vec<Msg>> {
    let wanted = links_to_fetch(&app.config, &messages)?;
    if wanted.is_empty() {
        return Ok(messages);
    }
    let until = Instant::now() + app.config.links.timeout.0;
    let bringing: Vec<BoxFuture<'_, _>> =
        wanted.into_iter().map(|wanted| fetch_one(app, tenant, wanted, until).boxed()).collect();
    let found: HashMap<String, StoredLink> = tokio::select! {
        found = stream::iter(bringing).buffered(CONCURRENT_PER_REQUEST).try_collect() => found?,
        () = app.shutdown.cancelled() => {
            return Err(ApiError::unavailable("the server is stopping; nothing was stored")
                .hint("send it again in a moment"));
        }
    };
    messages.into_iter().map(|msg| replace_links(msg, &found)).collect()
}

/// All links of a message, with the indices of their blocks.
fn links_in(msg: &Msg) -> impl Iterator<Item = (usize, &DataBlock, &UrlSource)> {
    msg.content().iter().enumerate().filter_map(|(at, block)| {
        let block = DataBlock::from_block(block)?;
        match &block.source {
            Source::Url(source) => Some((at, block, source)),
            Source::Base64(_) | Source::Other(_) => None,
        }
    })
}

/// The links that have to be fetched or checked, each once.
fn links_to_fetch(config: &Config, messages: &[Msg]) -> ApiResult<Vec<PendingLink>> {
    let mut all: Vec<PendingLink> = Vec::new();
    let most = config.links.per_message;
    for msg in messages {
        let mut count = 0;
        for (at, block, UrlSource { url, .. }) in links_in(msg) {
            let target =
                link_target(config, url).map_err(|trouble| trouble.into_api_error(at, url))?;
            let Some(target) = target else { continue };
            count += 1;
            if count > most {
                return Err(ApiError::unprocessable(format!(
                    "a message may have at most {most} links; nothing was stored"
                ))
                .kind("too_many_links")
                .hint("use several messages; the operator can raise `links.per_message`"));
            }
            if all.iter().all(|known| known.url != *url) {
                let declared_type =
                    turnwire_wires::model_request::media_type(block).and_then(sniff::declared_type);
                all.push(PendingLink { at, url: url.clone(), declared_type, target });
            }
        }
    }
    Ok(all)
}

/// The target of a link. `None`: the link stays as it is.
fn link_target(config: &Config, url: &str) -> Result<Option<LinkTarget>, LinkError> {
    if let Some(hash) = blobs::hash_in_url(url) {
        return Ok(Some(LinkTarget::Blob(hash)));
    }
    let Ok(parsed) = Url::parse(url) else { return Ok(None) };
    web_or_file(&config.links, parsed)
}

fn web_or_file(config: &LinksConfig, url: Url) -> Result<Option<LinkTarget>, LinkError> {
    match url.scheme() {
        "http" | "https" if !config.fetch || web::is_listed_host(&config.leave, &url) => Ok(None),
        "http" | "https" => {
            web::check_url(&url)?;
            Ok(Some(LinkTarget::Web(url)))
        }
        "file" => match &config.files {
            Some(folder) => Ok(Some(LinkTarget::File(folder.clone(), url))),
            None => Err(LinkError::Refused(
                "names a file of this machine, and `links.files` is not set".into(),
            )),
        },
        _ => Ok(None),
    }
}

/// Fetches one link; an error names it.
async fn fetch_one(
    app: &App,
    tenant: &str,
    wanted: PendingLink,
    until: Instant,
) -> ApiResult<(String, StoredLink)> {
    let PendingLink { at, url, declared_type, target } = wanted;
    match resolve_link(app, tenant, &url, declared_type.as_deref(), target, until).await {
        Ok(found) => Ok((url, found)),
        Err(trouble) => {
            tracing::debug!(link = redacted_url(&url), ?trouble, "a link was not fetched");
            Err(trouble.into_api_error(at, &url))
        }
    }
}

async fn resolve_link(
    app: &App,
    tenant: &str,
    url: &str,
    declared_type: Option<&str>,
    target: LinkTarget,
    until: Instant,
) -> Result<StoredLink, LinkError> {
    let target = match target {
        LinkTarget::Blob(hash) => {
            match app.log.store().touch_blob(tenant, hash, now_ms()).await? {
                Some(info) => {
                    let url = blobs::blob_url(&app.config, &hash);
                    let media_type = Some(media_type::essence_or_unknown(&info.media_type));
                    return Ok(StoredLink { url, media_type, original: None });
                }
                None if blobs::is_own_url(&app.config, url) => {
                    return Err(LinkError::Failed("names a blob that does not exist".into()));
                }
                // A blob of another server is a link like any other.
                None => match Url::parse(url).ok().map(|url| web_or_file(&app.config.links, url)) {
                    Some(target) => target?,
                    None => None,
                },
            }
        }
        target @ (LinkTarget::Web(_) | LinkTarget::File(..)) => Some(target),
    };
    let config = &app.config.links;
    let most = config.size.bytes().min(app.config.limits.blob.bytes());
    let work = async {
        let _permit = app.links.queue.acquire(tenant).await?;
        let held = app.buffered.reserve(tenant, 0)?;
        match target {
            Some(LinkTarget::Web(url)) => {
                app.links.web.fetch(config, url, most, held).await.map(Some)
            }
            Some(LinkTarget::File(folder, url)) => {
                file::read_file(folder, url, most, held).await.map(Some)
            }
            Some(LinkTarget::Blob(_)) | None => Ok(None),
        }
    };
    let fetched = timeout_at(until, work).await.unwrap_or_else(|_| {
        Err(LinkError::Failed(format!("took longer than {:?}", config.timeout.0).into()))
    });
    match fetched? {
        Some(fetched) => store_fetched(app, tenant, url, declared_type, fetched).await,
        None => Ok(StoredLink { url: url.to_owned(), media_type: None, original: None }),
    }
}

/// Stores a fetched file as a blob, if its media type is allowed.
async fn store_fetched(
    app: &App,
    tenant: &str,
    url: &str,
    declared_type: Option<&str>,
    fetched: FetchedFile,
) -> Result<StoredLink, LinkError> {
    let FetchedFile { bytes, declared_type: served_type, name, held: _held } = fetched;
    if bytes.is_empty() {
        return Err(LinkError::Failed("is empty".into()));
    }
    let kind = detect_media_type(served_type.as_deref(), name.as_deref(), &bytes);
    if !app.config.links.types.iter().any(|taken| taken.matches(&kind)) {
        return Err(LinkError::UnsupportedType(format!("is {kind}, which is not allowed")));
    }
    // An HTML page instead of an image is an error page or a cookie banner.
    let is_media = |declared_type: &&str| {
        matches!(sniff::type_family(declared_type), "image" | "audio" | "video")
    };
    if let Some(declared_type) = declared_type.filter(is_media)
        && sniff::type_family(declared_type) != sniff::type_family(&kind)
    {
        return Err(LinkError::UnsupportedType(format!(
            "is declared as {declared_type}, but is {kind}"
        )));
    }
    let stored = blobs::store_blob(app, tenant, &kind, bytes).await?;
    Ok(StoredLink {
        url: blobs::blob_url(&app.config, &stored.hash),
        media_type: Some(kind),
        original: Some((url.to_owned(), name)),
    })
}

/// Replaces the links of a message by the stored blobs.
fn replace_links(msg: Msg, found: &HashMap<String, StoredLink>) -> ApiResult<Msg> {
    let is_found =
        |(_, _, source): (usize, &DataBlock, &UrlSource)| found.contains_key(&source.url);
    if !links_in(&msg).any(is_found) {
        return Ok(msg);
    }
    let mut content = msg.content().to_vec();
    for block in &mut content {
        if let ContentBlock::Data(block) = block
            && let Source::Url(source) = &mut block.source
            && let Some(found) = found.get(&source.url)
        {
            source.url.clone_from(&found.url);
            match &found.original {
                None if source.media_type.is_some() => {}
                _ => source.media_type.clone_from(&found.media_type),
            }
            if let Some((url, name)) = &found.original {
                source.rest.insert(ORIGINAL_URL, url.as_str());
                if block.kind == DataKind::Data && block.name.is_none() {
                    block.name.clone_from(name);
                }
            }
        }
    }
    msg.to_builder().content(content).build().map_err(ApiError::internal)
}

/// Whether a stored block comes from a client's block, whose link was fetched or whose data was offloaded.
pub(crate) fn is_same_data(stored: &DataBlock, sent: &DataBlock) -> bool {
    if stored.source == sent.source {
        return stored.name == sent.name;
    }
    let Source::Url(known) = &stored.source else { return false };
    let is_it = match &sent.source {
        Source::Url(sent) => {
            let original: Option<String> = known.rest.get(ORIGINAL_URL).ok().flatten();
            original.is_some_and(|original| original == sent.url)
                || blobs::hash_in_url(&known.url)
                    .is_some_and(|hash| blobs::hash_in_url(&sent.url) == Some(hash))
        }
        Source::Base64(_) => sent.decoded().and_then(Result::ok).is_some_and(|bytes| {
            blobs::hash_in_url(&known.url).is_some_and(|hash| hash == sha256(&bytes))
        }),
        Source::Other(_) => false,
    };
    is_it && (sent.name.is_none() || stored.name == sent.name)
}

/// The file name in a link.
fn file_name(url: &Url) -> Option<String> {
    let last = url.path_segments()?.next_back()?;
    // This decodes escapes and removes folders.
    let path = Url::parse(&format!("file:///{last}")).ok()?.to_file_path().ok()?;
    let name = path.file_name()?.to_str()?;
    let fits = name.contains('.') && !name.chars().any(char::is_control);
    (fits && name.chars().count() <= MAX_FILE_NAME).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_end_of_the_path() {
        for (url, name) in [
            ("https://a.example/x/b%C3%A1o%20c%C3%A1o.pdf?x=1", Some("báo cáo.pdf")),
            ("https://a.example/x/..%2f..%2fpasswd.txt", Some("passwd.txt")),
            ("https://a.example/page", None),
            ("https://a.example/", None),
            ("https://a.example/a%00.png", None),
        ] {
            assert_eq!(file_name(&Url::parse(url).unwrap()).as_deref(), name, "{url}");
        }
    }

    #[test]
    fn what_was_brought_in_is_still_what_was_said() {
        let (hash, other) = ("ab".repeat(32), "cd".repeat(32));
        let mut stored = DataBlock::url(format!("http://h/v1/blobs/{hash}"), "image/png");
        let Source::Url(source) = &mut stored.source else { unreachable!() };
        source.rest.insert(ORIGINAL_URL, "https://a.example/x.png");
        stored.name = Some("x.png".to_owned());
        let sent = |url: &str| DataBlock::url(url, "image/jpeg");
        assert!(is_same_data(&stored, &sent("https://a.example/x.png")));
        assert!(is_same_data(&stored, &sent(&format!("/v1/blobs/{hash}"))));
        assert!(!is_same_data(&stored, &sent(&format!("/v1/blobs/{other}"))));
        assert!(!is_same_data(&stored, &sent("https://a.example/y.png")));
        let renamed = DataBlock { name: Some("y".to_owned()), ..sent("https://a.example/x.png") };
        assert!(!is_same_data(&stored, &renamed));
        let bytes = DataBlock::bytes(b"hello", "image/png");
        let moved =
            DataBlock::url(format!("/v1/blobs/{}", blobs::blob_id(&sha256(b"hello"))), "image/png");
        assert!(is_same_data(&moved, &bytes));
        assert!(!is_same_data(&stored, &bytes));
    }
}
