//! Permission rules: which tool calls run, which are denied, and which need approval.
//!
//! ```
//! use turnwire_agent::permission::{Pattern, Permissions, Rule};
//! use turnwire_agent::tool::ToolSpec;
//! use turnwire_core::Behavior;
//!
//! let permissions = Permissions::new([
//!     Rule::new("files/write_*", Behavior::Ask).input("path", Pattern::path("/tmp/**")?),
//!     Rule::new("files/write_*", Behavior::Deny),
//! ]);
//! let tool = ToolSpec::new("files/write_text", "", serde_json::Map::new().into());
//! let decide = |input| permissions.decide(&[], &tool, input);
//! assert_eq!(decide(r#"{"path":"/tmp/a/b"}"#), Behavior::Ask);
//! assert_eq!(decide(r#"{"path":"/tmp/../etc/passwd"}"#), Behavior::Deny);
//! # Ok::<(), turnwire_agent::permission::PatternError>(())
//! ```
//!
//! Rules apply in order, and the first that matches decides. Sometimes it is uncertain whether a rule
//! matches: the path is relative, programs parse the URL differently, the field is missing or has another
//! type. Then the rule counts only if it is stricter than the rules after it. So an `allow` covers only
//! what it certainly means, and a `deny` also covers what it could mean.
//!
//! In tool names `*` stays within a segment (`files/*`), `**` crosses segments, and `*` alone matches every
//! tool. The meaning of wildcards in an input depends on its kind: see [`Pattern`].

mod accepted;
mod glob;
mod input;
mod normalize;
mod path_pattern;
mod pattern;
mod url_pattern;

pub use accepted::{DESCRIPTION_FIELD, describe_rule};
pub use input::check_input;
pub use pattern::{Pattern, PatternError};

use crate::tool::ToolSpec;
use glob::{DoubleStar, Glob, Segments};
use input::InputValue;
use serde_json::Value;
use turnwire_core::{Behavior, PermissionRule};

/// Whether a pattern matches a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchResult {
    No,
    /// Perhaps.
    Unsure,
    Yes,
}

impl MatchResult {
    fn unsure_or_no(is_so: bool) -> Self {
        if is_so { Self::Unsure } else { Self::No }
    }
}

/// A pattern for tool names.
///
/// ```
/// use turnwire_agent::permission::NamePattern;
///
/// assert!(NamePattern::new("files/read_*").matches("files/read_text"));
/// assert!(!NamePattern::new("files/*").matches("files/a/b"));
/// assert!(NamePattern::new("files/**").matches("files/a/b"));
/// assert!(NamePattern::new("*").matches("files/read_text"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    /// `None`: the pattern is invalid, because `**` is only part of a segment, and matches nothing.
    strict: Option<Segments>,
    loose: Glob,
}

impl NamePattern {
    /// Parses a pattern. An [invalid](Self::check) pattern matches nothing for certain.
    pub fn new(pattern: &str) -> Self {
        let pattern = if pattern == "*" { "**" } else { pattern };
        let strict = Segments::new(pattern.split('/'), DoubleStar::OneOrMoreAtTheEnd).ok();
        Self { strict, loose: Glob::new(pattern).loosened() }
    }

    /// Checks a pattern.
    pub fn check(pattern: &str) -> Result<(), PatternError> {
        if pattern.is_empty() {
            return Err(PatternError::new("a tool name must not be empty; `*` matches every tool"));
        }
        Segments::new(pattern.split('/'), DoubleStar::OneOrMoreAtTheEnd).map(drop)
    }

    /// Whether a tool name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.match_name(name) == MatchResult::Yes
    }

    /// Whether a tool whose name begins with this segment and a `/` could match.
    pub fn may_match_below(&self, segment: &str) -> bool {
        self.strict.as_ref().is_some_and(|strict| strict.first_matches(segment))
    }

    fn match_name(&self, name: &str) -> MatchResult {
        let parts: Vec<&str> = name.split('/').collect();
        if self.strict.as_ref().is_some_and(|strict| strict.matches(&parts)) {
            return MatchResult::Yes;
        }
        MatchResult::unsure_or_no(self.loose.matches(name))
    }
}

/// A permission rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    tool: NamePattern,
    input: Vec<(String, Pattern)>,
    behavior: Behavior,
}

impl Rule {
    /// A rule for the tools whose names match: see [`NamePattern`].
    pub fn new(tool: impl AsRef<str>, behavior: Behavior) -> Self {
        Self { tool: NamePattern::new(tool.as_ref()), input: Vec::new(), behavior }
    }

    /// Limits the rule to calls whose input field matches. A name that begins with `/` is a JSON Pointer
    /// (`/options/url`).
    #[must_use]
    pub fn input(mut self, field: impl Into<String>, pattern: Pattern) -> Self {
        self.input.push((field.into(), pattern));
        self
    }

    fn match_call(&self, tool: &ToolSpec, input: Option<&InputValue>) -> MatchResult {
        let fields = self.input.iter().map(|(field, pattern)| match input {
            Some(input) => match_field(tool, input, field, pattern),
            None => MatchResult::Unsure,
        });
        fields.fold(self.tool.match_name(&tool.name), MatchResult::min)
    }
}

fn match_field(tool: &ToolSpec, input: &InputValue, field: &str, pattern: &Pattern) -> MatchResult {
    let values = input.find_fields(field);
    if !values.iter().any(|(_, is_exact)| *is_exact) && values.is_empty() {
        // The rule is not about a tool without this field.
        return MatchResult::unsure_or_no(may_have_field(tool, field));
    }
    let fits = values.iter().map(|(value, is_exact)| match pattern.match_value(value) {
        // Some programs ignore the case of keys.
        MatchResult::Yes if !is_exact => MatchResult::Unsure,
        fit @ (MatchResult::Yes | MatchResult::Unsure | MatchResult::No) => fit,
    });
    let fits: Vec<MatchResult> = fits.collect();
    match fits.first() {
        Some(first) if fits.iter().all(|fit| fit == first) => *first,
        // All values must match; if only some do, the result is uncertain.
        _ => MatchResult::Unsure,
    }
}

/// Whether the schema of a tool allows a field.
fn may_have_field(tool: &ToolSpec, field: &str) -> bool {
    let schema: Value = serde_json::from_str(tool.input.text()).unwrap_or_default();
    let Some(Value::Object(properties)) = schema.get("properties") else { return true };
    let is_closed = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"]
        .iter()
        .all(|key| schema.get(*key).is_none());
    let first = field.strip_prefix('/').unwrap_or(field).split('/').next().unwrap_or_default();
    !is_closed || properties.keys().any(|key| key.to_lowercase() == first.to_lowercase())
}

/// The permission rules of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions(Vec<Rule>);

impl Permissions {
    /// Rules in this order.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// Decides a call. `accepted` are rules that users accepted in this session: they skip an approval, and
    /// never override a denial.
    pub fn decide(&self, accepted: &[PermissionRule], tool: &ToolSpec, input: &str) -> Behavior {
        let node = input::parse(input).ok();
        let mut decided: Option<&Behavior> = None;
        // The strictest of the uncertain rules.
        let mut strictest = &Behavior::Allow;
        let is_final = |rule: &&Rule| rule.behavior != Behavior::Passthrough;
        for rule in self.0.iter().filter(is_final) {
            match rule.match_call(tool, node.as_ref()) {
                MatchResult::No => {}
                MatchResult::Unsure => strictest = stricter(strictest, &rule.behavior),
                MatchResult::Yes => {
                    decided = Some(&rule.behavior);
                    break;
                }
            }
        }
        let behavior = stricter(strictest, decided.unwrap_or(&tool.behavior));
        if *behavior != Behavior::Ask {
            return behavior.clone();
        }
        let is_accepted = |rule: &PermissionRule| {
            rule.behavior == Behavior::Allow && accepted::covers(rule, &tool.name, input)
        };
        if accepted.iter().any(is_accepted) { Behavior::Allow } else { Behavior::Ask }
    }

    /// The rules that a user may accept for the rest of the session, narrowest first. The field
    /// [`DESCRIPTION_FIELD`] says what each covers.
    pub fn suggest(tool: &ToolSpec, input: &str) -> Vec<PermissionRule> {
        accepted::suggest_rules(tool, input)
    }
}

fn stricter<'b>(one: &'b Behavior, other: &'b Behavior) -> &'b Behavior {
    let rank = |behavior: &Behavior| match behavior {
        Behavior::Allow | Behavior::Passthrough => 0,
        Behavior::Ask | Behavior::Other(_) => 1,
        Behavior::Deny => 2,
    };
    if rank(one) > rank(other) { one } else { other }
}

#[cfg(test)]
mod tests;
