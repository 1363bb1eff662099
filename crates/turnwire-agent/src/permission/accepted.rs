//! Rules that a user may accept with an approval: suggests, matches and describes them.
//!
//! Such a rule names one tool and, unless it covers every call of it, one whole input. It has no wildcards,
//! so it cannot cover more than it says.

use crate::tool::ToolSpec;
use serde_json::{Map, Value};
use std::fmt::Write;
use turnwire_core::{Behavior, Fields, PermissionRule};

/// The prefix of a rule about one input, followed by the input as JSON.
const EXACT_PREFIX: &str = "input == ";
/// The longest input with a suggested rule: a user must be able to read it.
const MAX_INPUT_BYTES: usize = 2048;
/// The field of a rule with its description.
pub const DESCRIPTION_FIELD: &str = "description";

/// The rules that a user may accept with a call, narrowest first.
pub(super) fn suggest_rules(tool: &ToolSpec, input: &str) -> Vec<PermissionRule> {
    let exact = exact_input(input).map(|input| format!("{EXACT_PREFIX}{}", Value::Object(input)));
    let exact = exact.filter(|content| content.len() <= MAX_INPUT_BYTES).map(Some);
    let rule = |rule_content: Option<String>| {
        let mut rule = PermissionRule {
            tool_name: tool.name.clone(),
            rule_content,
            behavior: Behavior::Allow,
            source: "suggested".to_owned(),
            ..PermissionRule::default()
        };
        rule.rest = Fields::from_iter([(DESCRIPTION_FIELD, describe_rule(&rule))]);
        rule
    };
    exact.into_iter().chain([None]).map(rule).collect()
}

/// Whether an accepted rule covers a call.
pub(super) fn covers(rule: &PermissionRule, tool: &str, input: &str) -> bool {
    if rule.tool_name != tool {
        return false;
    }
    match rule_scope(rule) {
        RuleScope::EveryCall => true,
        RuleScope::Input(own) => exact_input(input).is_some_and(|input| input == own),
        RuleScope::Unknown => false,
    }
}

/// Which inputs a rule covers.
enum RuleScope {
    EveryCall,
    Input(Map<String, Value>),
    /// It is ambiguous, and covers nothing.
    Unknown,
}

fn rule_scope(rule: &PermissionRule) -> RuleScope {
    let Some(content) = rule.rule_content.as_deref().filter(|content| !content.is_empty()) else {
        return RuleScope::EveryCall;
    };
    if let Some(input) = content.strip_prefix(EXACT_PREFIX) {
        return exact_input(input).map_or(RuleScope::Unknown, RuleScope::Input);
    }
    // Until version 0.1 a rule was `FIELD=TEXT` with `*` as a wildcard. It still counts if it has only one
    // reading, and covers an input with only this field.
    let mut parts = content.split('=');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(field), Some(text), None) if !content.contains('*') => {
            let entry = (field.to_owned(), Value::String(text.to_owned()));
            RuleScope::Input(Map::from_iter([entry]))
        }
        _ => RuleScope::Unknown,
    }
}

/// Parses an input that can be compared: an object without ambiguous keys and numbers.
fn exact_input(input: &str) -> Option<Map<String, Value>> {
    super::check_input(input).ok()?;
    let input = if input.trim_ascii().is_empty() { "{}" } else { input };
    let input: Map<String, Value> = serde_json::from_str(input).ok()?;
    input.values().all(has_exact_numbers).then_some(input)
}

/// Large numbers lose digits when they are parsed, so two different ones could compare as equal.
fn has_exact_numbers(value: &Value) -> bool {
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => {
            number.is_i64()
                || number.is_u64()
                || number.as_f64().is_some_and(|number| number.abs() < EXACT_BELOW)
        }
        Value::Array(elements) => elements.iter().all(has_exact_numbers),
        Value::Object(entries) => entries.values().all(has_exact_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Describes what a rule covers, for the user who accepts it.
///
/// ```
/// use turnwire_agent::permission::describe_rule;
/// use turnwire_core::PermissionRule;
///
/// let rule = PermissionRule {
///     tool_name: "shell".to_owned(),
///     rule_content: Some(r#"input == {"command":"ls"}"#.to_owned()),
///     behavior: turnwire_core::Behavior::Allow,
///     ..PermissionRule::default()
/// };
/// assert_eq!(describe_rule(&rule), r#"Always allow `shell` with exactly command = "ls""#);
/// ```
pub fn describe_rule(rule: &PermissionRule) -> String {
    let verb = match &rule.behavior {
        Behavior::Allow | Behavior::Passthrough => "allow",
        Behavior::Deny => "deny",
        Behavior::Ask | Behavior::Other(_) => "ask about",
    };
    let tool = quote_name(&rule.tool_name);
    match rule_scope(rule) {
        RuleScope::EveryCall => format!("Always {verb} every call of `{tool}`"),
        RuleScope::Input(input) if input.is_empty() => {
            format!("Always {verb} `{tool}` with an empty input")
        }
        RuleScope::Input(input) => {
            let fields = input.iter().map(|(field, value)| {
                format!("{} = {}", quote_name(field), escape_invisible(&value.to_string()))
            });
            let fields = fields.collect::<Vec<_>>().join(", ");
            format!("Always {verb} `{tool}` with exactly {fields}")
        }
        // Rules of external agents mean what those agents say.
        RuleScope::Unknown => {
            let content = escape_invisible(rule.rule_content.as_deref().unwrap_or_default());
            format!("Always {verb} `{tool}` for {content}")
        }
    }
}

/// A name, or a JSON string if it has unusual characters.
fn quote_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    escape_invisible(&Value::from(name).to_string())
}

/// Escapes control characters, and characters that change the writing direction or are invisible.
fn escape_invisible(text: &str) -> String {
    let is_hidden = |letter: char| {
        letter.is_control()
            || matches!(
                u32::from(letter),
                0xAD | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F
                    | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164
                    | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB | 0xE0000..=0xE0FFF
            )
    };
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            // Writing to a string never fails.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec::new(name, "", Map::new().into())
    }

    fn rule(tool: &str, content: Option<&str>) -> PermissionRule {
        PermissionRule {
            tool_name: tool.to_owned(),
            rule_content: content.map(str::to_owned),
            behavior: Behavior::Allow,
            ..PermissionRule::default()
        }
    }

    #[test]
    fn a_suggested_rule_covers_this_input_and_no_other() {
        for input in [
            r#"{"command":"ls"}"#,
            r#"{"command":"*"}"#,
            r#"{"command=*":"ls"}"#,
            r#"{"command=ls":"x","command":"rm"}"#,
            r#"{"":""}"#,
            r#"{"input == {}":"*"}"#,
            r#"{"a":{"b":[1,2.5,null]},"c":"é"}"#,
            "{}",
            "",
        ] {
            let rules = suggest_rules(&tool("shell"), input);
            assert_eq!(rules.len(), 2, "{input}");
            assert!(covers(&rules[0], "shell", input), "{input}");
            for other in [
                r#"{"command":"rm -rf /"}"#,
                r#"{"command":"ls","extra":true}"#,
                r#"{"Command":"ls"}"#,
                r#"{"command":"ls "}"#,
                r#"{"command":["ls"]}"#,
                r#"{"command":"ls","command":"rm"}"#,
                "[]",
                "no",
            ] {
                assert!(!covers(&rules[0], "shell", other), "{input} {other}");
            }
            assert!(!covers(&rules[1], "other", input));
            assert!(covers(&rules[1], "shell", r#"{"command":"rm"}"#));
        }
    }

    #[test]
    fn the_order_of_keys_and_white_space_do_not_matter() {
        let rules = suggest_rules(&tool("f"), r#"{"a":1,"b":"x"}"#);
        assert!(covers(&rules[0], "f", r#" { "b": "x", "a": 1 } "#));
    }

    #[test]
    fn no_rule_is_suggested_for_an_input_that_nobody_could_check() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_INPUT_BYTES));
        for input in ["no", "[]", r#"{"a":1,"a":2}"#, r#"{"a":123456789012345678901}"#, &long] {
            let rules = suggest_rules(&tool("f"), input);
            assert_eq!((rules.len(), &rules[0].rule_content), (1, &None), "{input}");
        }
    }

    #[test]
    fn a_rule_names_one_tool_whatever_its_name_looks_like() {
        for name in ["*", "**", "files/*", "s*"] {
            let rules = suggest_rules(&tool(name), "{}");
            assert!(rules.iter().all(|rule| covers(rule, name, "{}")));
            assert!(rules.iter().all(|rule| !covers(rule, "shell", "{}")), "{name}");
        }
    }

    #[test]
    fn rules_that_were_accepted_before_never_cover_more() {
        let covers = |content: &str, input: &str| covers(&rule("run", Some(content)), "run", input);
        assert!(covers("command=ls", r#"{"command":"ls"}"#));
        assert!(!covers("command=ls", r#"{"command":"ls","cwd":"/"}"#));
        assert!(!covers("command=ls", r#"{"command":"rm"}"#));
        // What can be read in two ways is asked again.
        for content in ["command=*", "command=*=x", "a=b=c", "=*", "*", "nothing", "command=l*"] {
            for input in [r#"{"command":"ls"}"#, r#"{"command=*":"x"}"#, r#"{"a":"b=c"}"#, "{}"] {
                assert!(!covers(content, input), "{content} {input}");
            }
        }
        assert!(super::covers(&rule("run", None), "run", "{}"));
        assert!(super::covers(&rule("run", Some("")), "run", "{}"));
        assert!(!super::covers(&rule("r*", None), "run", "{}"));
    }

    #[test]
    fn a_person_reads_what_a_rule_covers() {
        let words = |name: &str, input: &str| -> Vec<String> {
            let rules = suggest_rules(&tool(name), input);
            let text = |rule: &PermissionRule| rule.rest.get::<String>(DESCRIPTION_FIELD).unwrap();
            rules.iter().filter_map(text).collect()
        };
        assert_eq!(
            words("shell", r#"{"command":"ls *","n":2}"#),
            [
                r#"Always allow `shell` with exactly command = "ls *", n = 2"#,
                "Always allow every call of `shell`"
            ]
        );
        assert_eq!(words("now", "")[0], "Always allow `now` with an empty input");
        // Names of fields and hidden characters are shown for what they are.
        assert_eq!(
            words("s", "{\"command=*\":\"a\u{202e}b\\nc\"}")[0],
            r#"Always allow `s` with exactly "command=*" = "a\u{202e}b\nc""#
        );
        assert_eq!(words("a` every b", "{}")[1], r#"Always allow every call of `"a` every b"`"#);
        assert_eq!(
            describe_rule(&rule("trade", Some("amount<5"))),
            "Always allow `trade` for amount<5"
        );
    }
}
