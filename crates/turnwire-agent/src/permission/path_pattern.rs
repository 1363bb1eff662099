//! Patterns for file paths: compared segment by segment, without `.`, doubled and trailing slashes.

use super::MatchResult;
use super::glob::{DoubleStar, MAX_PATTERN_BYTES, Segments};
use super::normalize::{decode_percent, fold_case};
use super::pattern::PatternError;

/// A pattern for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathPattern {
    is_absolute: bool,
    strict: Segments,
    loose: Segments,
}

impl PathPattern {
    pub(super) fn new(text: &str) -> Result<Self, PatternError> {
        let fail = |why: &str| Err(PatternError::new(why));
        if text.len() > MAX_PATTERN_BYTES {
            return fail("a pattern has at most 1024 bytes");
        }
        if text.chars().any(char::is_control) || text.contains('\\') {
            return fail("a path has slashes, no backslashes and no control characters");
        }
        if text.starts_with('~') {
            return fail("`~` is not expanded: write the whole path");
        }
        let (is_absolute, rest) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.split('/').any(|part| matches!(part, "" | "." | "..")) && !rest.is_empty() {
            return fail(
                "a path has no empty segment, no `.` and no `..`; `/a/**` is all below `/a`",
            );
        }
        if text.is_empty() {
            return fail("a path is not empty");
        }
        let parts = rest.split('/').filter(|part| !part.is_empty());
        let strict = Segments::new(parts, DoubleStar::OneOrMoreAtTheEnd)?;
        let loose = strict.loosened(fold_segment);
        Ok(Self { is_absolute, strict, loose })
    }

    pub(super) fn match_value(&self, value: &str) -> MatchResult {
        if let Some(path) = parse_plain_path(value)
            && path.is_absolute == self.is_absolute
            && self.strict.matches(&path.segments)
        {
            return MatchResult::Yes;
        }
        if self.could_be(value) { MatchResult::Unsure } else { MatchResult::No }
    }

    /// Whether some program could read the value as a matching path.
    fn could_be(&self, value: &str) -> bool {
        if value.is_empty() || value.chars().any(char::is_control) || value.trim() != value {
            return true;
        }
        let decoded = decode_percent(value);
        let spellings = [value, &decoded].map(|spelling| spelling.replace('\\', "/"));
        spellings.iter().any(|spelling| {
            // A relative path, a home directory, a drive or a URL can lead anywhere.
            if spelling.starts_with('/') != self.is_absolute || spelling.starts_with('~') {
                return true;
            }
            let Some(segments) = resolve(spelling) else { return true };
            // A shell expansion can be anything below what comes before it.
            let is_fixed = |segment: &&String| !segment.contains(['*', '?', '[', '{', '$', '`']);
            let fixed: Vec<&String> = segments.iter().take_while(is_fixed).collect();
            if fixed.len() < segments.len() {
                return self.loose.could_match_below(&fixed);
            }
            self.loose.matches(&segments)
        })
    }
}

/// A path that every program reads in the same way.
struct PlainPath<'v> {
    is_absolute: bool,
    segments: Vec<&'v str>,
}

/// Removes `.`, doubled and trailing slashes. `None` if the path could lead elsewhere: `..` (behind a
/// symbolic link), a leading `//`, `~`, backslashes.
fn parse_plain_path(value: &str) -> Option<PlainPath<'_>> {
    let is_odd = value.is_empty()
        || value.chars().any(char::is_control)
        || value.contains('\\')
        || value.starts_with("//")
        || value.starts_with('~')
        || value.trim() != value;
    if is_odd {
        return None;
    }
    let segments: Vec<&str> =
        value.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
    let is_absolute = value.starts_with('/');
    // `C:` and `https:` are not names of directories.
    let has_colon = segments.first().is_some_and(|first| first.contains(':'));
    (!segments.contains(&"..") && (is_absolute || !has_colon))
        .then_some(PlainPath { is_absolute, segments })
}

/// Resolves `..` lexically, and folds what some file systems treat as equal. `None` if a relative path
/// leaves its start.
fn resolve(path: &str) -> Option<Vec<String>> {
    let mut segments: Vec<String> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                if segments.pop().is_none() && !path.starts_with('/') {
                    return None;
                }
            }
            segment => segments.push(fold_segment(segment)),
        }
    }
    Some(segments)
}

/// Some file systems ignore case, and dots and spaces at the end.
fn fold_segment(segment: &str) -> String {
    fold_case(segment.trim_end_matches(['.', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(pattern: &str, value: &str) -> MatchResult {
        PathPattern::new(pattern).unwrap().match_value(value)
    }

    #[test]
    fn a_path_is_matched_as_what_it_names() {
        for value in
            ["/tmp/a", "/tmp/a/b", "/tmp//a", "/tmp/./a", "/./tmp/a/", "/tmp/%2e%2e", "/tmp/..."]
        {
            assert_eq!(fit("/tmp/**", value), MatchResult::Yes, "{value}");
        }
        for value in [
            "/tmp/../etc/passwd",
            "/tmp",
            "/",
            "/etc/tmp/a",
            "/tmpa",
            "tmp/a",
            "",
            "~",
            "/tmp/a/../b",
            "//tmp/a",
            "/tmp\\a",
            "/tmp/a\0",
            "/tmp/\n",
            " /tmp/a",
            "file:///tmp/a",
            "C:/tmp/a",
            "/TMP/a",
            "/tmp/a/../../etc/x",
        ] {
            assert_ne!(fit("/tmp/**", value), MatchResult::Yes, "{value}");
        }
        assert_eq!(fit("/tmp/*", "/tmp/a/b"), MatchResult::No);
        assert_eq!(fit("src/**", "src/a/b"), MatchResult::Yes);
        assert_eq!(fit("src/**", "./src/a"), MatchResult::Yes);
        assert_eq!(fit("/", "/"), MatchResult::Yes);
    }

    #[test]
    fn another_spelling_of_a_path_is_never_certainly_another() {
        for value in [
            "/etc/passwd",
            "//etc/passwd",
            "/etc//passwd",
            "/etc/./passwd",
            "/tmp/../etc/passwd",
            "/../etc/passwd",
            "/ETC/Passwd",
            "/etc/passwd/",
            "/etc/passwd.",
            "/etc/passwd ",
            "\\etc\\passwd",
            "/etc\\passwd",
            "/%65tc/passwd",
            "/etc%2fpasswd",
            "/e*c/passwd",
            "/et?/passwd",
            "/$DIR/passwd",
            "/etc",
            "/etc/",
            "etc/passwd",
            "../../etc/passwd",
            "~root/../../etc/passwd",
            "C:\\etc\\passwd",
            "file:///etc/passwd",
            "/etc/passwd\0.txt",
            "",
        ] {
            assert_ne!(fit("/etc/**", value), MatchResult::No, "{value}");
        }
        for value in [
            "/tmp/a",
            "/etcetera/passwd",
            "/var/etc/passwd",
            "/etc/../tmp/a",
            "/tmp/*.txt",
            "/tmp/**/a",
        ] {
            assert_eq!(fit("/etc/**", value), MatchResult::No, "{value}");
        }
        assert_ne!(fit("/caf\u{e9}/**", "/cafe\u{301}/a"), MatchResult::No);
        assert_ne!(fit("/caf\u{e9}/**", "/cafe\u{301}/a"), MatchResult::Yes);
    }

    #[test]
    fn an_invalid_path_pattern_is_refused() {
        for pattern in
            ["", "/tmp/", "/tmp//a", "/tmp/../a", "./a", "~/a", "C:\\a", "/a\n", "/a**", "/a/**b"]
        {
            assert!(PathPattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
