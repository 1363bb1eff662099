//! Patterns for the fields of a tool's input.

use super::MatchResult;
use super::glob::{Glob, MAX_PATTERN_BYTES, MAX_VALUE_BYTES};
use super::input::InputValue;
use super::normalize::fold_case;
use super::path_pattern::PathPattern;
use super::url_pattern::UrlPattern;

/// A pattern for the value of a field. The meaning of `*` depends on the kind:
///
/// | kind | `*` | `**` |
/// |---|---|---|
/// | [`exact`](Self::exact) | itself | itself |
/// | [`text`](Self::text) | any characters but `/` and control characters | any characters |
/// | [`path`](Self::path) | any characters within a segment | any segments |
/// | [`url`](Self::url) | within a label of the host or a segment of the path | any labels, any segments |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(PatternKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternKind {
    Exact(String),
    Text { strict: Glob, loose: Glob },
    Path(Box<PathPattern>),
    Url(Box<UrlPattern>),
}

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl PatternError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Pattern {
    /// Exactly this text.
    pub fn exact(text: impl Into<String>) -> Self {
        Self(PatternKind::Exact(text.into()))
    }

    /// Text with wildcards.
    pub fn text(pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::new("a pattern has at most 1024 bytes"));
        }
        let strict = Glob::new(pattern);
        let loose = strict.loosened().map_literals(normalize_text);
        Ok(Self(PatternKind::Text { strict, loose }))
    }

    /// A file path: `/tmp/**`, `/srv/*/notes.txt`.
    pub fn path(pattern: &str) -> Result<Self, PatternError> {
        PathPattern::new(pattern).map(|pattern| Self(PatternKind::Path(Box::new(pattern))))
    }

    /// A URL: `https://*.example.com/**`.
    pub fn url(pattern: &str) -> Result<Self, PatternError> {
        UrlPattern::new(pattern).map(|pattern| Self(PatternKind::Url(Box::new(pattern))))
    }

    /// Infers the kind of a pattern: a path begins with `/`, a URL contains `://`, text contains neither
    /// slashes nor backslashes.
    ///
    /// ```
    /// use turnwire_agent::permission::Pattern;
    ///
    /// assert_eq!(Pattern::infer("/tmp/**")?, Pattern::path("/tmp/**")?);
    /// assert_eq!(Pattern::infer("git *")?, Pattern::text("git *")?);
    /// // A path or a media type? Ambiguous.
    /// assert!(Pattern::infer("image/*").is_err());
    /// # Ok::<(), turnwire_agent::permission::PatternError>(())
    /// ```
    pub fn infer(pattern: &str) -> Result<Self, PatternError> {
        if pattern.contains("://") {
            return Self::url(pattern);
        }
        if pattern.starts_with('/') {
            return Self::path(pattern);
        }
        if pattern.contains(['/', '\\']) {
            return Err(PatternError::new(format!(
                "\"{pattern}\" may be a path, a URL or text: write {{ path = \"…\" }}, \
                 {{ url = \"…\" }}, {{ text = \"…\" }} or {{ exact = \"…\" }}"
            )));
        }
        Self::text(pattern)
    }

    /// Whether it matches every value.
    fn is_anything(&self) -> bool {
        match &self.0 {
            PatternKind::Text { strict, .. } => strict.is_anything() || *strict == Glob::new("*"),
            PatternKind::Exact(_) | PatternKind::Path(_) | PatternKind::Url(_) => false,
        }
    }

    pub(super) fn match_value(&self, value: &InputValue) -> MatchResult {
        if self.is_anything() {
            return MatchResult::Yes;
        }
        match value {
            InputValue::String(text) => self.match_text(text),
            InputValue::Scalar(json) => match &self.0 {
                PatternKind::Exact(_) | PatternKind::Text { .. } => {
                    self.match_text(json).max(self.match_number(json))
                }
                PatternKind::Path(_) | PatternKind::Url(_) => MatchResult::Unsure,
            },
            // Every element counts.
            InputValue::Array(elements) => {
                let fits: Vec<MatchResult> =
                    elements.iter().map(|element| self.match_value(element)).collect();
                match fits.first() {
                    Some(first) if fits.iter().all(|fit| fit == first) => *first,
                    _ => MatchResult::Unsure,
                }
            }
            InputValue::Object(_) => MatchResult::Unsure,
        }
    }

    fn match_text(&self, text: &str) -> MatchResult {
        if text.len() > MAX_VALUE_BYTES && !matches!(self.0, PatternKind::Exact(_)) {
            return MatchResult::Unsure;
        }
        match &self.0 {
            PatternKind::Exact(own) if own == text => MatchResult::Yes,
            PatternKind::Exact(own) => {
                MatchResult::unsure_or_no(normalize_text(own) == normalize_text(text))
            }
            PatternKind::Text { strict, .. } if strict.matches(text) => MatchResult::Yes,
            PatternKind::Text { loose, .. } => {
                MatchResult::unsure_or_no(loose.matches(&normalize_text(text)))
            }
            PatternKind::Path(pattern) => pattern.match_value(text),
            PatternKind::Url(pattern) => pattern.match_value(text),
        }
    }

    /// `5.0` and `5` are the same number.
    fn match_number(&self, json: &str) -> MatchResult {
        let PatternKind::Exact(own) = &self.0 else { return MatchResult::No };
        match (own.parse::<f64>(), json.parse::<f64>()) {
            (Ok(own), Ok(value)) => MatchResult::unsure_or_no(own.to_bits() == value.to_bits()),
            _ => MatchResult::No,
        }
    }
}

/// Removes case, accents and white space that many programs ignore.
fn normalize_text(text: &str) -> String {
    let folded = fold_case(text);
    let mut out = String::with_capacity(folded.len());
    for letter in folded.chars() {
        let letter = if letter.is_whitespace() { ' ' } else { letter };
        if !(letter == ' ' && out.ends_with(' ')) {
            out.push(letter);
        }
    }
    out
}
