//! The part of HTTP/1.1 that the load generator needs: parsing the head of a response, and finding
//! the end of its body.
//!
//! The load generator often shares the machine with the server: each cycle it saves is one for the
//! server.

/// Status and body length of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Length of the head in bytes.
    pub(super) length: usize,
    pub(super) body: Body,
}

impl Head {
    /// Parses a head; `None` if it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("this is no answer in HTTP/1.1"),
        };
        let status = response.code.unwrap_or_default();
        let mut body = Body::UntilClose;
        for header in response.headers.iter() {
            if header.name.eq_ignore_ascii_case("transfer-encoding") {
                body = Body::Chunked(Chunked::default());
                break;
            }
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).unwrap_or_default();
                body =
                    Body::Length(text.trim().parse().map_err(|_| "content-length is no number")?);
            }
        }
        if matches!(status, 100..=199 | 204 | 304) {
            body = Body::Length(0);
        }
        Ok(Some(Self { status, length, body }))
    }
}

/// The remaining body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

impl Body {
    /// Whether the body is complete.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.state == State::Done,
            Self::UntilClose => false,
        }
    }

    /// Consumes bytes, passes the content to `each`, and returns how many bytes belonged to the
    /// body.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(&[u8]),
    ) -> Result<usize, &'static str> {
        match self {
            Self::Length(left) => {
                let (content, _) = split_at_most(bytes, *left);
                *left -= content.len() as u64;
                each(content);
                Ok(content.len())
            }
            Self::Chunked(chunked) => chunked.feed(bytes, each),
            Self::UntilClose => {
                each(bytes);
                Ok(bytes.len())
            }
        }
    }
}

/// The position in a chunked body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunked {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the digits of a chunk size.
    Size {
        value: u64,
        digits: u8,
    },
    /// After the digits: a chunk extension.
    Extension(u64),
    Data(u64),
    /// After the data, before its line end.
    DataEnd,
    /// After the chunk of size 0; whether the current line is empty.
    Trailer {
        empty: bool,
    },
    Done,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0 }
    }
}

impl Chunked {
    fn feed(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<usize, &'static str> {
        let mut rest = bytes;
        while self.state != State::Done {
            if let State::Data(left) = self.state {
                let (content, behind) = split_at_most(rest, left);
                if !content.is_empty() {
                    each(content);
                }
                let left = left - content.len() as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                rest = behind;
                if left > 0 {
                    break;
                }
            }
            let Some((&byte, behind)) = rest.split_first() else { break };
            rest = behind;
            self.state = self.state.step(byte)?;
        }
        Ok(bytes.len() - rest.len())
    }
}

impl State {
    /// The state after one byte that is not content.
    fn step(self, byte: u8) -> Result<Self, &'static str> {
        const BAD_SIZE: &str = "a chunk's size is no number";
        Ok(match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == 16 {
                    return Err(BAD_SIZE);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(BAD_SIZE),
            (Self::Size { value, .. } | Self::Extension(value), b'\n') => match value {
                0 => Self::Trailer { empty: true },
                left => Self::Data(left),
            },
            (Self::Size { value, .. }, b'\r' | b';' | b' ') | (Self::Extension(value), _) => {
                Self::Extension(value)
            }
            (Self::Size { .. }, _) => return Err(BAD_SIZE),
            (Self::DataEnd, b'\r') => Self::DataEnd,
            (Self::DataEnd, b'\n') => Self::default(),
            (Self::DataEnd, _) => return Err("a chunk is longer than it says"),
            (Self::Trailer { empty: true }, b'\n') | (Self::Done, _) => Self::Done,
            (Self::Trailer { .. }, b'\n') => Self::Trailer { empty: true },
            (Self::Trailer { empty }, b'\r') => Self::Trailer { empty },
            (Self::Trailer { .. }, _) => Self::Trailer { empty: false },
            (Self::Data(left), _) => Self::Data(left),
        })
    }
}

/// The first `most` bytes, and the rest.
fn split_at_most(bytes: &[u8], most: u64) -> (&[u8], &[u8]) {
    let at = usize::try_from(most).map_or(bytes.len(), |most| most.min(bytes.len()));
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, content, and the bytes after the response; `None` while it is incomplete.
    fn parse_whole(bytes: &[u8]) -> Option<(u16, Vec<u8>, Vec<u8>)> {
        let mut head = Head::parse(bytes).unwrap()?;
        let rest = &bytes[head.length..];
        let mut content = Vec::new();
        let taken = head.body.feed(rest, &mut |part| content.extend_from_slice(part)).unwrap();
        head.body.is_done().then(|| (head.status, content, rest[taken..].to_vec()))
    }

    const ANSWERS: [(&[u8], u16, &[u8]); 5] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello"),
        (b"HTTP/1.1 204 No Content\r\nstream-next-offset: 1\r\n\r\n", 204, b""),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", 201, b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nC;a=b\r\n, big world!\r\n0\r\n\r\n",
            200,
            b"hello, big world!",
        ),
        (
            b"HTTP/1.1 422 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n",
            422,
            b"a",
        ),
    ];

    #[test]
    fn an_answer_ends_where_its_head_says() {
        for (bytes, status, content) in ANSWERS {
            let followed = [bytes, b"HTTP/1.1 500"].concat();
            let expected = (status, content.to_vec(), b"HTTP/1.1 500".to_vec());
            assert_eq!(parse_whole(&followed), Some(expected));
        }
    }

    #[test]
    fn a_response_is_complete_at_its_last_byte_and_not_before() {
        for (bytes, _, _) in ANSWERS {
            for cut in 0..bytes.len() {
                assert_eq!(parse_whole(&bytes[..cut]), None, "cut at {cut}");
            }
            assert!(parse_whole(bytes).is_some());
        }
    }

    #[test]
    fn a_body_cut_anywhere_gives_the_same_content() {
        for (bytes, _, content) in ANSWERS {
            let length = Head::parse(bytes).unwrap().unwrap().length;
            for cut in length..bytes.len() {
                let mut head = Head::parse(bytes).unwrap().unwrap();
                let mut found = Vec::new();
                for part in [&bytes[length..cut], &bytes[cut..]] {
                    head.body.feed(part, &mut |part| found.extend_from_slice(part)).unwrap();
                }
                assert_eq!(found, content, "cut at {cut}");
                assert!(head.body.is_done());
            }
        }
    }

    #[test]
    fn a_body_without_a_length_goes_on_until_the_connection_closes() {
        let mut head = Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.body.feed(b"abc", &mut |_| {}), Ok(3));
        assert!(!head.body.is_done());
    }

    #[test]
    fn invalid_http_is_refused() {
        assert!(Head::parse(b"SSH-2.0-OpenSSH_9.6\r\n").is_err());
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n").is_err());
        for size in [&b"xyz\r\n"[..], b"\r\n", b"11111111111111111\r\n", b"1\r\nab"] {
            let mut body = Body::Chunked(Chunked::default());
            assert!(body.feed(size, &mut |_| {}).is_err(), "{size:?}");
        }
    }
}
