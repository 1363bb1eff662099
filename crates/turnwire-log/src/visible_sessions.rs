//! Which sessions of a tenant a caller may see. Credentials that are limited to some sessions carry
//! patterns. Every list passes them to the engine, which filters before it pages.
//!
//! ```
//! use turnwire_log::visible_sessions::{SessionPattern, VisibleSessions};
//!
//! let visible = VisibleSessions::only(["room-1", "team:*"].map(SessionPattern::new));
//! assert!(visible.contains("room-1") && visible.contains("team:a"));
//! assert!(!visible.contains("room-12"));
//! ```

use std::sync::Arc;

/// The id of a session, or a prefix followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionPattern {
    /// The session with this id.
    Id(Box<str>),
    /// All sessions whose id starts with this.
    Prefix(Box<str>),
}

impl std::fmt::Display for SessionPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl SessionPattern {
    /// Parses a pattern.
    pub fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Id(text.into()),
        }
    }

    /// Whether the id of a session matches.
    pub fn matches(&self, session: &str) -> bool {
        match self {
            Self::Id(id) => **id == *session,
            Self::Prefix(prefix) => session.starts_with(&**prefix),
        }
    }

    /// Whether every id that matches the other pattern matches this one.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(prefix), Self::Id(other) | Self::Prefix(other)) => {
                other.starts_with(&**prefix)
            }
            (Self::Id(id), Self::Id(other)) => id == other,
            (Self::Id(_), Self::Prefix(_)) => false,
        }
    }
}

/// The sessions of a tenant that a caller may see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VisibleSessions(Option<Arc<[SessionPattern]>>);

impl VisibleSessions {
    /// All sessions.
    pub const ALL: Self = Self(None);

    /// Only sessions that match one of these patterns. No pattern: no session.
    pub fn only(rules: impl IntoIterator<Item = SessionPattern>) -> Self {
        let mut rules: Vec<SessionPattern> = rules.into_iter().collect();
        // By text, prefixes first, so that everything a prefix covers follows it.
        let key = |rule: &SessionPattern| match rule {
            SessionPattern::Prefix(text) => (text.clone(), 0),
            SessionPattern::Id(text) => (text.clone(), 1),
        };
        rules.sort_by_cached_key(key);
        rules.dedup_by(|later, kept| kept.covers(later));
        match rules.as_slice() {
            [SessionPattern::Prefix(prefix)] if prefix.is_empty() => Self::ALL,
            _ => Self(Some(rules.into())),
        }
    }

    /// Whether the caller may see a session.
    pub fn contains(&self, session: &str) -> bool {
        self.0.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.matches(session)))
    }

    /// The patterns, none of which covers another; `None` if all sessions are visible.
    pub fn patterns(&self) -> Option<&[SessionPattern]> {
        self.0.as_deref()
    }
}

/// The first text after all texts with a prefix, in byte order; `None` if there is none.
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Surrogate code points are not characters.
        let next = match u32::from(last) + 1 {
            0xD800 => 0xE000,
            next => next,
        };
        if let Some(next) = char::from_u32(next) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{SessionPattern, VisibleSessions, prefix_end};

    fn visible(rules: &[&str]) -> VisibleSessions {
        VisibleSessions::only(rules.iter().map(|rule| SessionPattern::new(rule)))
    }

    #[test]
    fn rules_that_another_covers_are_left_out() {
        assert_eq!(visible(&["ab*", "abc", "a*", "a", "b", "b", "abd*"]), visible(&["b", "a*"]));
        assert_eq!(visible(&["ab", "ab*"]), visible(&["ab*"]));
        assert_eq!(visible(&["a", "*", "b*"]), VisibleSessions::ALL);
        assert_eq!(visible(&[]).patterns(), Some([].as_slice()));
        assert!(!visible(&[]).contains("a"));
    }

    #[test]
    fn the_text_behind_a_prefix_is_behind_all_that_begin_with_it() {
        assert_eq!(prefix_end("ab").as_deref(), Some("ac"));
        assert_eq!(prefix_end("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(prefix_end("\u{D7FF}").as_deref(), Some("\u{E000}"));
        assert_eq!(prefix_end("\u{10FFFF}"), None);
        assert_eq!(prefix_end(""), None);
    }
}
