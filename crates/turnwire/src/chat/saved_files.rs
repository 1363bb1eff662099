//! Saves images and other files of a reply to a folder.

use super::render::FileSaver;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use turnwire_log::private_file;

/// The most files with the same name.
const MAX_SAME_NAME: usize = 1000;
/// The longest file name, in characters.
const MAX_NAME_CHARS: usize = 100;

/// A folder, created with its first file.
pub(crate) struct SaveFolder {
    path: PathBuf,
}

impl SaveFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The chosen folder, or one for this session in the user's data folder.
    pub(crate) fn for_session(chosen: Option<&Path>, session: &str) -> Self {
        if let Some(path) = chosen {
            return Self::new(path.to_owned());
        }
        let folders = directories::ProjectDirs::from("", "", "turnwire");
        let base = folders.map_or_else(std::env::temp_dir, |folders| folders.data_dir().to_owned());
        Self::new(base.join("files").join(sanitize_file_name(session)))
    }
}

impl FileSaver for SaveFolder {
    fn save(&mut self, name: Option<&str>, media_type: &str, bytes: &[u8]) -> io::Result<String> {
        fs::create_dir_all(&self.path)?;
        let name = name.map(sanitize_file_name).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| format!("file.{}", file_extension(media_type)));
        let (stem, ending) = match name.rsplit_once('.') {
            Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
            _ => (&*name, String::new()),
        };
        for number in 1..MAX_SAME_NAME {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.path.join(format!("{stem}{number}{ending}"));
            match private_file::create_new(&path) {
                Ok(mut file) => {
                    file.write_all(bytes)?;
                    return Ok(path.display().to_string());
                }
                // The same file was saved before.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::read(&path).is_ok_and(|there| there == bytes) {
                        return Ok(path.display().to_string());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many files with this name"))
    }
}

/// Turns an untrusted name into one that stays in its folder.
fn sanitize_file_name(name: &str) -> String {
    let is_fine = |char: char| char.is_alphanumeric() || matches!(char, '.' | '-' | '_' | ' ');
    let name: String = name
        .chars()
        .take(MAX_NAME_CHARS)
        .map(|char| if is_fine(char) { char } else { '_' })
        .collect();
    name.trim_matches(['.', ' ']).to_owned()
}

fn file_extension(media_type: &str) -> &str {
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    match kind {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "text/plain" => "txt",
        "audio/mpeg" => "mp3",
        _ => {
            let sub = kind.split_once('/').map_or("", |(_, sub)| sub);
            let is_plain = !sub.is_empty() && sub.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_plain { sub } else { "bin" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_saved_once_and_never_outside_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = SaveFolder::new(folder.path().join("new"));
        let mut saver = |name, media, bytes: &[u8]| {
            let path = files.save(name, media, bytes).unwrap();
            path.strip_prefix(&format!("{}/", folder.path().join("new").display()))
                .unwrap_or(&path)
                .to_owned()
        };
        assert_eq!(saver(Some("a.png"), "image/png", b"1"), "a.png");
        assert_eq!(saver(Some("a.png"), "image/png", b"1"), "a.png");
        assert_eq!(saver(Some("a.png"), "image/png", b"2"), "a-2.png");
        assert_eq!(saver(Some("../../etc/passwd"), "text/plain", b"x"), "_.._etc_passwd");
        assert_eq!(saver(None, "image/jpeg", b"x"), "file.jpg");
        assert_eq!(saver(Some(".."), "application/x-../y", b"x"), "file.bin");
    }
}
