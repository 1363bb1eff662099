//! Files below the folder that the operator has opened.

use super::trouble::Trouble;
use super::{Fetched, name_of};
use crate::limits::ReservedBytes;
use bytes::Bytes;
use std::io::Read;
use std::path::{Path, PathBuf};
use url::Url;

/// Who asks for a file outside is not told whether it is there.
fn none() -> Trouble {
    Trouble::Refused("names no file below the folder that is open for links".into())
}

/// Reads a file below a folder, wherever links inside of the path lead.
pub(super) async fn read(
    folder: PathBuf,
    url: Url,
    most: usize,
    held: ReservedBytes,
) -> Result<Fetched, Trouble> {
    let name = name_of(&url);
    let bytes = tokio::task::spawn_blocking(move || bytes(&folder, &url, most, held));
    let (bytes, held) = bytes.await.map_err(|_| Trouble::Failed("cannot be read".into()))??;
    Ok(Fetched { bytes, told: None, name, held })
}

fn bytes(
    folder: &Path,
    url: &Url,
    most: usize,
    mut held: ReservedBytes,
) -> Result<(Bytes, ReservedBytes), Trouble> {
    let path = url.to_file_path().map_err(|()| none())?;
    let folder = folder.canonicalize().map_err(|error| {
        tracing::error!(folder = %folder.display(), %error, "`links.files` cannot be opened");
        none()
    })?;
    let path = path.canonicalize().map_err(|_| none())?;
    // What is no plain file may never end, or never begin.
    if !path.starts_with(&folder) || !path.metadata().is_ok_and(|found| found.is_file()) {
        return Err(none());
    }
    let failed = |_| Trouble::Failed("cannot be read".into());
    let file = std::fs::File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    held.grow(usize::try_from(size).unwrap_or(usize::MAX).min(most))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(Trouble::TooLarge(most));
    }
    Ok((bytes.into(), held))
}
