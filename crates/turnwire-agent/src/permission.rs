//! Who may call what: rules by the name of the tool and by its input. The first that fits wins.
//!
//! ```
//! use turnwire_agent::permission::{Permissions, Rule};
//! use turnwire_agent::tool::ToolSpec;
//! use turnwire_core::Behavior;
//!
//! let permissions = Permissions::new([
//!     Rule::new("files/write_*", Behavior::Ask).input("path", "/tmp/*"),
//!     Rule::new("files/write_*", Behavior::Deny),
//! ]);
//! let tool = ToolSpec::new("files/write_text", "", serde_json::Map::new().into());
//! let decide = |input| permissions.decide(&[], &tool, input);
//! assert_eq!(decide(r#"{"path":"/tmp/a"}"#), Behavior::Ask);
//! assert_eq!(decide(r#"{"path":"/etc/passwd"}"#), Behavior::Deny);
//! ```

use crate::tool::ToolSpec;
use serde_json::Value;
use turnwire_core::{Behavior, PermissionRule};

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    tool: String,
    input: Vec<(String, String)>,
    behavior: Behavior,
}

impl Rule {
    /// About the tools of a name; `*` stands for anything.
    pub fn new(tool: impl Into<String>, behavior: Behavior) -> Self {
        Self { tool: tool.into(), input: Vec::new(), behavior }
    }

    /// Only where a field of the input looks like this; `*` stands for anything.
    #[must_use]
    pub fn input(mut self, field: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.input.push((field.into(), pattern.into()));
        self
    }

    fn fits(&self, tool: &str, input: &Value) -> bool {
        is_like(tool, &self.tool)
            && self.input.iter().all(|(field, pattern)| match input.get(field) {
                Some(Value::String(text)) => is_like(text, pattern),
                Some(other) => is_like(&other.to_string(), pattern),
                None => false,
            })
    }

    /// A rule that somebody accepted: its content is `FIELD=PATTERN`, or nothing.
    fn of(rule: &PermissionRule) -> Option<Self> {
        let own = Self::new(rule.tool_name.clone(), rule.behavior.clone());
        match rule.rule_content.as_deref() {
            None | Some("") => Some(own),
            Some(content) => {
                let (field, pattern) = content.split_once('=')?;
                Some(own.input(field, pattern))
            }
        }
    }
}

/// The rules of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions(Vec<Rule>);

impl Permissions {
    /// These rules, in this order.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// What is to be done with a call. `accepted` are rules that people accepted in this session:
    /// they can spare a question, and never lift what is denied.
    pub fn decide(&self, accepted: &[PermissionRule], tool: &ToolSpec, input: &str) -> Behavior {
        let input: Value = serde_json::from_str(input).unwrap_or_default();
        let rule = self.0.iter().find(|rule| rule.fits(&tool.name, &input));
        let behavior = rule.map_or(&tool.behavior, |rule| &rule.behavior);
        if *behavior != Behavior::Ask {
            return behavior.clone();
        }
        let mut accepted = accepted.iter().filter_map(Rule::of);
        let found = accepted.find(|rule| rule.fits(&tool.name, &input));
        found.map_or(Behavior::Ask, |rule| rule.behavior)
    }

    /// What a person who is asked may accept for the rest of the session.
    pub fn suggest(tool: &ToolSpec, input: &str) -> Vec<PermissionRule> {
        let always = |content: Option<String>| PermissionRule {
            tool_name: tool.name.clone(),
            rule_content: content,
            behavior: Behavior::Allow,
            source: "suggested".to_owned(),
            ..PermissionRule::default()
        };
        let fields: Option<serde_json::Map<String, Value>> = serde_json::from_str(input).ok();
        let only = fields.filter(|fields| fields.len() == 1).and_then(|fields| {
            let (field, value) = fields.into_iter().next()?;
            let text = value.as_str()?;
            // A star in the value itself would stand for anything.
            (!text.contains('*')).then(|| format!("{field}={text}"))
        });
        only.map(|content| always(Some(content))).into_iter().chain([always(None)]).collect()
    }
}

/// Whether a text is like a pattern in which `*` stands for anything.
pub fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        let Some(at) = text.find(piece) else { return false };
        text = text.get(at + piece.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (text, pattern) in [
            ("", "*"),
            ("abc", "*"),
            ("abc", "a*"),
            ("abc", "*c"),
            ("abc", "a*c"),
            ("aXbYb", "a*b"),
            ("abab", "*ab*ab"),
        ] {
            assert!(is_like(text, pattern), "{text} {pattern}");
        }
        for (text, pattern) in
            [("abc", "b*"), ("abc", "*b"), ("ab", "ab*b"), ("abc", "abcd"), ("", "a*")]
        {
            assert!(!is_like(text, pattern), "{text} {pattern}");
        }
    }

    #[test]
    fn what_was_accepted_spares_a_question_and_lifts_no_ban() {
        let tool = ToolSpec {
            behavior: Behavior::Ask,
            ..ToolSpec::new("run", "", serde_json::Map::new().into())
        };
        let input = r#"{"command":"ls"}"#;
        let suggested = Permissions::suggest(&tool, input);
        assert_eq!(suggested.len(), 2);
        let none = Permissions::default();
        assert_eq!(none.decide(&[], &tool, input), Behavior::Ask);
        assert_eq!(none.decide(&suggested[..1], &tool, input), Behavior::Allow);
        assert_eq!(none.decide(&suggested[..1], &tool, r#"{"command":"rm"}"#), Behavior::Ask);
        let banned = Permissions::new([Rule::new("r*", Behavior::Deny)]);
        assert_eq!(banned.decide(&suggested, &tool, input), Behavior::Deny);
    }
}
