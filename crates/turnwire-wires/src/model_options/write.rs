//! Writes options into the body of a request to a model.

use super::{ModelOption, Reasoning, Support, paths};
use crate::model_request::{Request, ToolChoice, ToolDefinition, merge_extra};
use serde_json::json;
use std::borrow::Cow;
use turnwire_core::{Fields, Json};

/// Adds the options of a request to its body: the client's own fields if its protocol is the same, the canonical options
/// otherwise; then the extra fields of the request, which win. Temperature, token limit, tool choice and response format are
/// written by the wire itself.
pub(crate) fn write_options(request: &Request<'_>, wire: &str, mut body: Fields) -> Fields {
    let options = &request.options;
    for option in ModelOption::ALL.iter().copied() {
        if let Support::Field(path) = option.support(wire)
            && !options.has_original(wire, option)
        {
            write_option(request, wire, (option, path), &mut body);
        }
    }
    let body = if options.is_from(wire) { merge_extra(body, &options.original) } else { body };
    merge_extra(body, &request.extra)
}

fn write_option(
    request: &Request<'_>,
    wire: &str,
    (option, path): (ModelOption, &str),
    body: &mut Fields,
) {
    let options = &request.options;
    let value: Option<Json> = match option {
        ModelOption::Temperature
        | ModelOption::MaxTokens
        | ModelOption::ToolChoice
        | ModelOption::ResponseFormat => None,
        ModelOption::Reasoning => {
            if let Some(reasoning) = &options.reasoning {
                write_reasoning(reasoning, wire, request.model, body);
            }
            None
        }
        ModelOption::ParallelToolCalls => {
            // It is refused without tools.
            let parallel = options.parallel_tool_calls.filter(|_| !request.tools.is_empty());
            match (wire, parallel) {
                ("anthropic", Some(false)) if body.raw("tool_choice").is_some() => {
                    Some(true.into())
                }
                ("anthropic", _) => None,
                (_, parallel) => parallel.map(Json::from),
            }
        }
        ModelOption::TopP => options.top_p.map(Json::from),
        ModelOption::TopK => options.top_k.map(Json::from),
        ModelOption::MinP => options.min_p.map(Json::from),
        ModelOption::FrequencyPenalty => options.frequency_penalty.map(Json::from),
        ModelOption::PresencePenalty => options.presence_penalty.map(Json::from),
        ModelOption::Seed => options.seed.map(Json::from),
        ModelOption::Stop => options.stop.clone().map(Json::from),
        ModelOption::Verbosity => options.verbosity.clone().map(Json::from),
        ModelOption::PromptCacheKey => options.prompt_cache_key.clone().map(Json::from),
        ModelOption::CacheControl => options.cache_control.clone(),
        ModelOption::ServiceTier => options.service_tier.clone().map(Json::from),
        ModelOption::User => options.user.clone().map(Json::from),
        ModelOption::SafetyIdentifier => options.safety_identifier.clone().map(Json::from),
        ModelOption::Metadata => options.metadata.clone(),
        ModelOption::Store => options.store.map(Json::from),
        ModelOption::Include => options.include.clone().map(Json::from),
        ModelOption::Truncation => options.truncation.clone().map(Json::from),
        ModelOption::Logprobs => options.logprobs.map(Json::from),
        ModelOption::TopLogprobs => options.top_logprobs.map(Json::from),
        ModelOption::Modalities => options.modalities.clone().map(Json::from),
        ModelOption::Audio => options.audio.clone(),
    };
    if let Some(value) = value {
        paths::set(body, path, value);
    }
}

fn write_reasoning(reasoning: &Reasoning, wire: &str, model: &str, body: &mut Fields) {
    let is_off = reasoning.enabled == Some(false);
    let effort = reasoning.effort.as_deref();
    match wire {
        "openai-chat" | "openai-responses" => {
            let path = if wire == "openai-chat" { "reasoning_effort" } else { "reasoning.effort" };
            if let Some(effort) = openai_effort(reasoning) {
                paths::set(body, path, effort);
            }
            if let Some(summary) = reasoning.summary.as_deref().filter(|_| wire != "openai-chat") {
                paths::set(body, "reasoning.summary", summary);
            }
        }
        "anthropic" => {
            if is_off {
                body.insert("thinking", json!({"type": "disabled"}));
            } else if let Some(budget) = reasoning.budget_tokens {
                body.insert("thinking", json!({"type": "enabled", "budget_tokens": budget}));
            }
            let effort = effort.filter(|_| !is_off);
            if let Some(effort) = effort.map(|it| if it == "minimal" { "low" } else { it }) {
                paths::set(body, "output_config.effort", effort);
            }
        }
        "gemini" => {
            let name = model.rsplit('/').next().unwrap_or(model);
            let config = "generationConfig.thinkingConfig";
            match (thinking_budget(reasoning), effort) {
                (_, Some(effort)) if name.starts_with("gemini-3") && !is_off => {
                    let level = if matches!(effort, "xhigh" | "max") { "high" } else { effort };
                    paths::set(body, &format!("{config}.thinkingLevel"), level);
                }
                (Some(budget), _) => {
                    paths::set(body, &format!("{config}.thinkingBudget"), budget);
                }
                (None, _) => {}
            }
        }
        "dashscope" => {
            let budget = thinking_budget(reasoning).filter(|_| !is_off);
            if let Some(is_on) = reasoning.enabled.or(budget.map(|_| true)) {
                paths::set(body, "parameters.enable_thinking", is_on);
            }
            if let Some(budget) = budget {
                paths::set(body, "parameters.thinking_budget", budget);
            }
        }
        "ollama" => {
            let is_on = reasoning.enabled.or(thinking_budget(reasoning).map(|_| true));
            match effort {
                Some("low" | "medium" | "high") if model.starts_with("gpt-oss") => {
                    body.insert("think", effort.unwrap_or_default());
                }
                _ => is_on.into_iter().for_each(|is_on| body.insert("think", is_on)),
            }
        }
        _ => {}
    }
}

/// The effort in the words of `OpenAI`; a budget of tokens becomes the nearest effort.
fn openai_effort(reasoning: &Reasoning) -> Option<&str> {
    match (reasoning.effort.as_deref(), reasoning.budget_tokens, reasoning.enabled) {
        (_, _, Some(false)) => Some("none"),
        (Some("max"), ..) => Some("xhigh"),
        (Some(effort), ..) => Some(effort),
        (None, Some(..=2048), _) => Some("low"),
        (None, Some(2049..=8192), _) => Some("medium"),
        (None, Some(_), _) => Some("high"),
        (None, None, _) => None,
    }
}

/// The budget in tokens; an effort becomes a usual budget.
fn thinking_budget(reasoning: &Reasoning) -> Option<u32> {
    let of_effort = |effort: &str| match effort {
        "minimal" => Some(512),
        "low" => Some(1024),
        "medium" => Some(8192),
        "high" => Some(16_384),
        "xhigh" | "max" => Some(24_576),
        _ => None,
    };
    if reasoning.enabled == Some(false) {
        return Some(0);
    }
    reasoning.budget_tokens.or_else(|| of_effort(reasoning.effort.as_deref()?))
}

/// The tools that a model may call.
pub(crate) struct AllowedTools<'t> {
    pub tools: Vec<&'t ToolDefinition>,
    pub choice: Cow<'t, ToolChoice>,
}

/// Replaces the choice among allowed tools, on a wire without it, by only offering these.
pub(crate) fn reduce_to_allowed_tools<'t>(
    tools: &'t [ToolDefinition],
    choice: &'t ToolChoice,
    wire: &str,
) -> AllowedTools<'t> {
    if let ToolChoice::Allowed { required, names } = choice
        && !wire.starts_with("openai-")
    {
        let choice = if *required { ToolChoice::Required } else { ToolChoice::Auto };
        return AllowedTools {
            tools: tools.iter().filter(|tool| names.contains(&tool.name)).collect(),
            choice: Cow::Owned(choice),
        };
    }
    AllowedTools { tools: tools.iter().collect(), choice: Cow::Borrowed(choice) }
}
