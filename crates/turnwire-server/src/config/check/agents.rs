//! Checks agents and their tools: every name must exist.

use super::Report;
use crate::config::agents::{AgentConfig, ToolPattern, ToolSource};
use crate::config::{Config, WebUrl};
use std::collections::BTreeMap;
use std::path::Path;
use turnwire_agent::permission::NamePattern;
use turnwire_agent::schema::check_tool;

pub(super) fn check(config: &Config, wrong: &mut Report<'_>) {
    let known =
        |name: &str| config.agents.contains_key(name) || Config::BUILT_IN_AGENTS.contains(&name);
    let default_agent = config.default_agent();
    if !known(default_agent) {
        let names: Vec<&str> =
            config.agents.keys().map(String::as_str).chain(Config::BUILT_IN_AGENTS).collect();
        let names = names.join(", ");
        wrong(
            &["default_agent"],
            format!("there is no agent \"{default_agent}\"; there are {names}"),
        );
    }
    if config.currency.len() != 3 || !config.currency.bytes().all(|b| b.is_ascii_uppercase()) {
        wrong(&["currency"], "must be a currency code of three letters, such as \"USD\"".into());
    }
    for (name, agent) in &config.agents {
        check_agent(name, agent, wrong);
        check_tools(config, name, agent, wrong);
    }
    check_cycles(config, wrong);
    for (name, mcp) in &config.mcp {
        if mcp.command.as_ref().is_none_or(Vec::is_empty) == mcp.url.is_none() {
            wrong(
                &["mcp", name],
                "requires either `command` (a program and its arguments) or `url`".into(),
            );
        }
        if !is_tool_name(name) {
            wrong(&["mcp", name], TOOL_NAME_RULE.into());
        }
        if mcp.url.is_none() && mcp.token_env.is_some() {
            wrong(&["mcp", name, "token_env"], "`token_env` requires `url`".into());
        }
        if mcp.command.is_none() && !mcp.env.is_empty() {
            wrong(&["mcp", name, "env"], "`env` requires `command`".into());
        }
        for (key, time) in
            [("start_timeout", mcp.start_timeout), ("call_timeout", mcp.call_timeout)]
        {
            if time.0.is_zero() {
                wrong(&["mcp", name, key], "must be more than 0".into());
            }
        }
    }
    for (name, tool) in &config.external_tools {
        if !is_tool_name(name) {
            wrong(&["external_tools", name], TOOL_NAME_RULE.into());
        }
        if tool.input.get("type").and_then(toml::Value::as_str) != Some("object") {
            let message = "the input of a tool must be an object: write type = \"object\"";
            wrong(&["external_tools", name, "input"], message.into());
        }
        let spec = tool.spec(name);
        if let Err(why) = check_tool(name, &tool.description, Some(&spec.input)) {
            wrong(&["external_tools", name, "input"], why);
        }
    }
}

/// The tool names that every provider accepts.
const TOOL_NAME_RULE: &str = "invalid tool name: expected 1 to 64 characters of A-Z a-z 0-9 _ -";

fn is_tool_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

fn check_agent(name: &str, agent: &AgentConfig, wrong: &mut Report<'_>) {
    if name == "external" {
        wrong(
            &["agents", name],
            "the name \"external\" is reserved for agents in other processes".into(),
        );
    } else if !crate::auth::is_valid_id(name) {
        wrong(
            &["agents", name],
            "invalid agent name: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -".into(),
        );
    }
    let both = "set either `api_key_env` or `api_key_file`, not both";
    if agent.api_key_env.is_some() && agent.api_key_file.is_some() {
        wrong(&["agents", name, "api_key_file"], both.into());
    }
    if agent.max_iterations == 0 {
        wrong(&["agents", name, "max_iterations"], "must be at least 1".into());
    }
    if agent.result_timeout.0.is_zero() {
        wrong(&["agents", name, "result_timeout"], "must be more than 0".into());
    }
    if agent.max_tokens == Some(0) {
        wrong(&["agents", name, "max_tokens"], "must be at least 1".into());
    }
    if agent.temperature.is_some_and(|warmth| !(0.0..=2.0).contains(&warmth)) {
        wrong(&["agents", name, "temperature"], "must be from 0 to 2".into());
    }
    let timeouts = &agent.timeouts;
    let zero = [
        ("connect", timeouts.connect),
        ("first_token", timeouts.first_token),
        ("between_tokens", timeouts.between_tokens),
    ];
    for (key, _) in zero.into_iter().filter(|(_, time)| time.0.is_zero()) {
        wrong(&["agents", name, "timeouts", key], "must be more than 0".into());
    }
    let fallback = agent.fallback.as_ref().and_then(|fallback| fallback.price_per_million);
    for (path, prices) in [
        (&["agents", name][..], agent.price_per_million),
        (&["agents", name, "fallback"][..], fallback),
    ] {
        let Some(prices) = prices else { continue };
        let each = [
            ("input", Some(prices.input)),
            ("output", Some(prices.output)),
            ("cache_input", prices.cache_input),
            ("cache_creation_input", prices.cache_creation_input),
        ];
        let is_none = |price: f64| !price.is_finite() || price < 0.0;
        for (key, _) in each.into_iter().filter(|(_, price)| price.is_some_and(is_none)) {
            wrong(&[path, &["price_per_million", key]].concat(), "must be 0 or more".into());
        }
    }
    if let Some(fallback) = &agent.fallback {
        if fallback.api_key_env.is_some() && fallback.api_key_file.is_some() {
            wrong(&["agents", name, "fallback", "api_key_file"], both.into());
        }
        let built_in = [&agent.model, &fallback.model].into_iter().find(|it| it.is_built_in());
        if let Some(model) = built_in {
            let message = format!("the built-in model \"{model}\" cannot have or be a fallback");
            wrong(&["agents", name, "fallback"], message);
        }
    }
}

/// Reports patterns without a match, and tools with the same name.
fn check_tools(config: &Config, name: &str, agent: &AgentConfig, wrong: &mut Report<'_>) {
    let mut named: BTreeMap<&str, ToolSource> = BTreeMap::new();
    for (index, pattern) in agent.tools.iter().enumerate() {
        let index = index.to_string();
        let path = ["agents", name, "tools", &index];
        let fitting = matching_names(config, name, pattern);
        if fitting.is_empty() {
            wrong(&path, no_match_message(config, name, pattern));
        }
        if pattern.source == ToolSource::Mcp {
            continue;
        }
        for tool in fitting {
            if pattern.source == ToolSource::Agent && !is_tool_name(tool) {
                wrong(&path, format!("agent \"{tool}\": {TOOL_NAME_RULE}"));
            }
            let before = named.insert(tool, pattern.source);
            if before.is_some_and(|before| before != pattern.source) {
                let message =
                    format!("\"{tool}\" is both a client tool and an agent: rename one of them");
                wrong(&path, message);
            }
        }
    }
}

/// The names that a pattern matches: agents, client tools, or MCP servers.
fn matching_names<'c>(config: &'c Config, name: &str, pattern: &ToolPattern) -> Vec<&'c str> {
    let strings = |fits: &dyn Fn(&str) -> bool, names: &mut dyn Iterator<Item = &'c String>| {
        names.map(String::as_str).filter(|name| fits(name)).collect()
    };
    match pattern.source {
        ToolSource::Mcp => {
            strings(&|server| pattern.may_match_server(server), &mut config.mcp.keys())
        }
        ToolSource::External => strings(
            &|tool| pattern.matches(ToolSource::External, tool),
            &mut config.external_tools.keys(),
        ),
        ToolSource::Agent => strings(
            &|agent| {
                // A wildcard means all other agents.
                pattern.matches(ToolSource::Agent, agent)
                    && (agent != name || !pattern.has_wildcard())
            },
            &mut config.agents.keys(),
        ),
    }
}

fn no_match_message(config: &Config, name: &str, pattern: &ToolPattern) -> String {
    let (what, section, mut names): (_, _, Vec<&str>) = match pattern.source {
        ToolSource::Mcp => ("MCP server", "mcp", config.mcp.keys().map(String::as_str).collect()),
        ToolSource::External => (
            "client tool",
            "external_tools",
            config.external_tools.keys().map(String::as_str).collect(),
        ),
        ToolSource::Agent => {
            ("other agent", "agents", config.agents.keys().map(String::as_str).collect())
        }
    };
    names.retain(|other| pattern.source != ToolSource::Agent || *other != name);
    let there = match names.as_slice() {
        [] => format!("there is no [{section}.NAME]"),
        names => format!("there are {}", names.join(", ")),
    };
    format!("\"{pattern}\" matches no {what}; {there}")
}

/// The agents that one has as tools.
fn called_agents<'c>(config: &'c Config, name: &str) -> Vec<&'c str> {
    let agent = config.agents.get(name);
    let patterns = agent.into_iter().flat_map(|agent| &agent.tools);
    let agents = patterns.filter(|pattern| pattern.source == ToolSource::Agent);
    agents.flat_map(|pattern| matching_names(config, name, pattern)).collect()
}

/// Reports agents that would call themselves through others, without end.
fn check_cycles(config: &Config, wrong: &mut Report<'_>) {
    for name in config.agents.keys() {
        let Some(path) = find_cycle(config, name) else { continue };
        // Each cycle is reported once, at the first of its agents.
        if path.iter().any(|other| *other < name.as_str()) {
            continue;
        }
        let path = path.join(" → ");
        let message = format!("these agents call each other without end: {path}");
        wrong(&["agents", name, "tools"], message);
    }
}

/// The shortest cycle through an agent.
fn find_cycle<'c>(config: &'c Config, name: &'c str) -> Option<Vec<&'c str>> {
    let mut paths = std::collections::VecDeque::from([vec![name]]);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        for next in path.last().into_iter().flat_map(|last| called_agents(config, last)) {
            let longer: Vec<&str> = path.iter().copied().chain([next]).collect();
            if next == name {
                return Some(longer);
            }
            if seen.insert(next) {
                paths.push_back(longer);
            }
        }
    }
    None
}

/// Warnings: valid settings that are probably mistakes.
pub(super) fn warnings(
    config: &Config,
    env: &dyn Fn(&str) -> Option<String>,
    warn: &mut Report<'_>,
) {
    for (name, agent) in &config.agents {
        let place = ["agents", name];
        let key = (agent.api_key_env.as_deref(), agent.api_key_file.as_deref());
        warn_about_keys(&place, key, agent.base_url.as_ref(), env, warn);
        if let Some(fallback) = &agent.fallback {
            let key = (fallback.api_key_env.as_deref(), fallback.api_key_file.as_deref());
            let place = ["agents", name, "fallback"];
            warn_about_keys(&place, key, fallback.base_url.as_ref(), env, warn);
            let is_unpriced =
                agent.price_per_million.is_some() && fallback.price_per_million.is_none();
            if is_unpriced && fallback.model != agent.model {
                let message = format!(
                    "\"{}\" has no price_per_million, so its calls in place of \"{}\" are not in any \
                     cost; write fallback = {{ model = \"…\", price_per_million = {{ … }} }}",
                    fallback.model, agent.model
                );
                warn(&place, message);
            }
        }
        let is_told_of =
            |other: &&str| config.agents.get(*other).is_none_or(|it| !it.about.is_empty());
        for other in called_agents(config, name).into_iter().filter(|other| !is_told_of(other)) {
            let message =
                format!("it is a tool of \"{name}\", which needs a description of it: set `about`");
            warn(&["agents", other, "about"], message);
        }
        if agent.model.is_built_in() {
            let unused = [
                ("base_url", agent.base_url.is_some()),
                ("system", !agent.system.is_empty()),
                ("tools", !agent.tools.is_empty()),
                ("permissions", !agent.permissions.is_empty()),
            ];
            for (key, _) in unused.into_iter().filter(|(_, is_set)| *is_set) {
                let model = &agent.model;
                let message = format!("this has no effect with the built-in model \"{model}\"");
                warn(&["agents", name, key], message);
            }
            continue;
        }
        warn_about_rules(config, name, agent, warn);
    }
    warn_unset_variables(config, env, warn);
}

/// Warns of environment variables that are not set.
fn warn_unset_variables(
    config: &Config,
    env: &dyn Fn(&str) -> Option<String>,
    warn: &mut Report<'_>,
) {
    for (name, mcp) in &config.mcp {
        let is_unset = |variable: &&String| env(variable.as_str()).is_none();
        for variable in mcp.env.iter().filter(is_unset) {
            warn(&["mcp", name, "env"], format!("{variable} is not set"));
        }
        if let Some(variable) = mcp.token_env.as_ref().filter(is_unset) {
            let message = format!("{variable} is not set: the MCP server cannot be reached");
            warn(&["mcp", name, "token_env"], message);
        }
    }
}

fn warn_about_keys(
    place: &[&str],
    (variable, file): (Option<&str>, Option<&Path>),
    base_url: Option<&WebUrl>,
    env: &dyn Fn(&str) -> Option<String>,
    warn: &mut Report<'_>,
) {
    if let Some(variable) = variable
        && env(variable).is_none_or(|value| value.trim().is_empty())
    {
        let message = format!("{variable} is not set: the model cannot be called");
        warn(&[place, &["api_key_env"]].concat(), message);
    }
    if let Some(file) = file
        && let Err(error) = std::fs::File::open(file)
    {
        let message = format!("{} cannot be read: {error}", file.display());
        warn(&[place, &["api_key_file"]].concat(), message);
    }
    let is_open = base_url.is_some_and(|url| url.0.scheme() == "http" && !is_local(&url.0));
    if is_open && (variable.is_some() || file.is_some()) {
        let message = "without https the key and the conversation are sent unencrypted";
        warn(&[place, &["base_url"]].concat(), message.into());
    }
}

fn is_local(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => true,
    }
}

/// Warns of permission rules that match no tool.
fn warn_about_rules(config: &Config, name: &str, agent: &AgentConfig, warn: &mut Report<'_>) {
    let of = |source| agent.tools.iter().filter(move |pattern| pattern.source == source);
    let own = |source| of(source).flat_map(|pattern| matching_names(config, name, pattern));
    let names: Vec<&str> = own(ToolSource::External).chain(own(ToolSource::Agent)).collect();
    let servers: Vec<&str> = own(ToolSource::Mcp).collect();
    for (index, rule) in agent.permissions.iter().enumerate() {
        let pattern = NamePattern::new(&rule.tool.0);
        let may_be_far = servers.iter().any(|server| pattern.may_match_below(server));
        if !may_be_far && !names.iter().any(|name| pattern.matches(name)) {
            let message = format!(
                "\"{}\" matches none of the agent's tools; it applies only to tools of clients",
                rule.tool.0
            );
            warn(&["agents", name, "permissions", &index.to_string(), "tool"], message);
        }
    }
}
