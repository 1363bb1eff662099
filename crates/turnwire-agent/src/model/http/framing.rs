//! Where the body of an answer begins and ends, as RFC 9112 has it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use httparse::{EMPTY_HEADER, Status, parse_chunk_size};

/// The longest head of an answer.
pub(super) const LONGEST_HEAD: usize = 64 << 10;
/// The longest line between two chunks.
pub(super) const LONGEST_LINE: usize = 1 << 10;
const MOST_HEADERS: usize = 128;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// Whether the connection can be used again behind the body.
    pub is_kept: bool,
}

/// How the rest of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunked),
    /// All that comes.
    UntilClosed,
    /// Nothing is left.
    Over,
}

/// What comes next in a body of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunked {
    Size,
    Data(u64),
    /// The end of the line behind the data.
    DataEnd,
    /// Lines behind the last chunk, and an empty one.
    Trailer,
}

impl Head {
    /// The first head in these bytes, and how long it is. Nothing, while it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Option<(usize, Self)>, String> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
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
        let framing = Framing::of(status, &headers, is_newest)?;
        let is_kept = framing != Framing::UntilClosed
            && !has(&headers, &header::CONNECTION, "close")
            && (is_newest || has(&headers, &header::CONNECTION, "keep-alive"));
        Ok(Some((length, Self { status, headers, framing, is_kept })))
    }
}

/// Whether a list in a header has a word.
fn has(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
}

impl Framing {
    fn of(status: StatusCode, headers: &HeaderMap, is_newest: bool) -> Result<Self, String> {
        if matches!(status.as_u16(), 100..=199 | 204 | 304) {
            return Ok(Self::Over);
        }
        if let Some(last) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
            let last = last.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default();
            let is_chunked = last.trim().eq_ignore_ascii_case("chunked") && is_newest;
            return Ok(if is_chunked { Self::Chunked(Chunked::Size) } else { Self::UntilClosed });
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
                    pass(rest, each);
                    return Ok(bytes.len());
                }
                Self::Length(left) => {
                    rest = take(rest, left, each);
                    if *left > 0 {
                        break;
                    }
                    *self = Self::Over;
                }
                Self::Chunked(chunked) => match chunked.decode(&mut rest, each)? {
                    Step::On => {}
                    Step::Wait if rest.len() > LONGEST_LINE => {
                        return Err("a line between two chunks is too long");
                    }
                    Step::Wait => break,
                    Step::Over => *self = Self::Over,
                },
            }
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Whether more can be done with what is there.
enum Step {
    On,
    Wait,
    Over,
}

impl Chunked {
    fn decode(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Step, &'static str> {
        match self {
            Self::Size => {
                if rest.first().is_some_and(|first| !first.is_ascii_hexdigit()) {
                    return Err("a chunk has no size");
                }
                match parse_chunk_size(rest).map_err(|_| "a chunk has no size")? {
                    Status::Partial => return Ok(Step::Wait),
                    Status::Complete((length, size)) => {
                        *rest = rest.get(length..).unwrap_or_default();
                        *self = if size == 0 { Self::Trailer } else { Self::Data(size) };
                    }
                }
            }
            Self::Data(left) => {
                *rest = take(rest, left, each);
                if *left > 0 {
                    return Ok(Step::Wait);
                }
                *self = Self::DataEnd;
            }
            Self::DataEnd => match rest.split_at_checked(2) {
                Some((b"\r\n", behind)) => {
                    *rest = behind;
                    *self = Self::Size;
                }
                None if b"\r\n".starts_with(rest) => return Ok(Step::Wait),
                Some(_) | None => return Err("a chunk is longer than it said"),
            },
            Self::Trailer => {
                let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                    return Ok(Step::Wait);
                };
                let (line, behind) = rest.split_at(end + 1);
                *rest = behind;
                if line.trim_ascii().is_empty() {
                    return Ok(Step::Over);
                }
            }
        }
        Ok(Step::On)
    }
}

/// Passes on as much as is left. What comes behind that.
fn take<'a>(bytes: &'a [u8], left: &mut u64, each: &mut dyn FnMut(&[u8])) -> &'a [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let (part, behind) = bytes.split_at_checked(most).unwrap_or((bytes, &[]));
    *left -= part.len() as u64;
    pass(part, each);
    behind
}

fn pass(bytes: &[u8], each: &mut dyn FnMut(&[u8])) {
    if !bytes.is_empty() {
        each(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(usize, Head)>, String> {
        Head::parse(text.as_bytes())
    }

    /// The framing of an answer with these headers, and whether its connection is kept.
    fn framed(first: &str, headers: &str) -> (Framing, bool) {
        let text = format!("{first}\r\n{headers}\r\n");
        let (length, head) = head(&text).unwrap().unwrap();
        assert_eq!(length, text.len());
        (head.framing, head.is_kept)
    }

    #[test]
    fn each_kind_of_body_is_known_by_its_head() {
        let ok = "HTTP/1.1 200 OK";
        let chunked = Framing::Chunked(Chunked::Size);
        for (first, headers, expected) in [
            (ok, "transfer-encoding: chunked\r\n", (chunked, true)),
            (ok, "Transfer-Encoding: gzip, Chunked\r\ncontent-length: 3\r\n", (chunked, true)),
            (ok, "transfer-encoding: chunked\r\nconnection: x, Close\r\n", (chunked, false)),
            (ok, "transfer-encoding: gzip\r\n", (Framing::UntilClosed, false)),
            (ok, "content-length: 3\r\n", (Framing::Length(3), true)),
            (ok, "content-length: 3, 3\r\ncontent-length: 3\r\n", (Framing::Length(3), true)),
            (ok, "content-length: 0\r\n", (Framing::Over, true)),
            (ok, "", (Framing::UntilClosed, false)),
            ("HTTP/1.1 204 No Content", "content-length: 3\r\n", (Framing::Over, true)),
            ("HTTP/1.1 103 Early Hints", "link: x\r\n", (Framing::Over, true)),
            ("HTTP/1.0 200 OK", "content-length: 3\r\n", (Framing::Length(3), false)),
            (
                "HTTP/1.0 200 OK",
                "content-length: 3\r\nconnection: keep-alive\r\n",
                (Framing::Length(3), true),
            ),
            ("HTTP/1.0 200 OK", "transfer-encoding: chunked\r\n", (Framing::UntilClosed, false)),
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
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(LONGEST_HEAD));
        assert_eq!(head(&long).unwrap_err(), "its head is too long");
    }

    /// What a body gives that comes in pieces of so many bytes, and how much of it is left over.
    fn decoded(
        mut framing: Framing,
        body: &[u8],
        cut: usize,
    ) -> Result<(Vec<u8>, Framing, usize), &'static str> {
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
        let chunked = Framing::Chunked(Chunked::Size);
        let plain = &b"5\r\nhello\r\n1;x=\"y\"\r\n \r\nA \r\n0123456789\r\n0\r\n\r\n"[..];
        let trailer = &b"00010\r\n0123456789abcdef\r\n0\r\nx: y\r\nz: \r\n\r\nNEXT"[..];
        for cut in 1..=plain.len() {
            let whole = (b"hello 0123456789".to_vec(), Framing::Over, 0);
            assert_eq!(decoded(chunked, plain, cut), Ok(whole), "{cut}");
            let whole = (b"0123456789abcdef".to_vec(), Framing::Over, 4);
            assert_eq!(decoded(chunked, trailer, cut), Ok(whole), "{cut}");
            let whole = (b"hel".to_vec(), Framing::Over, 2);
            assert_eq!(decoded(Framing::Length(3), b"hello", cut), Ok(whole));
            let part = (b"hello".to_vec(), Framing::Length(2), 0);
            assert_eq!(decoded(Framing::Length(7), b"hello", cut), Ok(part));
            let open = (b"hello".to_vec(), Framing::UntilClosed, 0);
            assert_eq!(decoded(Framing::UntilClosed, b"hello", cut), Ok(open));
        }
    }

    #[test]
    fn chunks_that_are_none_are_errors() {
        let long = format!("1;{}", "x".repeat(LONGEST_LINE));
        let trailer = format!("0\r\n{}", "x".repeat(LONGEST_LINE + 1));
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
                let chunked = Framing::Chunked(Chunked::Size);
                assert!(decoded(chunked, body.as_bytes(), cut).is_err(), "{body} {cut}");
            }
        }
    }
}
