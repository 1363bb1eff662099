//! What a rule says about a field of a tool's input.

use super::Fit;
use super::address::UrlPattern;
use super::glob::{Glob, LONGEST_PATTERN, LONGEST_VALUE};
use super::input::Node;
use super::path::PathPattern;
use super::text::fold;
use std::fmt;

/// A pattern for the value of a field. What `*` means depends on what the value is:
///
/// | kind | `*` | `**` |
/// |---|---|---|
/// | [`exact`](Self::exact) | itself | itself |
/// | [`text`](Self::text) | any characters but `/` and control characters | any characters |
/// | [`path`](Self::path) | any characters within a segment | any segments |
/// | [`url`](Self::url) | within a label of the host or a segment of the path | any labels, any segments |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Exact(String),
    Text { strict: Glob, loose: Glob },
    Path(Box<PathPattern>),
    Url(Box<UrlPattern>),
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError(String);

impl PatternError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// This very text.
    pub fn exact(text: impl Into<String>) -> Self {
        Self(Kind::Exact(text.into()))
    }

    /// Text with wildcards.
    pub fn text(pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > LONGEST_PATTERN {
            return Err(PatternError::new("a pattern has at most 1024 bytes"));
        }
        let strict = Glob::new(pattern);
        let loose = strict.loosened().map_literals(fold_text);
        Ok(Self(Kind::Text { strict, loose }))
    }

    /// A path of files: `/tmp/**`, `/srv/*/notes.txt`.
    pub fn path(pattern: &str) -> Result<Self, PatternError> {
        PathPattern::new(pattern).map(|pattern| Self(Kind::Path(Box::new(pattern))))
    }

    /// A URL: `https://*.example.com/**`.
    pub fn url(pattern: &str) -> Result<Self, PatternError> {
        UrlPattern::new(pattern).map(|pattern| Self(Kind::Url(Box::new(pattern))))
    }

    /// A pattern whose kind follows from how it is written: what begins with `/` is a path, what has
    /// `://` is a URL, and what has neither slashes nor backslashes is text.
    ///
    /// ```
    /// use turnwire_agent::permission::Pattern;
    ///
    /// assert_eq!(Pattern::infer("/tmp/**")?, Pattern::path("/tmp/**")?);
    /// assert_eq!(Pattern::infer("git *")?, Pattern::text("git *")?);
    /// // A path, or a type of media? That has to be said.
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
            Kind::Text { strict, .. } => strict.is_anything() || *strict == Glob::new("*"),
            Kind::Exact(_) | Kind::Path(_) | Kind::Url(_) => false,
        }
    }

    pub(super) fn fit(&self, value: &Node) -> Fit {
        if self.is_anything() {
            return Fit::Yes;
        }
        match value {
            Node::String(text) => self.fit_text(text),
            Node::Scalar(json) => match &self.0 {
                Kind::Exact(_) | Kind::Text { .. } => {
                    self.fit_text(json).max(self.fit_number(json))
                }
                Kind::Path(_) | Kind::Url(_) => Fit::Unsure,
            },
            // Each element counts.
            Node::Array(elements) => {
                let fits: Vec<Fit> = elements.iter().map(|element| self.fit(element)).collect();
                match fits.first() {
                    Some(first) if fits.iter().all(|fit| fit == first) => *first,
                    _ => Fit::Unsure,
                }
            }
            Node::Object(_) => Fit::Unsure,
        }
    }

    fn fit_text(&self, text: &str) -> Fit {
        if text.len() > LONGEST_VALUE && !matches!(self.0, Kind::Exact(_)) {
            return Fit::Unsure;
        }
        match &self.0 {
            Kind::Exact(own) if own == text => Fit::Yes,
            Kind::Exact(own) => Fit::unsure_if(fold_text(own) == fold_text(text)),
            Kind::Text { strict, .. } if strict.matches(text) => Fit::Yes,
            Kind::Text { loose, .. } => Fit::unsure_if(loose.matches(&fold_text(text))),
            Kind::Path(pattern) => pattern.fit(text),
            Kind::Url(pattern) => pattern.fit(text),
        }
    }

    /// `5.0` and `5` are one number.
    fn fit_number(&self, json: &str) -> Fit {
        let Kind::Exact(own) = &self.0 else { return Fit::No };
        match (own.parse::<f64>(), json.parse::<f64>()) {
            (Ok(own), Ok(value)) => Fit::unsure_if(own.to_bits() == value.to_bits()),
            _ => Fit::No,
        }
    }
}

/// Case, accents and white space that many programs do not tell apart.
fn fold_text(text: &str) -> String {
    let folded = fold(text);
    let mut out = String::with_capacity(folded.len());
    for letter in folded.chars() {
        let letter = if letter.is_whitespace() { ' ' } else { letter };
        if !(letter == ' ' && out.ends_with(' ')) {
            out.push(letter);
        }
    }
    out
}
