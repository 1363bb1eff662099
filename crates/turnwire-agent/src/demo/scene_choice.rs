//! Chooses the demo's scene by the words of a message.

/// A scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    Weather,
    Approve,
    Parallel,
    Browser,
    Image,
    Team,
    Json,
    Fail,
    Long { deltas: u64, limit: LengthLimit },
    Introduction,
}

/// Whether the requested number of deltas is within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LengthLimit {
    Within,
    Exceeded,
}

/// The most deltas of a text.
pub(super) const MAX_DELTAS: u64 = 1_000_000;

/// The first match wins.
const KEYWORDS: [(&str, Scene); 8] = [
    ("weather", Scene::Weather),
    ("approve", Scene::Approve),
    ("parallel", Scene::Parallel),
    ("browser", Scene::Browser),
    ("image", Scene::Image),
    ("team", Scene::Team),
    ("json", Scene::Json),
    ("fail", Scene::Fail),
];

impl Scene {
    pub(super) fn from_message(message: &str) -> Self {
        let has = |word: &str| words(message).any(|it| it.eq_ignore_ascii_case(word));
        let found = KEYWORDS.into_iter().find(|(word, _)| has(word)).map(|(_, scene)| scene);
        found.or_else(|| parse_long(message)).unwrap_or(Self::Introduction)
    }
}

/// `long` followed by a number; without one it is an ordinary word.
fn parse_long(message: &str) -> Option<Scene> {
    let pairs = words(message).zip(words(message).skip(1));
    let number = pairs
        .filter(|(word, _)| word.eq_ignore_ascii_case("long"))
        .find_map(|(_, next)| next.bytes().all(|byte| byte.is_ascii_digit()).then_some(next))?;
    // A number that is too large for `u64` is above the limit anyway.
    let deltas = number.parse().unwrap_or(u64::MAX);
    let limit = if deltas > MAX_DELTAS { LengthLimit::Exceeded } else { LengthLimit::Within };
    Some(Scene::Long { deltas: deltas.min(MAX_DELTAS), limit })
}

pub(super) fn words(message: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| !(c.is_alphanumeric() || c == '_');
    message.split(between).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_count_in_any_case_and_in_the_order_of_the_table() {
        for (message, scene) in [
            ("How is the weather?", Scene::Weather),
            ("WEATHER", Scene::Weather),
            ("get_weather", Scene::Introduction),
            ("weathered", Scene::Introduction),
            ("Please approve: it is an image", Scene::Approve),
            ("fail, then json", Scene::Json),
            ("Team-work", Scene::Team),
            ("", Scene::Introduction),
            ("ein Überbrowser", Scene::Introduction),
        ] {
            assert_eq!(Scene::from_message(message), scene, "{message}");
        }
    }

    #[test]
    fn long_needs_a_number_and_has_an_end() {
        let long = |deltas, limit| Scene::Long { deltas, limit };
        for (message, scene) in [
            ("long 300", long(300, LengthLimit::Within)),
            ("How long? Long 3.", long(3, LengthLimit::Within)),
            ("long 0", long(0, LengthLimit::Within)),
            ("long 1000000", long(MAX_DELTAS, LengthLimit::Within)),
            ("long 1000001", long(MAX_DELTAS, LengthLimit::Exceeded)),
            ("long 99999999999999999999999999", long(MAX_DELTAS, LengthLimit::Exceeded)),
            ("how long is it", Scene::Introduction),
            ("long -1", long(1, LengthLimit::Within)),
            ("long 1x", Scene::Introduction),
        ] {
            assert_eq!(Scene::from_message(message), scene, "{message}");
        }
    }
}
