//! The built console (`console/dist`), embedded in the binary. `turnwire-server` serves it.
//!
//! It is a crate of its own, so that its package contains the built files, and installing the server does
//! not need Node.

use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::{Embed, EmbeddedFile};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{LazyLock, OnceLock};

#[derive(Embed)]
#[folder = "dist"]
struct Dist;

/// One file of the console.
#[derive(Debug)]
pub struct File {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The same bytes with gzip, if that is smaller.
    pub gzip: Option<Vec<u8>>,
    /// Its media type.
    pub media_type: &'static str,
    /// The `ETag` header, a hash of the bytes in quotes.
    pub etag: String,
    /// Its name contains a hash of the bytes, so it may be cached for ever.
    pub is_immutable: bool,
}

/// Each file is compressed when it is first requested: the first page after a start does not wait for the others.
static FILES: LazyLock<BTreeMap<String, OnceLock<Option<File>>>> =
    LazyLock::new(|| Dist::iter().map(|path| (path.to_string(), OnceLock::new())).collect());

/// The file at a path such as `index.html` or `assets/index-1a2b.js`.
pub fn file(path: &str) -> Option<&'static File> {
    let (path, file) = FILES.get_key_value(path)?;
    file.get_or_init(|| Some(read(path, &Dist::get(path)?))).as_ref()
}

/// All paths.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.keys().map(String::as_str)
}

fn read(path: &str, file: &EmbeddedFile) -> File {
    let hash = file.metadata.sha256_hash();
    let mut etag = String::from("\"");
    for byte in hash.iter().take(12) {
        // Writing to a string does not fail.
        let _ = write!(etag, "{byte:02x}");
    }
    etag.push('"');
    File {
        gzip: gzip(&file.data),
        media_type: media_type(path),
        etag,
        // Files that the build names after their content.
        is_immutable: path.starts_with("assets/"),
        bytes: file.data.to_vec(),
    }
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|short| short.len() < bytes.len())
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_and_so_is_all_that_it_loads() {
        let page = file("index.html").expect("the console is built");
        let page = String::from_utf8(page.bytes.clone()).expect("text");
        let loaded: Vec<&str> =
            page.split(['"', '\'']).filter_map(|part| part.strip_prefix("./")).collect();
        assert!(loaded.iter().any(|path| path.contains(".js")), "{page}");
        for path in loaded {
            assert!(file(path).is_some(), "{path} is named by the page and not there");
        }
    }

    #[test]
    fn every_file_has_a_type_of_its_own() {
        for path in paths() {
            assert_ne!(
                file(path).expect("listed").media_type,
                "application/octet-stream",
                "{path}"
            );
        }
    }
}
