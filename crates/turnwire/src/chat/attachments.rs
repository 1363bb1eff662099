//! Files for the next message: reads them, and checks size and type.

use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use turnwire_core::DataBlock;
use turnwire_server::detect_media_type;

/// The size of all files of a message. As base64 they fit into 16 MiB, the default limit of a request body.
const MAX_BYTES: u64 = 11 << 20;
/// The number of files of a message.
const MAX_FILES: usize = 20;
/// Types that are recognised by their first bytes. A file with such a name and other content is damaged or misnamed.
const BY_CONTENT: [&str; 5] =
    ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"];
/// What a model may read, besides images, audio, video and text.
const DOCUMENTS: [&str; 7] = [
    "application/pdf",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
];

/// The files of the next message.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    files: Vec<Attachment>,
}

#[derive(Debug)]
struct Attachment {
    name: String,
    media_type: String,
    bytes: Vec<u8>,
}

impl Attachments {
    /// Reads a file. The text describes it, or says why it cannot be attached.
    pub(crate) fn add(&mut self, path: &Path) -> Result<String, String> {
        let failed =
            |why: &dyn std::fmt::Display| format!("cannot attach {}: {why}", path.display());
        if self.files.len() >= MAX_FILES {
            return Err(failed(&format!("a message has at most {MAX_FILES} files")));
        }
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        // A pipe or a device may never end.
        if !metadata.is_file() {
            return Err(failed(&"it is not a file"));
        }
        let used: u64 = self.files.iter().map(|file| file.bytes.len() as u64).sum();
        let free = MAX_BYTES.saturating_sub(used);
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| failed(&error))?;
        file.take(free + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > free {
            let (size, limit) =
                (indicatif::HumanBytes(metadata.len()), indicatif::HumanBytes(MAX_BYTES));
            return Err(failed(&format!(
                "it has {size}, and all files of a message together have at most {limit}"
            )));
        }
        if bytes.is_empty() {
            return Err(failed(&"it is empty"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let media_type = check_type(&name, &bytes).map_err(|why| failed(&why))?;
        let size = indicatif::HumanBytes(bytes.len() as u64);
        let described = format!("{name} ({media_type}, {size})");
        self.files.push(Attachment { name, media_type, bytes });
        Ok(described)
    }

    pub(crate) fn clear(&mut self) {
        self.files.clear();
    }

    /// The names of the files.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.files.iter().map(|file| &*file.name).collect()
    }

    /// The content of a message with this text and the files.
    pub(crate) fn content(&self, text: &str) -> Value {
        if self.files.is_empty() {
            return text.into();
        }
        let files = self.files.iter().map(|file| {
            let mut block = DataBlock::bytes(&file.bytes, file.media_type.as_str());
            block.name = Some(file.name.clone());
            json!(block)
        });
        std::iter::once(json!({ "type": "text", "text": text })).chain(files).collect()
    }
}

/// The type of a file, if models can read it.
fn check_type(name: &str, bytes: &[u8]) -> Result<String, String> {
    let media_type = detect_media_type(None, Some(name), bytes);
    if BY_CONTENT.contains(&&*media_type) && detect_media_type(None, None, bytes) != media_type {
        return Err(format!("its name says {media_type}, but its content is something else"));
    }
    let family = media_type.split('/').next().unwrap_or_default();
    if ["image", "audio", "video", "text"].contains(&family) || DOCUMENTS.contains(&&*media_type) {
        return Ok(media_type);
    }
    Err(format!(
        "files of the type {media_type} cannot be attached; images, audio, video, PDF, office documents and text can"
    ))
}

/// The paths of a command line: separated by spaces, with quotes and backslashes as terminals write them when a file
/// is dropped on them.
pub(crate) fn split_paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let text = text.trim();
    // A path with spaces needs no quotes if it is the only one.
    if Path::new(text).is_file() {
        return Ok(vec![text.into()]);
    }
    let (mut paths, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, quote) {
            (_, Some(open)) if char == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (' ', None) => paths.extend(word.take()),
            (char, _) => word.get_or_insert_default().push(char),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    paths.extend(word);
    Ok(paths.into_iter().map(|path| expand_home(&path)).collect())
}

fn expand_home(path: &str) -> PathBuf {
    let folders = directories::UserDirs::new();
    match (path.strip_prefix("~/"), folders) {
        (Some(rest), Some(folders)) => folders.home_dir().join(rest),
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwire_core::Payload;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....";

    fn add(name: &str, bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Attachments::default().add(&path)
    }

    #[test]
    fn files_that_models_read_are_attached_with_their_type() {
        assert_eq!(add("a.png", PNG).unwrap(), "a.png (image/png, 12 B)");
        // The content decides.
        assert_eq!(add("a.jpg", PNG).unwrap(), "a.jpg (image/png, 12 B)");
        assert_eq!(add("a.md", b"# A").unwrap(), "a.md (text/markdown, 3 B)");
        assert_eq!(add("Makefile", b"all:\n").unwrap(), "Makefile (text/plain, 5 B)");
    }

    #[test]
    fn what_cannot_be_attached_says_why() {
        for (name, bytes, why) in [
            ("a.png", &b"no image"[..], "its name says image/png"),
            ("a.out", b"\x7fELF\0", "type application/octet-stream cannot be attached"),
            ("a.txt", b"", "it is empty"),
            (
                "a.txt",
                &vec![b'x'; 12 << 20],
                "it has 12.00 MiB, and all files of a message together have at most 11.00 MiB",
            ),
        ] {
            let error = add(name, bytes).unwrap_err();
            assert!(error.contains(why) && error.contains("cannot attach"), "{error}");
        }
        let mut files = Attachments::default();
        let folder = tempfile::tempdir().unwrap();
        assert!(files.add(folder.path()).unwrap_err().contains("it is not a file"));
        assert!(files.add(&folder.path().join("none")).unwrap_err().contains("No such file"));
        assert!(files.names().is_empty());
    }

    #[test]
    fn all_files_together_have_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, vec![b'x'; 6 << 20]).unwrap();
        let mut files = Attachments::default();
        files.add(&path).unwrap();
        assert!(files.add(&path).unwrap_err().contains("all files of a message"));
        files.clear();
        files.add(&path).unwrap();
    }

    #[test]
    fn a_message_with_files_has_its_text_first() {
        let mut files = Attachments::default();
        assert_eq!(files.content("hi"), "hi");
        files.files.push(Attachment {
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            bytes: b"x".to_vec(),
        });
        let content = files.content("hi").to_string();
        let payload: Payload = serde_json::from_str(&content).unwrap();
        let Payload::Parts(parts) = payload else { panic!("{content}") };
        assert_eq!(parts.len(), 2);
        assert!(content.contains(r#""name":"a.txt""#), "{content}");
    }

    #[test]
    fn paths_are_split_like_a_shell_does() {
        let split = |text: &str| {
            split_paths(text).map(|paths| {
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
            })
        };
        assert_eq!(
            split(r#" a.png 'b c.png' d\ e.png "f \"g" "#).unwrap(),
            ["a.png", "b c.png", "d e.png", "f \"g"]
        );
        assert_eq!(split("").unwrap(), [""; 0]);
        assert!(split("'a").is_err());
        assert!(!split("~/a").unwrap()[0].starts_with('~'));
    }
}
