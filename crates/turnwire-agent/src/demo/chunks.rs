//! Splits a text into deltas.

use std::borrow::Cow;

/// A text in deltas.
#[derive(Debug, Clone)]
pub(super) enum Chunks {
    /// Word by word.
    Words(String),
    /// Pieces of this many characters.
    Pieces(String, usize),
    /// This many numbers of eight bytes each, generated on demand: a million of them need no 8 MB.
    Numbers(u64),
}

impl Chunks {
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = Cow<'_, str>> + Send + '_> {
        match self {
            Self::Words(text) => {
                Box::new(text.split_inclusive(char::is_whitespace).map(Cow::Borrowed))
            }
            Self::Pieces(text, size) => Box::new(pieces(text, *size).map(Cow::Borrowed)),
            Self::Numbers(count) => Box::new((1..=*count).map(|n| {
                let behind = if n % 10 == 0 { '\n' } else { ' ' };
                Cow::Owned(format!("{n:07}{behind}"))
            })),
        }
    }

    /// The deltas after the first `bytes` bytes.
    pub(super) fn remaining_after(&self, bytes: usize) -> impl Iterator<Item = String> + Send {
        let mut known = bytes;
        self.iter().filter_map(move |chunk| {
            let cut = known.min(chunk.len());
            known -= cut;
            chunk.get(cut..).filter(|rest| !rest.is_empty()).map(str::to_owned)
        })
    }

    /// The number of deltas, used as the token count.
    pub(super) fn tokens(&self) -> i64 {
        let count = match self {
            Self::Numbers(count) => *count,
            Self::Words(_) | Self::Pieces(..) => self.iter().count() as u64,
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at_checked(end)?;
        rest = more;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_remaining_chunks_are_the_whole() {
        for chunks in [
            Chunks::Words("Grüße,\n\n- eins  zwei\n".to_owned()),
            Chunks::Pieces("{\"straße\":1}".to_owned(), 4),
            Chunks::Numbers(12),
            Chunks::Words(String::new()),
        ] {
            let all: Vec<String> = chunks.iter().map(Cow::into_owned).collect();
            for come in 0..=all.len() {
                let (before, after) = all.split_at(come);
                let left: Vec<String> = chunks.remaining_after(before.concat().len()).collect();
                assert_eq!(left, after, "{chunks:?}");
            }
        }
    }

    #[test]
    fn numbers_are_eight_bytes_up_to_the_last() {
        let chunks = Chunks::Numbers(super::super::scene_choice::MAX_DELTAS);
        assert!(chunks.iter().all(|chunk| chunk.len() == 8));
        assert_eq!(chunks.remaining_after(8 * 999_999).collect::<Vec<_>>(), ["1000000\n"]);
    }
}
