//! Blobs, and the sessions that refer to them.

use super::Data;
use crate::error::{Error, Result};
use crate::store::{BlobInfo, BlobReferences, NewBlob, SessionNumber};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};

/// The blobs of a tenant.
#[derive(Debug, Default)]
pub(super) struct Blobs {
    stored: HashMap<[u8; 32], StoredBlob>,
    /// Which sessions refer to which blob.
    references: HashMap<[u8; 32], BTreeSet<SessionNumber>>,
    /// The bytes of all blobs.
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct StoredBlob {
    info: BlobInfo,
    pieces: Vec<Bytes>,
    /// Since when no session refers to it.
    unused_ms: Option<i64>,
}

impl StoredBlob {
    fn touch(&mut self, now_ms: i64) {
        self.unused_ms = self.unused_ms.map(|since| since.max(now_ms));
    }
}

impl Blobs {
    pub(super) fn info(&self, hash: [u8; 32]) -> Option<BlobInfo> {
        self.stored.get(&hash).map(|blob| blob.info.clone())
    }

    pub(super) fn touch(&mut self, hash: [u8; 32], now_ms: i64) -> Option<BlobInfo> {
        let blob = self.stored.get_mut(&hash)?;
        blob.touch(now_ms);
        Some(blob.info.clone())
    }

    pub(super) fn piece(&self, hash: [u8; 32], from: u64) -> Option<Bytes> {
        let mut skip = usize::try_from(from).unwrap_or(usize::MAX);
        for piece in &self.stored.get(&hash)?.pieces {
            if skip < piece.len() {
                return Some(piece.slice(skip..));
            }
            skip -= piece.len();
        }
        Some(Bytes::new())
    }

    pub(super) fn set_type(&mut self, hash: [u8; 32], media_type: &str) {
        if let Some(blob) = self.stored.get_mut(&hash) {
            media_type.clone_into(&mut blob.info.media_type);
        }
    }

    pub(super) fn delete(&mut self, hash: [u8; 32]) -> bool {
        let removed = self.stored.remove(&hash);
        if let Some(blob) = &removed {
            self.bytes -= blob.info.size;
        }
        removed.is_some()
    }

    fn store(&mut self, new: NewBlob, mut pieces: Vec<Bytes>) -> Result<(BlobInfo, bool)> {
        if let Some(info) = self.touch(new.hash, new.now_ms) {
            return Ok((info, false));
        }
        pieces.push(new.bytes);
        let size: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let bytes = self.bytes.saturating_add(size);
        if let Some(max) = new.max_bytes.filter(|max| bytes > *max) {
            return Err(Error::OverQuota(max));
        }
        self.bytes = bytes;
        let info = BlobInfo { media_type: new.media_type, size };
        let unused_ms = (!self.references.contains_key(&new.hash)).then_some(new.now_ms);
        self.stored.insert(new.hash, StoredBlob { info: info.clone(), pieces, unused_ms });
        Ok((info, true))
    }

    fn add_references(&mut self, session: SessionNumber, references: &BlobReferences) {
        for hash in references.iter() {
            self.references.entry(*hash).or_default().insert(session);
            if let Some(blob) = self.stored.get_mut(hash) {
                blob.unused_ms = None;
            }
        }
    }

    pub(super) fn remove_references(&mut self, session: SessionNumber, now_ms: i64) {
        self.references.retain(|hash, sessions| {
            sessions.remove(&session);
            if let Some(blob) = self.stored.get_mut(hash).filter(|_| sessions.is_empty()) {
                blob.unused_ms.get_or_insert(now_ms);
            }
            !sessions.is_empty()
        });
    }

    pub(super) fn remove_unused(&mut self, before_ms: i64) -> u64 {
        let unused = |blob: &StoredBlob| blob.unused_ms.is_some_and(|since| since < before_ms);
        let all = self.stored.iter().filter(|(_, blob)| unused(blob));
        let hashes: Vec<[u8; 32]> = all.map(|(hash, _)| *hash).collect();
        hashes.into_iter().map(|hash| u64::from(self.delete(hash))).sum()
    }
}

impl Data {
    pub(super) fn blobs(&self, tenant: &str) -> Option<&Blobs> {
        self.tenants.get(tenant).map(|tenant| &tenant.blobs)
    }

    pub(super) fn blobs_mut(&mut self, tenant: &str) -> &mut Blobs {
        &mut self.tenants.entry(tenant.into()).or_default().blobs
    }

    pub(super) fn begin_upload(&mut self) -> i64 {
        self.last_upload += 1;
        self.uploads.insert(self.last_upload, Vec::new());
        self.last_upload
    }

    pub(super) fn add_piece(&mut self, upload: i64, bytes: Bytes) -> Result<()> {
        self.uploads.get_mut(&upload).ok_or_else(no_upload)?.push(bytes);
        Ok(())
    }

    pub(super) fn store_blob(&mut self, new: NewBlob) -> Result<(BlobInfo, bool)> {
        let pieces = match new.upload {
            Some(upload) => self.uploads.get(&upload.0).cloned().ok_or_else(no_upload)?,
            None => Vec::new(),
        };
        let upload = new.upload;
        let stored = self.blobs_mut(&new.tenant.clone()).store(new, pieces)?;
        upload.map(|upload| self.uploads.remove(&upload.0));
        Ok(stored)
    }

    /// Adds references of a session to blobs, which may be stored later.
    pub(super) fn add_blob_references(
        &mut self,
        session: SessionNumber,
        references: &BlobReferences,
    ) {
        let Some(blob) = self.sessions.get(&session) else { return };
        let tenant = blob.record.key.tenant.clone();
        if references.iter().next().is_some() {
            self.blobs_mut(&tenant).add_references(session, references);
        }
    }
}

fn no_upload() -> Error {
    Error::Store("no such upload, or it has ended".to_owned())
}
