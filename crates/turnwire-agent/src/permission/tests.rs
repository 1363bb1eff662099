//! What rules decide, taken together.

use super::*;
use serde_json::json;

fn tool(name: &str) -> ToolSpec {
    ToolSpec::new(name, "", serde_json::Map::new().into())
}

fn decide(rules: &[Rule], tool: &ToolSpec, input: &str) -> Behavior {
    Permissions::new(rules.to_vec()).decide(&[], tool, input)
}

fn path(pattern: &str) -> Pattern {
    Pattern::path(pattern).unwrap()
}

#[test]
fn an_accepted_rule_avoids_a_question_and_overrides_no_deny() {
    let tool = ToolSpec { behavior: Behavior::Ask, ..tool("run") };
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

#[test]
fn a_rule_is_about_tools_by_segments_of_their_names() {
    for (pattern, name, expected) in [
        ("*", "shell", true),
        ("*", "files/read", true),
        ("**", "files/read", true),
        ("files/*", "files/read", true),
        ("files/*", "files/a/b", false),
        ("files/**", "files/a/b", true),
        ("*/read", "files/read", true),
        ("*/read", "a/b/read", false),
        ("read*", "read/../shell", false),
        ("shell", "Shell", false),
    ] {
        assert_eq!(NamePattern::new(pattern).matches(name), expected, "{pattern} {name}");
        // A ban reaches further than a permission.
        let allow = [Rule::new(pattern, Behavior::Allow), Rule::new("**", Behavior::Ask)];
        let allowed = decide(&allow, &tool(name), "{}") == Behavior::Allow;
        assert_eq!(allowed, expected, "{pattern} {name}");
    }
    let ban = [Rule::new("files/*", Behavior::Deny)];
    assert_eq!(decide(&ban, &tool("files/a/b"), "{}"), Behavior::Deny);
    assert!(NamePattern::check("a**").is_err() && NamePattern::check("").is_err());
}

#[test]
fn an_uncertain_match_counts_only_where_it_is_stricter() {
    let odd = r#"{"path":"../x"}"#;
    let inside = |behavior| Rule::new("write", behavior).input("path", path("/tmp/**"));
    let rest = |behavior| Rule::new("write", behavior);
    for (first, second, expected) in [
        (Behavior::Allow, Behavior::Ask, Behavior::Ask),
        (Behavior::Allow, Behavior::Deny, Behavior::Deny),
        (Behavior::Ask, Behavior::Allow, Behavior::Ask),
        (Behavior::Ask, Behavior::Deny, Behavior::Deny),
        (Behavior::Deny, Behavior::Allow, Behavior::Deny),
    ] {
        let rules = [inside(first.clone()), rest(second.clone())];
        assert_eq!(decide(&rules, &tool("write"), odd), expected, "{first:?} {second:?}");
    }
}

#[test]
fn a_permission_needs_the_field_and_a_ban_does_not() {
    let allow = [
        Rule::new("write", Behavior::Allow).input("path", path("/tmp/**")),
        Rule::new("write", Behavior::Ask),
    ];
    let deny = [Rule::new("write", Behavior::Deny).input("path", path("/etc/**"))];
    for input in [
        "{}",
        r#"{"path":null}"#,
        r#"{"path":1}"#,
        r#"{"path":{}}"#,
        r#"{"path":[]}"#,
        r#"{"path":["/tmp/a","/etc/passwd"]}"#,
        r#"{"path":["/tmp/a",["/etc/passwd"]]}"#,
        r#"{"PATH":"/etc/passwd"}"#,
        r#"{"path":"/tmp/a","Path":"/etc/passwd"}"#,
        r#"{"path":"/tmp/a","path":"/etc/passwd"}"#,
        r#"{"path":"/etc/passwd","path":"/tmp/a"}"#,
        r#"["path","/etc/passwd"]"#,
        "not JSON",
    ] {
        assert_eq!(decide(&allow, &tool("write"), input), Behavior::Ask, "{input}");
        assert_eq!(decide(&deny, &tool("write"), input), Behavior::Deny, "{input}");
    }
    for input in [r#"{"path":"/tmp/a"}"#, r#"{"path":["/tmp/a","/tmp/b"]}"#] {
        assert_eq!(decide(&allow, &tool("write"), input), Behavior::Allow, "{input}");
        assert_eq!(decide(&deny, &tool("write"), input), Behavior::Allow, "{input}");
    }
}

#[test]
fn a_ban_on_a_field_does_not_touch_tools_that_do_not_have_it() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let weather = ToolSpec::new("weather", "", turnwire_core::Json::from_value(&schema).unwrap());
    let rules =
        [Rule::new("*", Behavior::Deny).input("url", Pattern::url("*://10.0.0.1/**").unwrap())];
    assert_eq!(decide(&rules, &weather, r#"{"city":"Oslo"}"#), Behavior::Allow);
    // Unless the model brings it all the same.
    let input = r#"{"city":"Oslo","url":"http://10.0.0.1/"}"#;
    assert_eq!(decide(&rules, &weather, input), Behavior::Deny);
    assert_eq!(decide(&rules, &tool("fetch"), "{}"), Behavior::Deny);
}

#[test]
fn a_pointer_reaches_a_field_inside_of_others() {
    let url = || Pattern::url("https://example.com/**").unwrap();
    let rules = [
        Rule::new("fetch", Behavior::Allow).input("/options/url", url()),
        Rule::new("fetch", Behavior::Ask),
    ];
    for (input, expected) in [
        (json!({"options": {"url": "https://example.com/a"}}), Behavior::Allow),
        (json!({"options": [{"url": "https://example.com/a"}]}), Behavior::Allow),
        (
            json!({"options": [{"url": "https://example.com/a"}, {"url": "https://evil.test/"}]}),
            Behavior::Ask,
        ),
        (json!({"url": "https://example.com/a"}), Behavior::Ask),
        (json!({"options": {"URL": "https://example.com/a"}}), Behavior::Ask),
        (json!({"/options/url": "https://example.com/a"}), Behavior::Ask),
    ] {
        assert_eq!(decide(&rules, &tool("fetch"), &input.to_string()), expected, "{input}");
    }
}

#[test]
fn text_is_compared_whole() {
    let rules = |pattern: Pattern, behavior| {
        [Rule::new("shell", behavior).input("command", pattern), Rule::new("shell", Behavior::Ask)]
    };
    let allowed = |pattern: &Pattern, command: Value| {
        let rules = rules(pattern.clone(), Behavior::Allow);
        let input = json!({ "command": command }).to_string();
        decide(&rules, &tool("shell"), &input) == Behavior::Allow
    };
    let denied = |pattern: &Pattern, command: Value| {
        let rules = rules(pattern.clone(), Behavior::Deny);
        let input = json!({ "command": command }).to_string();
        decide(&rules, &tool("shell"), &input) == Behavior::Deny
    };
    let status = Pattern::text("git status").unwrap();
    assert!(allowed(&status, json!("git status")));
    for other in
        ["git status; rm -rf /", "git  status", "Git status", " git status", "git status\n"]
    {
        assert!(!allowed(&status, json!(other)), "{other}");
    }
    for other in ["git status", "GIT  status", "git\tstatus"] {
        assert!(denied(&status, json!(other)), "{other}");
    }
    let any = Pattern::text("git *").unwrap();
    assert!(allowed(&any, json!("git log")) && !allowed(&any, json!("git log /etc")));
    assert!(!allowed(&any, json!("git log\nrm x")) && denied(&any, json!("git log\nrm x")));
    let star = Pattern::exact("*");
    assert!(allowed(&star, json!("*")) && !allowed(&star, json!("a")));
    let five = Pattern::exact("5");
    assert!(allowed(&five, json!("5")) && allowed(&five, json!(5)));
    assert!(!allowed(&five, json!(5.0)) && denied(&five, json!(5.0)));
    let anything = Pattern::text("*").unwrap();
    assert!(allowed(&anything, json!({"a": 1})) && allowed(&anything, json!("a/b\n")));
    // What is too long to compare is not allowed, and not certainly harmless.
    let long = "x".repeat(20_000);
    assert!(!allowed(&Pattern::text("x*").unwrap(), json!(long)));
    assert!(denied(&status, json!(long)));
}

#[test]
fn the_kind_of_a_pattern_is_inferred_where_there_is_no_doubt() {
    assert_eq!(Pattern::infer("/tmp/**"), Pattern::path("/tmp/**"));
    assert_eq!(Pattern::infer("https://a.test/**"), Pattern::url("https://a.test/**"));
    assert_eq!(Pattern::infer("git *"), Pattern::text("git *"));
    for doubtful in ["src/*", "image/*", "C:\\x", "https://*.example", "/tmp/*/", "/a/../b"] {
        let found = Pattern::infer(doubtful);
        assert!(found.is_err() || doubtful.starts_with("https"), "{doubtful}");
    }
}
