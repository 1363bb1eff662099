//! What a message asks the demo to show.

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Weather,
    Approve,
    Parallel,
    Browser,
    Image,
    Team,
    Json,
    Fail,
    Long { deltas: u64, asked: Asked },
    Talk,
}

/// Whether as many deltas come as were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Enough,
    TooMuch,
}

/// The longest text, in deltas.
pub(super) const LONGEST: u64 = 1_000_000;

/// The first that is found counts.
const WORDS: [(&str, Wish); 8] = [
    ("weather", Wish::Weather),
    ("approve", Wish::Approve),
    ("parallel", Wish::Parallel),
    ("browser", Wish::Browser),
    ("image", Wish::Image),
    ("team", Wish::Team),
    ("json", Wish::Json),
    ("fail", Wish::Fail),
];

impl Wish {
    pub(super) fn of(message: &str) -> Self {
        let has = |word: &str| words(message).any(|it| it.eq_ignore_ascii_case(word));
        let found = WORDS.into_iter().find(|(word, _)| has(word)).map(|(_, wish)| wish);
        found.or_else(|| long(message)).unwrap_or(Self::Talk)
    }
}

/// `long` with a number behind it; without one it is a word like any other.
fn long(message: &str) -> Option<Wish> {
    let pairs = words(message).zip(words(message).skip(1));
    let number = pairs
        .filter(|(word, _)| word.eq_ignore_ascii_case("long"))
        .find_map(|(_, next)| next.bytes().all(|byte| byte.is_ascii_digit()).then_some(next))?;
    // More digits than fit are more than enough.
    let deltas = number.parse().unwrap_or(u64::MAX);
    let asked = if deltas > LONGEST { Asked::TooMuch } else { Asked::Enough };
    Some(Wish::Long { deltas: deltas.min(LONGEST), asked })
}

pub(super) fn words(message: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| !(c.is_alphanumeric() || c == '_');
    message.split(between).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_whole_in_any_case_and_in_the_order_of_the_table() {
        for (message, wish) in [
            ("How is the weather?", Wish::Weather),
            ("WEATHER", Wish::Weather),
            ("get_weather", Wish::Talk),
            ("weathered", Wish::Talk),
            ("Please approve: it is an image", Wish::Approve),
            ("fail, then json", Wish::Json),
            ("Team-work", Wish::Team),
            ("", Wish::Talk),
            ("ein Überbrowser", Wish::Talk),
        ] {
            assert_eq!(Wish::of(message), wish, "{message}");
        }
    }

    #[test]
    fn long_needs_a_number_and_has_an_end() {
        let long = |deltas, asked| Wish::Long { deltas, asked };
        for (message, wish) in [
            ("long 300", long(300, Asked::Enough)),
            ("How long? Long 3.", long(3, Asked::Enough)),
            ("long 0", long(0, Asked::Enough)),
            ("long 1000000", long(LONGEST, Asked::Enough)),
            ("long 1000001", long(LONGEST, Asked::TooMuch)),
            ("long 99999999999999999999999999", long(LONGEST, Asked::TooMuch)),
            ("how long is it", Wish::Talk),
            ("long -1", long(1, Asked::Enough)),
            ("long 1x", Wish::Talk),
        ] {
            assert_eq!(Wish::of(message), wish, "{message}");
        }
    }
}
