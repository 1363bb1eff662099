//! Why a link was not fetched.

use crate::error::ApiError;
use std::borrow::Cow;
use url::Url;

/// Why a link was not fetched. The texts continue the sentence "the link X …".
#[derive(Debug)]
pub(super) enum LinkError {
    /// It is not allowed.
    Refused(Cow<'static, str>),
    /// It has more than this many bytes.
    TooLarge(usize),
    /// Its media type is not allowed.
    UnsupportedType(String),
    /// It cannot be fetched.
    Failed(Cow<'static, str>),
    /// Not the link's fault: a limit, or the store.
    Other(ApiError),
}

impl<E: Into<ApiError>> From<E> for LinkError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// How many characters of a link an error shows.
const MAX_SHOWN_URL: usize = 200;

impl LinkError {
    /// The error for the client; `at` is the index of the block in the message.
    pub(super) fn into_api_error(self, at: usize, url: &str) -> ApiError {
        let link = format!("content[{at}]: the link {}", redacted_url(url));
        let end = "nothing was stored";
        match self {
            Self::Refused(why) => {
                ApiError::unprocessable(format!("{link} {why}; {end}")).kind("link_refused").hint(
                    "a link must be http or https, without a password, on the public internet; \
                     or upload the file with POST /v1/blobs and use its URL",
                )
            }
            Self::TooLarge(most) => {
                ApiError::too_large(format!("{link} has more than {most} bytes; {end}"))
                    .kind("link_too_large")
                    .hint("the operator can raise `links.size`")
            }
            Self::UnsupportedType(why) => ApiError::unsupported(format!("{link} {why}; {end}"))
                .kind("link_type")
                .hint("the operator can allow it with `links.types`"),
            Self::Failed(why) => {
                ApiError::unprocessable(format!("{link} {why}; {end}")).kind("link_failed").hint(
                    "send it again when the link is publicly readable; or upload the file with \
                     POST /v1/blobs and use its URL",
                )
            }
            Self::Other(error) => error,
        }
    }
}

/// A link for logs and errors: without query and password, which may be secret, and shortened.
pub(crate) fn redacted_url(url: &str) -> String {
    let plain = match Url::parse(url) {
        Ok(mut url) if !url.cannot_be_a_base() => {
            // These fail only if there is nothing to remove.
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
