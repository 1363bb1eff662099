//! A body in pieces, as a network would deliver it.

/// Pieces of 1 to 16 bytes: the first byte of each says how many.
pub fn bytes(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let size = 1 + usize::from(*body.first()? % 16);
        let (piece, rest) = body.split_at(size.min(body.len()));
        body = rest;
        Some(piece)
    })
}

/// The same for text, where a piece ends with a whole character.
pub fn text(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let size = 1 + usize::from(*text.as_bytes().first()? % 16);
        let (piece, rest) = text.split_at(text.ceil_char_boundary(size));
        text = rest;
        Some(piece)
    })
}
