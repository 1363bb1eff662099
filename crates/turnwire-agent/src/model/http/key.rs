//! API keys: named by their source, read for each request, never printed.

use crate::model::ModelError;
use http::HeaderValue;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use turnwire_core::ErrorType;

/// A longer file is not a key.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The source of an API key. It is read for each request, so a new key takes effect at once.
#[derive(Clone)]
pub struct ApiKey(KeySource);

#[derive(Clone)]
enum KeySource {
    Env(String),
    File(PathBuf),
    Literal(Secret),
    None,
}

impl ApiKey {
    /// Reads the key from an environment variable.
    pub fn from_env(variable: impl Into<String>) -> Self {
        Self(KeySource::Env(variable.into()))
    }

    /// Reads the key from a file, without surrounding white space.
    pub fn from_file(path: impl AsRef<Path>) -> Self {
        Self(KeySource::File(path.as_ref().to_owned()))
    }

    /// This key, for programs with a key store of their own.
    pub fn from_text(key: impl Into<String>) -> Self {
        Self(KeySource::Literal(Secret(key.into())))
    }

    /// Sends no key.
    pub fn none() -> Self {
        Self(KeySource::None)
    }

    /// Whether no key is sent.
    pub(super) fn is_none(&self) -> bool {
        matches!(self.0, KeySource::None)
    }

    /// Reads the key.
    pub(super) fn read(&self) -> Result<Secret, ModelError> {
        let text = match &self.0 {
            KeySource::Env(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => format!("{name} is not set"),
                std::env::VarError::NotUnicode(_) => format!("{name} is not valid UTF-8"),
            }),
            KeySource::File(path) => read_file(path),
            KeySource::Literal(secret) => Ok(secret.0.clone()),
            KeySource::None => return Ok(Secret::default()),
        };
        let usable = text.and_then(|text| match text.trim() {
            "" => Err(format!("{self} is empty")),
            key if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret(key.to_owned())),
            _ => Err(format!("{self} contains characters that a header cannot carry")),
        });
        usable.map_err(|why| {
            let message = format!("no API key for the model: {why}");
            ModelError::new(ErrorType::Authentication, message)
        })
    }

    /// What to check after the provider rejected the key.
    pub(super) fn hint(&self) -> String {
        match self.0 {
            KeySource::None => "no key is configured".to_owned(),
            KeySource::Env(_) | KeySource::File(_) | KeySource::Literal(_) => {
                format!("check {self}")
            }
        }
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let why = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut text = String::new();
    File::open(path).map_err(why)?.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(why)?;
    Ok(text)
}

/// Shows the source of the key, never the key.
impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            KeySource::Env(name) => f.write_str(name),
            KeySource::File(path) => write!(f, "the file {}", path.display()),
            KeySource::Literal(_) => f.write_str("the key that the program gave"),
            KeySource::None => f.write_str("no key"),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A key that is never printed.
#[derive(Clone, Default)]
pub(super) struct Secret(String);

impl Secret {
    /// Whether it is empty.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The header value that carries it.
    pub fn header(&self, scheme: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{scheme}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether a text contains it.
    pub fn is_in(&self, text: &str) -> bool {
        !self.is_none() && text.contains(&self.0)
    }

    /// Removes it from a text: providers echo what they were sent.
    pub fn redacted(&self, text: String) -> String {
        if self.is_in(&text) { text.replace(&self.0, "[key]") } else { text }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let key = ApiKey::from_text("sk-hidden");
        let secret = key.read().unwrap();
        let header = secret.header("Bearer ").unwrap();
        let printed = format!("{key:?} {key} {secret:?} {header:?} {}", key.hint());
        assert!(!printed.contains("sk-hidden"), "{printed}");
        assert_eq!(header.as_bytes(), b"Bearer sk-hidden");
    }

    #[test]
    fn an_invalid_key_is_reported_by_its_origin() {
        let missing = ApiKey::from_env("TURNWIRE_NO_SUCH_KEY").read().unwrap_err();
        assert_eq!(missing.kind, ErrorType::Authentication);
        assert!(missing.message.contains("TURNWIRE_NO_SUCH_KEY is not set"), "{missing}");
        assert!(ApiKey::from_text(" \n").read().unwrap_err().message.contains("is empty"));
        let odd = ApiKey::from_text("two words").read().unwrap_err();
        assert!(!odd.message.contains("two words"), "{odd}");
        let file = ApiKey::from_file("/no/such/file").read().unwrap_err();
        assert!(file.message.contains("/no/such/file cannot be read"), "{file}");
    }

    #[test]
    fn an_echoed_key_is_removed_and_an_empty_key_removes_nothing() {
        let key = ApiKey::from_text("sk-1").read().unwrap();
        assert_eq!(key.redacted("bad sk-1, sk-1!".to_owned()), "bad [key], [key]!");
        assert_eq!(Secret::default().redacted("bad".to_owned()), "bad");
    }
}
