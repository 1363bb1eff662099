//! Types of values in settings. Each is checked when it is read, so that an error points to its line.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A duration: `"5m"`, `"1h 30m"`, `"250ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "invalid duration \"{text}\": expected for example \"30s\", \"5m\", \"1h 30m\" or \"90d\""
            )
        };
        let mut total = Duration::ZERO;
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let (number, unit, behind) = number_and_unit(rest).ok_or_else(wrong)?;
            let ms: u64 = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(wrong()),
            };
            let part = number.checked_mul(ms).map(Duration::from_millis).ok_or_else(wrong)?;
            total = total.checked_add(part).ok_or_else(wrong)?;
            rest = behind;
        }
        Ok(Self(total))
    }
}

/// A size in bytes: `16777216` or `"16 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// A size in KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    /// A size in MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    /// The size as `usize`.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("invalid size \"{text}\": expected for example 65536, \"64 KiB\" or \"16 MiB\"")
        };
        let (number, unit, behind) = number_and_unit(text.trim()).ok_or_else(wrong)?;
        let factor: u64 = match unit {
            "" | "B" => 1,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err(wrong()),
        };
        if !behind.is_empty() {
            return Err(wrong());
        }
        number.checked_mul(factor).map(Self).ok_or_else(wrong)
    }
}

/// A number, its unit, and the rest of the text.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, behind.trim_start()))
}

/// An address to listen on: `127.0.0.1:4747`, `[::1]:4747`, `localhost:4747`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let local = text
            .strip_prefix("localhost:")
            .and_then(|port| port.parse().ok())
            .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        local.or_else(|| text.parse().ok()).map(Self).ok_or_else(|| {
            format!(
                "invalid listen address \"{text}\": expected an IP address and a port, such as \
                 \"127.0.0.1:4747\", \"[::1]:4747\" or \"0.0.0.0:4747\""
            )
        })
    }
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4747))
    }
}

/// Where sessions are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In memory: lost when the server ends.
    Memory,
    /// In this SQLite file.
    Sqlite(PathBuf),
    /// In this Postgres database.
    Postgres(DatabaseUrl),
}

/// A `postgres://` URL. It may have a password, which is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL, with its password.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

/// User, hosts and database, without password and parameters.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.0.split('?').next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sqlite = || {
            let path = text.strip_prefix("sqlite:")?;
            Some(path.strip_prefix("//").unwrap_or(path))
        };
        match (text, sqlite()) {
            ("memory" | "memory:", _) => Ok(Self::Memory),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            _ if ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) => {
                Ok(Self::Postgres(DatabaseUrl(text.to_owned())))
            }
            // The text may hold a password.
            _ => Err("invalid store: expected \"sqlite:PATH\", such as \"sqlite:turnwire.db\", \
                      \"postgres://USER:PASSWORD@HOST/DATABASE\", or \"memory:\", which is lost when the server ends"
                .to_owned()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => write!(f, "{url}"),
        }
    }
}

/// An origin as a browser sends it: `https://app.example`, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub String);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "invalid origin \"{text}\": {why}; expected for example \"https://app.example\""
            )
        };
        if text == "*" {
            return Err(wrong("list each site; a wildcard would allow all of them"));
        }
        let url = url::Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        let origin = url.origin();
        if !origin.is_tuple() {
            return Err(wrong("it has no scheme and host"));
        }
        if url.path().len() > 1 || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it has a path"));
        }
        Ok(Self(origin.ascii_serialization()))
    }
}

/// A host name, with or without a port: `turnwire.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(pub String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
        if fits {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(format!("invalid host \"{text}\": expected for example \"turnwire.example\""))
        }
    }
}

/// A media type or a prefix: `image/png`, `image/*`, `application/vnd.example.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPattern(pub String);

impl MediaPattern {
    /// Whether it matches a media type in lower case without parameters.
    pub fn matches(&self, kind: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(begin) => kind.starts_with(begin),
            None => kind == self.0,
        }
    }
}

impl FromStr for MediaPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.strip_suffix('*').unwrap_or(text);
        let is_token = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let fits = plain.split_once('/').is_some_and(|(kind, sub)| {
            !kind.is_empty()
                && is_token(kind)
                && is_token(sub)
                && (text != plain || !sub.is_empty())
        });
        if fits {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(format!(
                "invalid media type \"{text}\": expected for example \"image/png\", or \"image/*\" for all images"
            ))
        }
    }
}

/// A URL with a scheme and a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebUrl(pub url::Url);

impl FromStr for WebUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match url::Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Self(url)),
            Ok(_) => Err(format!("invalid URL \"{text}\": expected https:// or http://")),
            Err(why) => Err(format!("invalid URL \"{text}\": {why}")),
        }
    }
}

/// A SHA-256, as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256(pub [u8; 32]);

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may be the token itself, so the error does not repeat it.
        let wrong = || {
            "invalid SHA-256: expected 64 hexadecimal digits; `turnwire token new` creates a token and prints its hash"
                .to_owned()
        };
        let mut hash = [0; 32];
        if text.len() != 64 {
            return Err(wrong());
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

/// Reads a value from text; a size also from a number.
struct TextVisitor<T>(&'static str, Option<fn(u64) -> T>, std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match (self.1, u64::try_from(number)) {
            (Some(make), Ok(number)) => Ok(make(number)),
            _ => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
        }
    }
}

macro_rules! from_text {
    ($($name:ident $expecting:literal $number:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(TextVisitor($expecting, $number, std::marker::PhantomData))
            }
        }
    )*};
}

from_text! {
    HumanDuration "a duration such as \"30s\" or \"5m\"" None;
    ByteSize "a size such as 65536 or \"16 MiB\"" Some(ByteSize);
    ListenAddress "an address such as \"127.0.0.1:4747\"" None;
    StoreUrl "a store such as \"sqlite:turnwire.db\"" None;
    Origin "an origin such as \"https://app.example\"" None;
    HostName "a host such as \"turnwire.example\"" None;
    MediaPattern "a media type such as \"image/png\" or \"image/*\"" None;
    WebUrl "a URL such as \"https://turnwire.example\"" None;
    Sha256 "64 hexadecimal digits in quotes" None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        let ms = |text: &str| text.parse::<HumanDuration>().map(|time| time.0.as_millis()).ok();
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("5m"), Some(300_000));
        assert_eq!(ms("1h 30m"), Some(5_400_000));
        assert_eq!(ms("90d"), Some(7_776_000_000));
        for wrong in ["", "5", "m", "-5s", "5 parsecs", "99999999999999999999s", "5m,"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        let size = |text: &str| text.parse::<ByteSize>().map(|size| size.0).ok();
        assert_eq!(size("65536"), Some(65536));
        assert_eq!(size("16 MiB"), Some(16 << 20));
        assert_eq!(size("16MiB"), Some(16 << 20));
        for wrong in ["", "MiB", "16 megs", "99999999999 TiB", "1 MiB 2"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_media_type_may_stand_for_several() {
        let fits = |pattern: &str, kind: &str| {
            pattern.parse::<MediaPattern>().map(|pattern| pattern.matches(kind)).ok()
        };
        assert_eq!(fits("image/*", "image/png"), Some(true));
        assert_eq!(fits("Image/PNG", "image/png"), Some(true));
        assert_eq!(fits("image/png", "image/pngx"), Some(false));
        assert_eq!(fits("application/vnd.x.*", "application/vnd.x.y"), Some(true));
        assert_eq!(fits("image/*", "imagex/png"), Some(false));
        for wrong in ["", "*", "*/*", "image", "image/", "/png", "image/p*g", "image/ png", "a/b/c"]
        {
            assert_eq!(fits(wrong, "image/png"), None, "{wrong}");
        }
    }

    #[test]
    fn an_origin_is_exact() {
        let origin = |text: &str| text.parse::<Origin>().map(|origin| origin.0).ok();
        assert_eq!(origin("https://App.example/"), Some("https://app.example".to_owned()));
        assert_eq!(origin("http://localhost:3000"), Some("http://localhost:3000".to_owned()));
        for wrong in ["*", "null", "app.example", "https://app.example/x", "file:///x"] {
            assert_eq!(origin(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_store_is_a_file_a_database_or_memory() {
        let store = |text: &str| text.parse::<StoreUrl>().ok();
        assert_eq!(store("memory:"), Some(StoreUrl::Memory));
        assert_eq!(store("sqlite:a/b.db"), Some(StoreUrl::Sqlite("a/b.db".into())));
        assert_eq!(store("sqlite:///a/b.db"), Some(StoreUrl::Sqlite("/a/b.db".into())));
        assert_eq!(store("sqlite:"), None);
        assert_eq!(store("mysql://x"), None);
        let url = "postgres://me:pass:w@rd@one:5433,two/turnwire?sslmode=require&password=x";
        let database = store(url).unwrap();
        assert_eq!(database.to_string(), "postgres://me@one:5433,two/turnwire");
        assert!(!format!("{database:?}").contains("pass"));
        assert!(matches!(database, StoreUrl::Postgres(secret) if secret.secret() == url));
    }

    #[test]
    fn a_hash_that_is_none_is_not_repeated() {
        let error = "tw_secret".parse::<Sha256>().unwrap_err();
        assert!(!error.contains("tw_secret"), "{error}");
        let hash = "0a".repeat(32).parse::<Sha256>().unwrap();
        assert_eq!(hash.0, [10; 32]);
    }
}
