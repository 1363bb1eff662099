//! Puts the blobs of an export into a store, piece by piece.

use super::{BlobLine, BytesLine};
use crate::error::Error;
use crate::log::now_ms;
use crate::store::{BLOB_PIECE_BYTES, NewBlob, Store, UploadNumber};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A blob whose bytes are being read.
pub(super) struct BlobImport {
    tenant: Arc<str>,
    hash: [u8; 32],
    media_type: String,
    /// How many bytes are still to come.
    left: u64,
    hasher: Sha256,
    upload: Option<UploadNumber>,
    /// The last piece that was read.
    last: Bytes,
}

/// Why a blob is not imported.
pub(super) enum BlobFailure {
    /// The lines are wrong.
    Line(String),
    /// The store cannot be written.
    Store(Error),
}

impl From<Error> for BlobFailure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl BlobImport {
    /// Reads the first line of a blob. `tenant` replaces that of the file.
    pub(super) fn new(line: &[u8], tenant: Option<&Arc<str>>) -> Result<Self, String> {
        let line: BlobLine =
            serde_json::from_slice(line).map_err(|error| format!("invalid blob: {error}"))?;
        let mut hash = [0; 32];
        let digits = line.hash.as_bytes();
        let is_hash = digits.len() == 64
            && hash.iter_mut().zip(digits.chunks_exact(2)).all(|(byte, pair)| {
                let pair = str::from_utf8(pair).ok();
                let parsed = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
                parsed.is_some_and(|parsed| {
                    *byte = parsed;
                    true
                })
            });
        if !is_hash {
            return Err("invalid blob: its hash is not a SHA-256".to_owned());
        }
        let own = if line.tenant.is_empty() { "default".into() } else { line.tenant.into() };
        Ok(Self {
            tenant: tenant.cloned().unwrap_or(own),
            hash,
            media_type: line.media_type,
            left: line.size,
            hasher: Sha256::new(),
            upload: None,
            last: Bytes::new(),
        })
    }

    /// Whether all bytes were read.
    pub(super) fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Takes a line with the next bytes.
    pub(super) async fn add_bytes(
        &mut self,
        store: &dyn Store,
        line: &[u8],
    ) -> Result<(), BlobFailure> {
        let wrong = |why: String| BlobFailure::Line(format!("invalid bytes of a blob: {why}"));
        let line: BytesLine<'_> =
            serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
        let bytes =
            BASE64_STANDARD.decode(&*line.data).map_err(|error| wrong(error.to_string()))?;
        let count = bytes.len() as u64;
        if bytes.is_empty() || bytes.len() > BLOB_PIECE_BYTES || count > self.left {
            return Err(wrong(format!(
                "there are {count}; expected at most {BLOB_PIECE_BYTES} in a line, and {} in all",
                self.left
            )));
        }
        if !self.last.is_empty() {
            let upload = match self.upload {
                Some(upload) => upload,
                None => store.begin_upload().await?,
            };
            self.upload = Some(upload);
            store.add_upload_piece(upload, std::mem::take(&mut self.last)).await?;
        }
        self.left -= count;
        self.hasher.update(&bytes);
        self.last = bytes.into();
        Ok(())
    }

    /// Stores the blob. All its bytes were read.
    pub(super) async fn finish(self, store: &dyn Store) -> Result<(), BlobFailure> {
        if <[u8; 32]>::from(self.hasher.clone().finalize()) != self.hash {
            self.abandon(store);
            return Err(BlobFailure::Line("the bytes of a blob do not have its hash".to_owned()));
        }
        let Self { tenant, hash, media_type, upload, last: bytes, .. } = self;
        let now_ms = now_ms();
        let new = NewBlob { tenant, hash, media_type, upload, bytes, now_ms, max_bytes: None };
        store.store_blob(new).await?;
        Ok(())
    }

    /// Gives up.
    pub(super) fn abandon(&self, store: &dyn Store) {
        if let Some(upload) = self.upload {
            store.abandon_upload(upload);
        }
    }
}
