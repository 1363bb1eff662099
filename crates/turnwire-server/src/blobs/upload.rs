//! Stores a blob while it is uploaded: hashes it and writes it in pieces, so that a large blob is never
//! whole in memory.

use super::media_type;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::limits::ReservedBytes;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use sha2::{Digest, Sha256};
use turnwire_log::log::now_ms;
use turnwire_log::store::{BLOB_PIECE_BYTES, BlobInfo, NewBlob, UploadNumber};

/// An unfinished upload. Dropping it removes what was written.
pub(crate) struct Upload<'a> {
    app: &'a App,
    tenant: &'a str,
    hash: Sha256,
    size: u64,
    /// The end of the blob, not yet written.
    piece: BytesMut,
    /// The upload that has the pieces before it.
    no: Option<UploadNumber>,
    /// The bytes of the tenant's other blobs when the upload began.
    used: u64,
    buffered: ReservedBytes,
    unfinished: ReservedBytes,
}

/// A stored blob.
#[derive(Debug)]
pub(crate) struct StoredBlob {
    pub(crate) hash: [u8; 32],
    pub(crate) info: BlobInfo,
    /// Whether it did not exist before.
    pub(crate) is_new: bool,
}

/// Stores bytes as a blob.
pub(crate) async fn store_blob(
    app: &App,
    tenant: &str,
    media_type: &str,
    bytes: Bytes,
) -> ApiResult<StoredBlob> {
    let mut upload = Upload::begin(app, tenant, Some(bytes.len() as u64)).await?;
    upload.write(bytes).await?;
    upload.finish(media_type).await
}

impl<'a> Upload<'a> {
    /// Starts an upload, unless its announced size exceeds the tenant's quota.
    pub(crate) async fn begin(
        app: &'a App,
        tenant: &'a str,
        announced: Option<u64>,
    ) -> ApiResult<Self> {
        let mut upload = Self {
            app,
            tenant,
            hash: Sha256::new(),
            size: 0,
            piece: BytesMut::new(),
            no: None,
            used: app.log.store().blob_bytes_used(tenant).await?,
            buffered: app.buffered.reserve(tenant, 0)?,
            unfinished: app.uploads.reserve(tenant, 0)?,
        };
        upload.count_bytes(announced.unwrap_or(0))?;
        // The bytes are counted again when they arrive.
        upload.size = 0;
        Ok(upload)
    }

    /// How many bytes have arrived.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Counts more bytes; an error if they exceed the quota.
    fn count_bytes(&mut self, more: u64) -> ApiResult<()> {
        self.size = self.size.saturating_add(more);
        match quota(self.app) {
            Some(max) if self.used.saturating_add(self.size) > max => {
                Err(turnwire_log::Error::OverQuota(max).into())
            }
            _ => Ok(()),
        }
    }

    /// Adds bytes. When this returns, at most one piece is in memory.
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> ApiResult<()> {
        self.count_bytes(bytes.len() as u64)?;
        self.unfinished.grow(bytes.len()).map_err(|error| too_many_uploads(&error))?;
        self.hash.update(&bytes);
        loop {
            let taken = bytes.split_to(bytes.len().min(BLOB_PIECE_BYTES - self.piece.len()));
            let more = (self.piece.len() + taken.len()).saturating_sub(self.buffered.bytes());
            self.buffered.grow(more)?;
            self.piece.extend_from_slice(&taken);
            // A full piece is kept until more bytes arrive: it may be the last one.
            if bytes.is_empty() {
                return Ok(());
            }
            self.write_piece().await?;
        }
    }

    async fn write_piece(&mut self) -> ApiResult<()> {
        let store = self.app.log.store();
        let no = match self.no {
            Some(no) => no,
            None => *self.no.insert(store.begin_upload().await?),
        };
        Ok(store.add_upload_piece(no, self.piece.split().freeze()).await?)
    }

    /// Stores the blob. Bytes that exist already are not stored again.
    pub(crate) async fn finish(mut self, media_type: &str) -> ApiResult<StoredBlob> {
        let (store, tenant) = (self.app.log.store(), self.tenant);
        let hash: [u8; 32] = std::mem::take(&mut self.hash).finalize().into();
        let new = NewBlob {
            tenant: tenant.into(),
            hash,
            media_type: media_type.to_owned(),
            upload: self.no,
            bytes: self.piece.split().freeze(),
            now_ms: now_ms(),
            max_bytes: quota(self.app),
        };
        let (mut info, is_new) = store.store_blob(new).await?;
        self.no = None;
        if media_type::outranks(media_type, &info.media_type) {
            store.set_blob_type(tenant, hash, media_type).await?;
            media_type.clone_into(&mut info.media_type);
        }
        Ok(StoredBlob { hash, info, is_new })
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if let Some(no) = self.no {
            self.app.log.store().abandon_upload(no);
        }
    }
}

/// How many bytes the blobs of a tenant may have together.
fn quota(app: &App) -> Option<u64> {
    Some(app.config.limits.blobs.0).filter(|max| *max > 0)
}

/// The budget's own error speaks of memory.
fn too_many_uploads(error: &ApiError) -> ApiError {
    let again = "try again when some uploads have finished";
    if error.status() == StatusCode::TOO_MANY_REQUESTS {
        ApiError::too_many("the unfinished uploads of this tenant have too many bytes")
    } else {
        ApiError::unavailable("the unfinished uploads have too many bytes")
    }
    .kind("too_many_uploads")
    .hint(again)
    .retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use turnwire_log::{Log, MemoryStore};

    const MIB: usize = 1 << 20;

    fn app(limits: &str) -> Arc<App> {
        let config = Config::parse("test", &format!("[limits]\n{limits}")).unwrap();
        let log = Arc::new(Log::new(Arc::new(MemoryStore::default()), "test"));
        App::new(config, log, BTreeMap::new()).unwrap()
    }

    #[tokio::test]
    async fn an_upload_holds_one_piece_in_memory_however_much_has_come() {
        let app = app("");
        let mut uploads = Vec::new();
        for number in 0..8 {
            let mut upload = Upload::begin(&app, "t", None).await.unwrap();
            for _ in 0..3 {
                upload.write(Bytes::from(vec![number; MIB])).await.unwrap();
            }
            uploads.push(upload);
        }
        assert!(app.buffered.used() <= 8 * BLOB_PIECE_BYTES, "{}", app.buffered.used());
        assert_eq!(app.uploads.used(), 8 * 3 * MIB);
        let stored = uploads.pop().unwrap().finish("image/png").await.unwrap();
        assert_eq!((stored.info.size, stored.is_new), (3 * MIB as u64, true));
        let expected: [u8; 32] = Sha256::digest(vec![7; 3 * MIB]).into();
        assert_eq!(stored.hash, expected);
        // What breaks off leaves nothing behind.
        drop(uploads);
        assert_eq!((app.buffered.used(), app.uploads.used()), (0, 0));
        assert_eq!(app.log.store().blob_bytes_used("t").await.unwrap(), 3 * MIB as u64);
    }

    #[tokio::test]
    async fn unfinished_uploads_are_bounded_per_tenant_and_in_all() {
        let app = app("blob = \"1 MiB\"\nuploads_per_tenant = \"2 MiB\"\nuploads = \"3 MiB\"");
        let begin = async |tenant: &'static str| Upload::begin(&app, tenant, None).await.unwrap();
        let mib = || Bytes::from(vec![1; MIB]);
        let mut first = [begin("a").await, begin("a").await];
        for upload in &mut first {
            upload.write(mib()).await.unwrap();
        }
        let error = begin("a").await.write(mib()).await.unwrap_err();
        assert_eq!((error.status().as_u16(), error.name()), (429, "too_many_uploads"));
        let mut other = begin("b").await;
        other.write(mib()).await.unwrap();
        let error = begin("c").await.write(mib()).await.unwrap_err();
        assert_eq!((error.status().as_u16(), error.name()), (503, "too_many_uploads"));
        drop(first);
        begin("a").await.write(mib()).await.unwrap();
    }

    #[tokio::test]
    async fn memory_for_pieces_is_counted_with_that_of_other_requests() {
        let app =
            app("body = \"1 KiB\"\nbuffered_per_tenant = \"300 KiB\"\nbuffered = \"300 KiB\"");
        let mut first = Upload::begin(&app, "a", None).await.unwrap();
        first.write(Bytes::from(vec![1; MIB])).await.unwrap();
        let mut second = Upload::begin(&app, "a", None).await.unwrap();
        let error = second.write(Bytes::from(vec![2; MIB])).await.unwrap_err();
        assert_eq!(error.status(), 429);
    }

    #[tokio::test]
    async fn the_quota_holds_though_uploads_end_at_the_same_time() {
        let app = app("blobs = \"3 MiB\"");
        let puts =
            (0..8).map(|number| store_blob(&app, "t", "image/png", vec![number; MIB].into()));
        let done = futures_util::future::join_all(puts).await;
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 3);
        let refused = done.iter().filter_map(|done| done.as_ref().err());
        assert!(refused.into_iter().all(|error| error.name() == "quota_exceeded"));
        assert_eq!(app.uploads.used(), 0);
    }
}
