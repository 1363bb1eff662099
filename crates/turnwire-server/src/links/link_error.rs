//! Why a link is not brought in.

use crate::error::ApiError;
use std::borrow::Cow;
use url::Url;

/// Why a link is not brought in: words that go on from "the link X …".
#[derive(Debug)]
pub(super) enum LinkError {
    /// It may not be.
    Refused(Cow<'static, str>),
    /// It has too many bytes: more than these.
    TooLarge(usize),
    /// It is of a type that is not taken.
    UnsupportedType(String),
    /// It cannot be had.
    Failed(Cow<'static, str>),
    /// The link is not to blame: a limit, or the store.
    Other(ApiError),
}

impl<E: Into<ApiError>> From<E> for LinkError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// The longest part of a link that is repeated.
const MAX_SHOWN_URL: usize = 200;

impl LinkError {
    /// What the client is told of the link at a place of a message's content.
    pub(super) fn into_api_error(self, at: usize, url: &str) -> ApiError {
        let link = format!("content[{at}]: the link {}", redacted_url(url));
        let end = "nothing was stored";
        match self {
            Self::Refused(why) => {
                ApiError::unprocessable(format!("{link} {why}; {end}")).kind("link_refused").hint(
                    "links are to be http or https, without a password, on the public internet; \
                     or store the file with POST /v1/blobs, and refer to its URL",
                )
            }
            Self::TooLarge(most) => {
                ApiError::too_large(format!("{link} has more than {most} bytes; {end}"))
                    .kind("link_too_large")
                    .hint("the operator sets `links.size`")
            }
            Self::UnsupportedType(why) => ApiError::unsupported(format!("{link} {why}; {end}"))
                .kind("link_type")
                .hint("the operator sets `links.types`"),
            Self::Failed(why) => {
                ApiError::unprocessable(format!("{link} {why}; {end}")).kind("link_failed").hint(
                    "send it again when the link can be read by anybody; or store the file with \
                     POST /v1/blobs, and refer to its URL",
                )
            }
            Self::Other(error) => error,
        }
    }
}

/// A link as it is named to people: without what may be a secret in it, and not too long.
pub(crate) fn redacted_url(url: &str) -> String {
    let plain = match Url::parse(url) {
        Ok(mut url) if !url.cannot_be_a_base() => {
            // These fail only where there is nothing to take away.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        Ok(url) => format!("{}:", url.scheme()),
        Err(_) => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
    };
    if plain.chars().count() <= MAX_SHOWN_URL {
        return plain;
    }
    plain.chars().take(MAX_SHOWN_URL).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_without_its_secrets() {
        for (url, expected) in [
            ("https://me:pw@a.example/x.png?sig=secret#top", "https://a.example/x.png"),
            ("file:///a/b?c", "file:///a/b"),
            ("data:image/png;base64,AAAA", "data:"),
            ("/v1/blobs/x?token=secret", "/v1/blobs/x"),
        ] {
            assert_eq!(redacted_url(url), expected);
        }
        assert_eq!(
            redacted_url(&format!("https://a.example/{}", "x".repeat(999))).chars().count(),
            201
        );
    }
}
