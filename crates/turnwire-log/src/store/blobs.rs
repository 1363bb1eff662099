//! Blobs: bytes stored once per tenant, under their SHA-256, and which sessions refer to them.
//!
//! Large blobs are uploaded and read in pieces, so that neither takes much time or memory at once.
//! A session refers to a blob if the blob's URL is anywhere in its events, messages or metadata.
//! Retention deletes blobs that no session refers to.

use bytes::Bytes;
use memchr::memmem;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use turnwire_core::Fields;

/// The largest piece of a blob. A larger blob has several.
pub const BLOB_PIECE_BYTES: usize = 256 * 1024;

/// Bytes stored under their hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Their media type.
    pub media_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// A blob without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its media type.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The number of an unfinished upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadNumber(pub i64);

/// A blob to store.
#[derive(Debug, Clone)]
pub struct NewBlob {
    /// The tenant that it belongs to.
    pub tenant: Arc<str>,
    /// The SHA-256 of its bytes.
    pub hash: [u8; 32],
    /// Its media type.
    pub media_type: String,
    /// The upload with its first pieces, if it has more than one.
    pub upload: Option<UploadNumber>,
    /// The bytes, or the bytes after the pieces of the upload.
    pub bytes: Bytes,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
    /// The quota in bytes of all blobs of the tenant. `None`: no quota.
    pub max_bytes: Option<u64>,
}

/// The blobs that JSON refers to: every hash after `blobs/`, anywhere.
#[derive(Debug, Clone, Default)]
pub struct BlobReferences(BTreeSet<[u8; 32]>);

impl BlobReferences {
    /// Adds the references in some JSON.
    pub fn add(&mut self, json: &[u8]) {
        for at in memmem::find_iter(json, b"blobs") {
            let rest = json.get(at + b"blobs".len()..).unwrap_or_default();
            // JSON may write a slash as `\/`.
            let rest = rest.strip_prefix(b"\\").unwrap_or(rest);
            if let Some(hash) = rest.strip_prefix(b"/").and_then(parse_hash) {
                self.0.insert(hash);
            }
        }
    }

    /// Adds the references in metadata.
    pub fn add_fields(&mut self, fields: &Fields) {
        // Fields are JSON already, so this does not fail.
        if let Ok(json) = serde_json::to_vec(fields) {
            self.add(&json);
        }
    }

    /// Adds a reference.
    pub fn insert(&mut self, hash: [u8; 32]) {
        self.0.insert(hash);
    }

    /// The hashes, each once.
    pub fn iter(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.0.iter()
    }
}

/// Parses the hash at the start of a text.
fn parse_hash(text: &[u8]) -> Option<[u8; 32]> {
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.get(..64)?.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(hash)
}

impl super::Append {
    /// The blobs that it refers to.
    pub fn blob_references(&self) -> BlobReferences {
        let mut found = BlobReferences::default();
        self.add_blob_references(&mut found);
        found
    }

    /// Adds the blobs that it refers to.
    pub fn add_blob_references(&self, found: &mut BlobReferences) {
        if let Some(lines) = &self.lines {
            found.add(&lines.bytes);
        }
        for message in &self.messages {
            found.add(&message.json);
        }
        for queued in &self.enqueue {
            found.add(&queued.json);
        }
    }
}

/// Bytes in hexadecimal digits, such as the hash of a blob.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references_in(json: &str) -> Vec<[u8; 32]> {
        let mut found = BlobReferences::default();
        found.add(json.as_bytes());
        found.iter().copied().collect()
    }

    #[test]
    fn urls_of_blobs_are_found_wherever_they_are() {
        let (a, b) = ("0a".repeat(32), "B1".repeat(32));
        for json in [
            format!(r#"{{"url":"http://127.0.0.1:4747/v1/blobs/{a}"}}"#),
            format!(r#"{{"url":"https:\/\/x\/v1\/blobs\/{a}","n":1}}"#),
            format!("![a picture](/v1/blobs/{a})"),
            format!("blobs/{a}?x=y and blobs/{a}#z"),
        ] {
            assert_eq!(references_in(&json), [[0x0a; 32]], "{json}");
        }
        assert_eq!(references_in(&format!("blobs/{b} blobsblobs/{a}")), [[0x0a; 32], [0xb1; 32]]);
        for json in ["blobs/", "blobs", &format!("blobs/{}", &a[1..]), &format!("blob/{a}")] {
            assert_eq!(references_in(json), [[0; 32]; 0], "{json}");
        }
    }
}
