//! `file://` links: reads files below the folder `links.files`.

use super::link_error::LinkError;
use super::{FetchedFile, file_name};
use crate::limits::ReservedBytes;
use bytes::Bytes;
use std::io::Read;
use std::path::{Path, PathBuf};
use url::Url;

/// The same error for every file outside, so that it does not tell whether the file exists.
fn no_such_file() -> LinkError {
    LinkError::Refused("names no file below the folder `links.files`".into())
}

/// Reads a file below a folder, after resolving symbolic links.
pub(super) async fn read_file(
    folder: PathBuf,
    url: Url,
    most: usize,
    held: ReservedBytes,
) -> Result<FetchedFile, LinkError> {
    let name = file_name(&url);
    let bytes = tokio::task::spawn_blocking(move || read_bytes(&folder, &url, most, held));
    let (bytes, held) = bytes.await.map_err(|_| LinkError::Failed("cannot be read".into()))??;
    Ok(FetchedFile { bytes, declared_type: None, name, held })
}

fn read_bytes(
    folder: &Path,
    url: &Url,
    most: usize,
    mut held: ReservedBytes,
) -> Result<(Bytes, ReservedBytes), LinkError> {
    let path = url.to_file_path().map_err(|()| no_such_file())?;
    let folder = folder.canonicalize().map_err(|error| {
        tracing::error!(folder = %folder.display(), %error, "`links.files` cannot be opened");
        no_such_file()
    })?;
    let path = path.canonicalize().map_err(|_| no_such_file())?;
    // Reading a device or a pipe may never end.
    if !path.starts_with(&folder) || !path.metadata().is_ok_and(|found| found.is_file()) {
        return Err(no_such_file());
    }
    let failed = |_| LinkError::Failed("cannot be read".into());
    let file = std::fs::File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    held.grow(usize::try_from(size).unwrap_or(usize::MAX).min(most))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(LinkError::TooLarge(most));
    }
    Ok((bytes.into(), held))
}
