//! The request id in the response and the log: the client's own, or a new one.

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderValue};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longer ids are replaced.
const MAX_LENGTH: usize = 128;

pub(crate) struct RequestIds {
    /// Random for each start, so that two servers do not use the same ids.
    prefix: [u8; 12],
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // Ids must differ, but need not be secret: without randomness they still differ here.
        let random = getrandom::u64().unwrap_or_default();
        let mut prefix = [0; 12];
        write_hex(random, &mut prefix);
        Self { prefix, next: AtomicU64::new(1) }
    }

    pub(crate) fn id_for(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(super::X_REQUEST_ID) {
            Some(id) if is_valid(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let mut number = [0; 10];
        write_hex(self.next.fetch_add(1, Ordering::Relaxed), &mut number);
        let mut id = BytesMut::with_capacity(23);
        id.put_slice(&self.prefix);
        id.put_u8(b'-');
        id.put_slice(&number);
        HeaderValue::from_maybe_shared(id.freeze())
            .unwrap_or_else(|_| HeaderValue::from_static("none"))
    }
}

fn is_valid(id: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(fits)
}

/// The last hexadecimal digits of a number.
fn write_hex(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = match u8::try_from(number & 15) {
            Ok(value @ 0..10) => b'0' + value,
            Ok(value) => b'a' + value - 10,
            Err(_) => b'0',
        };
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_id_is_kept_and_a_bad_one_replaced() {
        let ids = RequestIds::new();
        let of = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(super::super::X_REQUEST_ID, HeaderValue::from_str(id).unwrap());
            ids.id_for(&headers).to_str().unwrap().to_owned()
        };
        assert_eq!(of("abc-1.2_3:4"), "abc-1.2_3:4");
        for bad in ["", "a b", "<script>", &"x".repeat(129)] {
            let id = of(bad);
            assert_eq!(id.len(), 23, "{id}");
        }
        assert_ne!(of(""), of(""));
    }
}
