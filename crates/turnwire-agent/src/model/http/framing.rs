//! Where the body of an answer begins and ends, as RFC 9112 has it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use httparse::{EMPTY_HEADER, Status, parse_chunk_size};

/// The longest head of an answer.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;
/// The longest line between two chunks.
pub(super) const MAX_LINE_BYTES: usize = 1 << 10;
const MAX_HEADERS: usize = 128;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: BodyFraming,
    /// Whether the connection can be used again behind the body.
    pub is_reusable: bool,
}

/// How the rest of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// So many bytes are left.
    Length(u64),
    Chunked(ChunkState),
    /// All that comes.
    UntilClosed,
    /// Nothing is left.
    Over,
}

/// What comes next in a body of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    Size,
    Data(u64),
    /// The end of the line behind the data.
    DataEnd,
    /// Lines behind the last chunk, and an empty one.
    Trailer,
}

impl ResponseHead {
    /// The first head in these bytes, and how long it is. Nothing, while it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Option<(usize, Self)>, String> {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
            Ok(Status::Partial) => return Err("its head is too long".to_owned()),
            Err(error) => return Err(format!("what it sent is no HTTP ({error})")),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or("its status is none")?;
        let is_newest = response.version == Some(1);
        let headers: HeaderMap = response
            .headers
            .iter()
            .filter_map(|header| {
                let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
                Some((name, HeaderValue::from_bytes(header.value).ok()?))
            })
            .collect();
        let framing = BodyFraming::from_headers(status, &headers, is_newest)?;
        let is_kept = framing != BodyFraming::UntilClosed
            && !has_list_item(&headers, &header::CONNECTION, "close")
            && (is_newest || has_list_item(&headers, &header::CONNECTION, "keep-alive"));
        Ok(Some((length, Self { status, headers, framing, is_reusable: is_kept })))
    }
}

/// Whether a list in a header has a word.
fn has_list_item(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
}

impl BodyFraming {
    fn from_headers(
        status: StatusCode,
        headers: &HeaderMap,
        is_newest: bool,
    ) -> Result<Self, String> {
        if matches!(status.as_u16(), 100..=199 | 204 | 304) {
            return Ok(Self::Over);
        }
        if let Some(last) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
            let last = last.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default();
            let is_chunked = last.trim().eq_ignore_ascii_case("chunked") && is_newest;
            return Ok(if is_chunked {
                Self::Chunked(ChunkState::Size)
            } else {
                Self::UntilClosed
            });
        }
        let mut length = None;
        for value in headers.get_all(header::CONTENT_LENGTH) {
            // Some say it twice.
            for one in value.to_str().unwrap_or_default().split(',').map(str::trim) {
                let is_number = !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit());
                let one = one.parse().ok().filter(|_| is_number);
                let one: u64 = one.ok_or("its content-length is no number")?;
                if length.replace(one).is_some_and(|before| before != one) {
                    return Err("it has two values of content-length".to_owned());
                }
            }
        }
        Ok(match length {
            Some(0) => Self::Over,
            Some(length) => Self::Length(length),
            None => Self::UntilClosed,
        })
    }

    /// Passes on what these bytes have of the body. How many were used: the rest has to come again,
    /// with more behind it.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, &'static str> {
        let mut rest = bytes;
        loop {
            match self {
                Self::Over => break,
                Self::UntilClosed => {
                    pass_nonempty(rest, each);
                    return Ok(bytes.len());
                }
                Self::Length(left) => {
                    rest = pass_up_to(rest, left, each);
                    if *left > 0 {
                        break;
                    }
                    *self = Self::Over;
                }
                Self::Chunked(chunked) => match chunked.decode(&mut rest, each)? {
                    Progress::Continue => {}
                    Progress::Wait if rest.len() > MAX_LINE_BYTES => {
                        return Err("a line between two chunks is too long");
                    }
                    Progress::Wait => break,
                    Progress::Over => *self = Self::Over,
                },
            }
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Whether more can be done with what is there.
enum Progress {
    Continue,
    Wait,
    Over,
}

impl ChunkState {
    fn decode(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Progress, &'static str> {
        match self {
            Self::Size => {
                if rest.first().is_some_and(|first| !first.is_ascii_hexdigit()) {
                    return Err("a chunk has no size");
                }
                match parse_chunk_size(rest).map_err(|_| "a chunk has no size")? {
                    Status::Partial => return Ok(Progress::Wait),
                    Status::Complete((length, size)) => {
                        *rest = rest.get(length..).unwrap_or_default();
                        *self = if size == 0 { Self::Trailer } else { Self::Data(size) };
                    }
                }
            }
            Self::Data(left) => {
                *rest = pass_up_to(rest, left, each);
                if *left > 0 {
                    return Ok(Progress::Wait);
                }
                *self = Self::DataEnd;
            }
            Self::DataEnd => match rest.split_at_checked(2) {
                Some((b"\r\n", behind)) => {
                    *rest = behind;
                    *self = Self::Size;
                }
                None if b"\r\n".starts_with(rest) => return Ok(Progress::Wait),
                Some(_) | None => return Err("a chunk is longer than it said"),
            },
            Self::Trailer => {
                let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                    return Ok(Progress::Wait);
                };
                let (line, behind) = rest.split_at(end + 1);
                *rest = behind;
                if line.trim_ascii().is_empty() {
                    return Ok(Progress::Over);
                }
            }
        }
        Ok(Progress::Continue)
    }
}

/// Passes on as much as is left. What comes behind that.
fn pass_up_to<'a>(bytes: &'a [u8], left: &mut u64, each: &mut dyn FnMut(&[u8])) -> &'a [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let (part, behind) = bytes.split_at_checked(most).unwrap_or((bytes, &[]));
    *left -= part.len() as u64;
    pass_nonempty(part, each);
    behind
}

fn pass_nonempty(bytes: &[u8], each: &mut dyn FnMut(&[u8])) {
    if !bytes.is_empty() {
        each(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(usize, ResponseHead)>, String> {
        ResponseHead::parse(text.as_bytes())
    }

    /// The framing of an answer with these headers, and whether its connection is kept.
    fn framed(first: &str, headers: &str) -> (BodyFraming, bool) {
        let text = format!("{first}\r\n{headers}\r\n");
        let (length, head) = head(&text).unwrap().unwrap();
        assert_eq!(length, text.len());
        (head.framing, head.is_reusable)
    }

    #[test]
    fn each_kind_of_body_is_known_by_its_head() {
        let ok = "HTTP/1.1 200 OK";
        let chunked = BodyFraming::Chunked(ChunkState::Size);
        for (first, headers, expected) in [
            (ok, "transfer-encoding: chunked\r\n", (chunked, true)),
            (ok, "Transfer-Encoding: gzip, Chunked\r\ncontent-length: 3\r\n", (chunked, true)),
            (ok, "transfer-encoding: chunked\r\nconnection: x, Close\r\n", (chunked, false)),
            (ok, "transfer-encoding: gzip\r\n", (BodyFraming::UntilClosed, false)),
            (ok, "content-length: 3\r\n", (BodyFraming::Length(3), true)),
            (ok, "content-length: 3, 3\r\ncontent-length: 3\r\n", (BodyFraming::Length(3), true)),
            (ok, "content-length: 0\r\n", (BodyFraming::Over, true)),
            (ok, "", (BodyFraming::UntilClosed, false)),
            ("HTTP/1.1 204 No Content", "content-length: 3\r\n", (BodyFraming::Over, true)),
            ("HTTP/1.1 103 Early Hints", "link: x\r\n", (BodyFraming::Over, true)),
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
            assert_eq!(framed(first, headers), expected, "{first} {headers}");
        }
    }

    #[test]
    fn a_head_that_is_none_is_an_error_and_half_of_one_is_waited_for() {
        for (text, expected) in [
            ("SSH-2.0-OpenSSH_9.6\r\n", "no HTTP"),
            ("HTTP/1.1 099 No\r\n\r\n", "its status is none"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n", "no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n", "no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", "no number"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "two values"),
        ] {
            assert!(head(text).unwrap_err().contains(expected), "{text}");
        }
        let whole = "HTTP/1.1 200 OK\r\na: b\r\n\r\n";
        for end in 0..whole.len() {
            assert!(head(&whole[..end]).unwrap().is_none(), "{end}");
        }
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(head(&long).unwrap_err(), "its head is too long");
    }

    /// What a body gives that comes in pieces of so many bytes, and how much of it is left over.
    fn decoded(
        mut framing: BodyFraming,
        body: &[u8],
        cut: usize,
    ) -> Result<(Vec<u8>, BodyFraming, usize), &'static str> {
        let (mut out, mut held) = (Vec::new(), Vec::new());
        for piece in body.chunks(cut) {
            held.extend_from_slice(piece);
            let used = framing.decode(&held, &mut |bytes| out.extend_from_slice(bytes))?;
            held.drain(..used);
        }
        Ok((out, framing, held.len()))
    }

    #[test]
    fn a_body_is_the_same_wherever_it_is_cut() {
        let chunked = BodyFraming::Chunked(ChunkState::Size);
        let plain = &b"5\r\nhello\r\n1;x=\"y\"\r\n \r\nA \r\n0123456789\r\n0\r\n\r\n"[..];
        let trailer = &b"00010\r\n0123456789abcdef\r\n0\r\nx: y\r\nz: \r\n\r\nNEXT"[..];
        for cut in 1..=plain.len() {
            let whole = (b"hello 0123456789".to_vec(), BodyFraming::Over, 0);
            assert_eq!(decoded(chunked, plain, cut), Ok(whole), "{cut}");
            let whole = (b"0123456789abcdef".to_vec(), BodyFraming::Over, 4);
            assert_eq!(decoded(chunked, trailer, cut), Ok(whole), "{cut}");
            let whole = (b"hel".to_vec(), BodyFraming::Over, 2);
            assert_eq!(decoded(BodyFraming::Length(3), b"hello", cut), Ok(whole));
            let part = (b"hello".to_vec(), BodyFraming::Length(2), 0);
            assert_eq!(decoded(BodyFraming::Length(7), b"hello", cut), Ok(part));
            let open = (b"hello".to_vec(), BodyFraming::UntilClosed, 0);
            assert_eq!(decoded(BodyFraming::UntilClosed, b"hello", cut), Ok(open));
        }
    }

    #[test]
    fn chunks_that_are_none_are_errors() {
        let long = format!("1;{}", "x".repeat(MAX_LINE_BYTES));
        let trailer = format!("0\r\n{}", "x".repeat(MAX_LINE_BYTES + 1));
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
            for cut in [1, 7, body.len()] {
                let chunked = BodyFraming::Chunked(ChunkState::Size);
                assert!(decoded(chunked, body.as_bytes(), cut).is_err(), "{body} {cut}");
            }
        }
    }
}
