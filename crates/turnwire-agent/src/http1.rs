//! HTTP/1.1 responses: their head, and where their body ends (RFC 9112). The model client and
//! `turnwire bench` read responses with it, straight from the connection and without a copy.
//!
//! ```
//! use turnwire_agent::http1::{BodyFraming, ResponseHead};
//!
//! let bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
//! let ResponseHead { status, length, mut body, .. } = ResponseHead::parse(bytes)?.unwrap();
//! let mut content = Vec::new();
//! body.decode(&bytes[length..], &mut |part| content.extend_from_slice(part))?;
//! assert_eq!((status.as_u16(), content.as_slice()), (200, &b"hello"[..]));
//! assert_eq!(body, BodyFraming::Done);
//! # Ok::<(), &str>(())
//! ```

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::{EMPTY_HEADER, Header, Status};

/// The longest head of a response.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// The longest line between two chunks.
const MAX_LINE_BYTES: u16 = 1 << 10;
const MAX_HEADERS: usize = 128;

/// The head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// The number of bytes of the head: the body begins here.
    pub length: usize,
    /// How the body ends.
    pub body: BodyFraming,
    /// Whether the connection can carry another request after the body.
    pub is_reusable: bool,
}

/// The rest of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunked(ChunkState),
    /// Everything until the connection closes.
    UntilClosed,
    /// Nothing: the body is complete.
    Done,
}

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkState(Position);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// In the digits of a size.
    Size { value: u64, digits: u8 },
    /// After the digits: extensions, up to the end of the line.
    Extension { size: u64, length: u16 },
    /// After the `\r` of a size line.
    SizeEnd { size: u64 },
    /// In the content of a chunk.
    Data { left: u64 },
    /// After the content of a chunk.
    DataEnd,
    /// After the content of a chunk and `\r`.
    DataLineEnd,
    /// In the lines after the last chunk.
    Trailer { length: u16, is_empty: bool },
    /// After the empty line at the end.
    End,
}

impl ResponseHead {
    /// Reads the head at the start of `bytes`. `None`: it is not complete yet.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
            Ok(Status::Partial) => return Err("the response head is too long"),
            Err(_) => return Err("the response is not HTTP/1.1"),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or("the response has an invalid status code")?;
        let is_1_1 = response.version == Some(1);
        let body = BodyFraming::from_headers(status, response.headers, is_1_1)?;
        let connection = |word: &str| {
            let mut words = values(response.headers, "connection").flat_map(|list| list.split(','));
            words.any(|found| found.trim().eq_ignore_ascii_case(word))
        };
        let is_reusable = body != BodyFraming::UntilClosed
            && !connection("close")
            && (is_1_1 || connection("keep-alive"));
        Ok(Some(Self { status, length, body, is_reusable }))
    }
}

/// The headers of a complete head.
pub fn headers(head: &[u8]) -> HeaderMap {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    if response.parse(head).is_err() {
        return HeaderMap::new();
    }
    let pairs = response.headers.iter().filter_map(|header| {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(header.value).ok()?))
    });
    pairs.collect()
}

/// The values of a header.
fn values<'h>(headers: &'h [Header<'h>], name: &str) -> impl DoubleEndedIterator<Item = &'h str> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    named.map(|header| std::str::from_utf8(header.value).unwrap_or_default())
}

impl BodyFraming {
    fn from_headers(
        status: StatusCode,
        headers: &[Header<'_>],
        is_1_1: bool,
    ) -> Result<Self, &'static str> {
        if matches!(status.as_u16(), 100..=199 | 204 | 304) {
            return Ok(Self::Done);
        }
        if let Some(encodings) = values(headers, "transfer-encoding").next_back() {
            let last = encodings.rsplit(',').next().unwrap_or_default();
            let is_chunked = last.trim().eq_ignore_ascii_case("chunked") && is_1_1;
            return Ok(if is_chunked { Self::chunked() } else { Self::UntilClosed });
        }
        let mut length = None;
        // Some servers repeat the value, in one header or in several.
        for value in values(headers, "content-length").flat_map(|list| list.split(',')) {
            let value = value.trim();
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let value = value.parse().ok().filter(|_| is_number);
            let value: u64 = value.ok_or("the content-length is not a number")?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err("the response has two different values of content-length");
            }
        }
        Ok(match length {
            Some(0) => Self::Done,
            Some(length) => Self::Length(length),
            None => Self::UntilClosed,
        })
    }

    /// A chunked body from its beginning.
    pub fn chunked() -> Self {
        Self::Chunked(ChunkState(Position::SIZE))
    }

    /// Passes the content in `bytes` to `each`. Returns the number of bytes that belong to the body:
    /// all of them, unless the body ends here.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, &'static str> {
        match self {
            Self::Done => Ok(0),
            Self::UntilClosed => {
                pass(bytes, each);
                Ok(bytes.len())
            }
            Self::Length(left) => {
                let after = pass_up_to(bytes, left, each);
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(bytes.len() - after.len())
            }
            Self::Chunked(ChunkState(position)) => {
                let mut rest = bytes;
                loop {
                    if let Position::Data { left } = position {
                        rest = pass_up_to(rest, left, each);
                        if *left == 0 {
                            *position = Position::DataEnd;
                        }
                    }
                    let Some((&byte, after)) = rest.split_first() else { break };
                    rest = after;
                    *position = position.after(byte)?;
                    if *position == Position::End {
                        *self = Self::Done;
                        break;
                    }
                }
                Ok(bytes.len() - rest.len())
            }
        }
    }
}

impl Position {
    const SIZE: Self = Self::Size { value: 0, digits: 0 };

    /// The position after a byte that is not content.
    fn after(self, byte: u8) -> Result<Self, &'static str> {
        const NO_SIZE: &str = "a chunk has no valid size";
        const LONG_LINE: &str = "a line between two chunks is too long";
        Ok(match (self, byte) {
            (Self::Size { digits: 16, .. }, _) if byte.is_ascii_hexdigit() => return Err(NO_SIZE),
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(NO_SIZE),
            (Self::Size { value: size, .. } | Self::Extension { size, .. }, b'\r') => {
                Self::SizeEnd { size }
            }
            (Self::Size { value: size, .. }, b';' | b' ' | b'\t') => {
                Self::Extension { size, length: 0 }
            }
            (Self::Size { .. }, _) | (Self::Extension { .. }, b'\n') => return Err(NO_SIZE),
            (Self::Extension { length: MAX_LINE_BYTES, .. }, _) => return Err(LONG_LINE),
            (Self::Extension { size, length }, _) => Self::Extension { size, length: length + 1 },
            (Self::SizeEnd { size: 0 }, b'\n') => Self::Trailer { length: 0, is_empty: true },
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::SizeEnd { .. }, _) => return Err(NO_SIZE),
            (Self::DataEnd, b'\r') => Self::DataLineEnd,
            (Self::DataLineEnd, b'\n') => Self::SIZE,
            (Self::DataEnd | Self::DataLineEnd, _) => {
                return Err("a chunk is longer than its size");
            }
            (Self::Trailer { is_empty: true, .. }, b'\n') => Self::End,
            (Self::Trailer { .. }, b'\n') => Self::Trailer { length: 0, is_empty: true },
            (Self::Trailer { length: MAX_LINE_BYTES, .. }, _) => return Err(LONG_LINE),
            (Self::Trailer { length, is_empty }, _) => {
                let is_empty = is_empty && byte.is_ascii_whitespace();
                Self::Trailer { length: length + 1, is_empty }
            }
            (Self::Data { .. } | Self::End, _) => self,
        })
    }
}

/// Passes up to `left` bytes on, and returns those after them.
fn pass_up_to<'b>(bytes: &'b [u8], left: &mut u64, each: &mut dyn FnMut(&[u8])) -> &'b [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let (content, after) = bytes.split_at_checked(most).unwrap_or((bytes, &[]));
    *left -= content.len() as u64;
    pass(content, each);
    after
}

fn pass(bytes: &[u8], each: &mut dyn FnMut(&[u8])) {
    if !bytes.is_empty() {
        each(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ResponseHead>, &'static str> {
        ResponseHead::parse(text.as_bytes())
    }

    /// The framing of a response with these headers, and whether its connection can be reused.
    fn framing(first: &str, headers: &str) -> (BodyFraming, bool) {
        let text = format!("{first}\r\n{headers}\r\n");
        let head = parse(&text).unwrap().unwrap();
        assert_eq!(head.length, text.len());
        (head.body, head.is_reusable)
    }

    #[test]
    fn the_head_tells_how_the_body_ends() {
        let ok = "HTTP/1.1 200 OK";
        let chunked = BodyFraming::chunked();
        for (first, headers, expected) in [
            (ok, "transfer-encoding: chunked\r\n", (chunked, true)),
            (ok, "Transfer-Encoding: gzip, Chunked\r\ncontent-length: 3\r\n", (chunked, true)),
            (ok, "transfer-encoding: chunked\r\nconnection: x, Close\r\n", (chunked, false)),
            (ok, "transfer-encoding: gzip\r\n", (BodyFraming::UntilClosed, false)),
            (ok, "content-length: 3\r\n", (BodyFraming::Length(3), true)),
            (ok, "content-length: 3, 3\r\ncontent-length: 3\r\n", (BodyFraming::Length(3), true)),
            (ok, "content-length: 0\r\n", (BodyFraming::Done, true)),
            (ok, "", (BodyFraming::UntilClosed, false)),
            ("HTTP/1.1 204 No Content", "content-length: 3\r\n", (BodyFraming::Done, true)),
            ("HTTP/1.1 103 Early Hints", "link: x\r\n", (BodyFraming::Done, true)),
            ("HTTP/1.0 200 OK", "content-length: 3\r\n", (BodyFraming::Length(3), false)),
            (
                "HTTP/1.0 200 OK",
                "content-length: 3\r\nconnection: keep-alive\r\n",
                (BodyFraming::Length(3), true),
            ),
            (
                "HTTP/1.0 200 OK",
                "transfer-encoding: chunked\r\n",
                (BodyFraming::UntilClosed, false),
            ),
        ] {
            assert_eq!(framing(first, headers), expected, "{first} {headers}");
        }
    }

    #[test]
    fn an_invalid_head_is_an_error_and_an_incomplete_one_is_awaited() {
        for (text, expected) in [
            ("SSH-2.0-OpenSSH_9.6\r\n", "not HTTP/1.1"),
            ("HTTP/1.1 099 No\r\n\r\n", "invalid status code"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", "not a number"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                "two different values",
            ),
        ] {
            assert!(parse(text).unwrap_err().contains(expected), "{text}");
        }
        let whole = "HTTP/1.1 200 OK\r\na: b\r\n\r\n";
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).unwrap().is_none(), "{end}");
        }
        assert_eq!(headers(whole.as_bytes()).get("A").unwrap(), "b");
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(parse(&long), Err("the response head is too long"));
    }

    /// Decodes a body that arrives in pieces of `size` bytes: its content, its state, and the number of
    /// bytes after it.
    fn decode(
        mut body: BodyFraming,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, BodyFraming, usize), &'static str> {
        let (mut content, mut after) = (Vec::new(), 0);
        for piece in bytes.chunks(size) {
            let used = body.decode(piece, &mut |part| content.extend_from_slice(part))?;
            after += piece.len() - used;
        }
        Ok((content, body, after))
    }

    #[test]
    fn a_body_is_the_same_wherever_it_is_cut() {
        let chunked = BodyFraming::chunked();
        let plain = &b"5\r\nhello\r\n1;x=\"y\"\r\n \r\nA \r\n0123456789\r\n0\r\n\r\n"[..];
        let trailer = &b"00010\r\n0123456789abcdef\r\n0\r\nx: y\r\nz: \r\n\r\nNEXT"[..];
        for size in 1..=plain.len() {
            let whole = (b"hello 0123456789".to_vec(), BodyFraming::Done, 0);
            assert_eq!(decode(chunked, plain, size), Ok(whole), "{size}");
            let whole = (b"0123456789abcdef".to_vec(), BodyFraming::Done, 4);
            assert_eq!(decode(chunked, trailer, size), Ok(whole), "{size}");
            let whole = (b"hel".to_vec(), BodyFraming::Done, 2);
            assert_eq!(decode(BodyFraming::Length(3), b"hello", size), Ok(whole));
            let part = (b"hello".to_vec(), BodyFraming::Length(2), 0);
            assert_eq!(decode(BodyFraming::Length(7), b"hello", size), Ok(part));
            let open = (b"hello".to_vec(), BodyFraming::UntilClosed, 0);
            assert_eq!(decode(BodyFraming::UntilClosed, b"hello", size), Ok(open));
        }
    }

    #[test]
    fn invalid_chunks_are_errors() {
        let long = format!("1;{}", "x".repeat(2000));
        let trailer = format!("0\r\n{}", "x".repeat(2000));
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "1\nx",
            "1\r\nxy\r\n",
            "1\r\nx\n1\r\n",
            "11111111111111111\r\n",
            &long,
            &trailer,
        ] {
            for size in [1, 7, body.len()] {
                let decoded = decode(BodyFraming::chunked(), body.as_bytes(), size);
                assert!(decoded.is_err(), "{body} {size}");
            }
        }
    }
}
