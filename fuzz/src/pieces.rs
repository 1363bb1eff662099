//! Splits a body into pieces, as a network would deliver it. The targets compare the result with that
//! of the whole body.

/// Pieces of 1 to 16 bytes. The first byte of each piece gives its size.
pub fn split_bytes(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let size = 1 + usize::from(*body.first()? % 16);
        let (piece, rest) = body.split_at(size.min(body.len()));
        body = rest;
        Some(piece)
    })
}

/// The same for text: a piece ends at a character boundary.
pub fn split_text(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let size = 1 + usize::from(*text.as_bytes().first()? % 16);
        let (piece, rest) = text.split_at(text.ceil_char_boundary(size));
        text = rest;
        Some(piece)
    })
}
