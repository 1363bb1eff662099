//! Wildcards: `*` stays within a segment, `**` crosses segments.

use super::pattern::PatternError;

/// The longest value that is compared with a wildcard pattern. Longer values are undecided.
pub(super) const MAX_VALUE_BYTES: usize = 16 * 1024;
/// The longest pattern.
pub(super) const MAX_PATTERN_BYTES: usize = 1024;

/// A part of a pattern for one string.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// `*`: any characters but `/` and control characters.
    Star,
    /// `**`: any characters.
    DoubleStar,
}

/// A pattern for one string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(Vec<Token>);

impl Glob {
    pub(super) fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let literal = rest.find('*').unwrap_or(rest.len());
            let (head, tail) = rest.split_at(literal);
            if !head.is_empty() {
                tokens.push(Token::Literal(head.to_owned()));
            }
            let after = tail.trim_start_matches('*');
            match tail.len() - after.len() {
                0 => {}
                1 => tokens.push(Token::Star),
                _ => tokens.push(Token::DoubleStar),
            }
            rest = after;
        }
        Self(tokens)
    }

    /// The same pattern, but `*` crosses segments.
    pub(super) fn loosened(&self) -> Self {
        let loose = |token: &Token| match token {
            Token::Literal(text) => Token::Literal(text.clone()),
            Token::Star | Token::DoubleStar => Token::DoubleStar,
        };
        Self(self.0.iter().map(loose).collect())
    }

    /// The same pattern with changed literals.
    pub(super) fn map_literals(&self, change: impl Fn(&str) -> String) -> Self {
        let mapped = |token: &Token| match token {
            Token::Literal(text) => Token::Literal(change(text)),
            other @ (Token::Star | Token::DoubleStar) => other.clone(),
        };
        Self(self.0.iter().map(mapped).collect())
    }

    /// Whether it matches every string.
    pub(super) fn is_anything(&self) -> bool {
        matches!(self.0.as_slice(), [Token::DoubleStar])
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        if self.is_anything() {
            return true;
        }
        // `reached` holds the offsets in the value that the tokens so far can end at.
        let mut reached = vec![false; value.len() + 1];
        if let Some(start) = reached.first_mut() {
            *start = true;
        }
        for token in &self.0 {
            let mut next = vec![false; value.len() + 1];
            let mut mark = |at: usize| {
                if let Some(place) = next.get_mut(at) {
                    *place = true;
                }
            };
            match token {
                Token::Literal(literal) => {
                    for (at, _) in reached.iter().enumerate().filter(|(_, is_reached)| **is_reached)
                    {
                        if value.get(at..).is_some_and(|rest| rest.starts_with(literal.as_str())) {
                            mark(at + literal.len());
                        }
                    }
                }
                Token::Star | Token::DoubleStar => {
                    let mut is_open = false;
                    for (at, letter) in value.char_indices() {
                        is_open |= reached.get(at).copied().unwrap_or_default();
                        if is_open {
                            mark(at);
                        }
                        let ends = letter == '/' || letter.is_control();
                        is_open &= !(ends && *token == Token::Star);
                    }
                    if is_open || reached.last().copied().unwrap_or_default() {
                        mark(value.len());
                    }
                }
            }
            reached = next;
        }
        reached.last().copied().unwrap_or_default()
    }
}

/// A part of a pattern for a list of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// One segment.
    One(Glob),
    /// `**`: at least this many segments.
    Many(usize),
}

/// A pattern for a list of segments: a path, a host, a tool name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segments(Vec<Segment>);

/// The fewest segments that `**` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DoubleStar {
    /// One or more.
    OneOrMore,
    /// One or more at the end, any number elsewhere: `/a/**/b` also matches `/a/b`.
    OneOrMoreAtTheEnd,
}

impl Segments {
    /// Parses segments. `**` must be a whole segment.
    pub(super) fn new<'t>(
        parts: impl Iterator<Item = &'t str>,
        double_star: DoubleStar,
    ) -> Result<Self, PatternError> {
        let parts: Vec<&str> = parts.collect();
        let last = parts.len().saturating_sub(1);
        let segments = parts.into_iter().enumerate().map(|(at, part)| match part {
            "**" if at == last || double_star == DoubleStar::OneOrMore => Ok(Segment::Many(1)),
            "**" => Ok(Segment::Many(0)),
            part if part.contains("**") => {
                Err(PatternError::new("`**` has to be a whole segment: write `a/**`, not `a**`"))
            }
            part => Ok(Segment::One(Glob::new(part))),
        });
        Ok(Self(segments.collect::<Result<_, _>>()?))
    }

    /// The same pattern with changed literals, where `*` crosses segments and `**` also matches none.
    pub(super) fn loosened(&self, change: impl Fn(&str) -> String) -> Self {
        let loose = |segment: &Segment| match segment {
            Segment::One(glob) => Segment::One(glob.map_literals(&change)),
            Segment::Many(_) => Segment::Many(0),
        };
        Self(self.0.iter().map(loose).collect())
    }

    /// The same pattern, but a whole `*` matches one or more segments.
    pub(super) fn with_wide_stars(&self) -> Self {
        let wide = |segment: &Segment| match segment {
            Segment::One(glob) if *glob == Glob::new("*") => Segment::Many(1),
            Segment::One(_) | Segment::Many(_) => segment.clone(),
        };
        Self(self.0.iter().map(wide).collect())
    }

    pub(super) fn ends_with_double_star(&self) -> bool {
        matches!(self.0.last(), Some(Segment::Many(_)))
    }

    /// Whether the first segment of the pattern matches a name.
    pub(super) fn first_matches(&self, name: &str) -> bool {
        match self.0.first() {
            Some(Segment::One(glob)) => glob.matches(name),
            Some(Segment::Many(_)) => true,
            None => false,
        }
    }

    pub(super) fn matches(&self, value: &[impl AsRef<str>]) -> bool {
        self.reachable(value).last().copied().unwrap_or_default()
    }

    /// Whether a longer list that begins with these segments could match.
    pub(super) fn could_match_below(&self, value: &[impl AsRef<str>]) -> bool {
        self.reachable(value).contains(&true)
    }

    /// For each number of segments of the pattern, whether they match the whole value.
    fn reachable(&self, value: &[impl AsRef<str>]) -> Vec<bool> {
        let size = self.0.len() + 1;
        // `row[n]`: the first n segments of the pattern match the value up to here.
        let mut row = vec![false; size];
        let at = |row: &[bool], n: usize| row.get(n).copied().unwrap_or_default();
        if let Some(first) = row.first_mut() {
            *first = true;
        }
        let skip_empty = |row: &mut Vec<bool>| {
            for (n, segment) in self.0.iter().enumerate() {
                let is_skipped = matches!(segment, Segment::Many(0)) && at(row, n);
                if let Some(next) = row.get_mut(n + 1).filter(|_| is_skipped) {
                    *next = true;
                }
            }
        };
        skip_empty(&mut row);
        for part in value {
            let mut next = vec![false; size];
            for (n, segment) in self.0.iter().enumerate() {
                let is_matched = match segment {
                    Segment::One(glob) => at(&row, n) && glob.matches(part.as_ref()),
                    Segment::Many(_) => at(&row, n) || at(&row, n + 1),
                };
                if let Some(place) = next.get_mut(n + 1).filter(|_| is_matched) {
                    *place = true;
                }
            }
            skip_empty(&mut next);
            row = next;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_stays_within_a_segment_and_two_cross() {
        for (pattern, value, expected) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*b", "aXbYb", true),
            ("*ab*ab", "abab", true),
            ("ab*b", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "a/b", false),
            ("a**", "a/b", true),
            ("a***", "a/b", true),
            ("ls *", "ls x\nrm y", false),
            ("ls **", "ls x\nrm y", true),
            ("é*", "éa", true),
            ("*é", "aé", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn two_stars_stand_for_segments() {
        let matches = |pattern: &str, value: &str| {
            let rule = DoubleStar::OneOrMoreAtTheEnd;
            let pattern = Segments::new(pattern.split('/'), rule).unwrap();
            pattern.matches(&value.split('/').collect::<Vec<_>>())
        };
        assert!(matches("a/**", "a/b") && matches("a/**", "a/b/c"));
        assert!(!matches("a/**", "a") && !matches("a/*", "a/b/c"));
        assert!(matches("a/**/b", "a/b") && matches("a/**/b", "a/x/y/b"));
        assert!(!matches("a/**/b", "a/x/y"));
        assert!(matches("**/b/**/c", "b/c") && matches("**/b/**/c", "x/b/b/c"));
        assert!(Segments::new(["a**"].into_iter(), DoubleStar::OneOrMore).is_err());
    }

    #[test]
    fn many_stars_are_matched_in_bounded_work() {
        // A naive matcher takes exponential time for this one.
        let pattern = Glob::new(&"*a".repeat(200));
        assert!(!pattern.matches(&"a".repeat(MAX_VALUE_BYTES).replace('a', "ab")));
    }
}
