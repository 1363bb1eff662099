//! Tool names that providers accept. The agent loop calls models through this module.
//!
//! In events, rules and settings a tool of an MCP server is `SERVER/TOOL`. Providers accept only letters,
//! digits, `_` and `-`, at most 64 of them. So the model gets another name, and its calls are translated
//! back here.

use crate::model::{Model, ModelError, ModelRequest, ModelStream};
use futures_util::StreamExt;
use std::collections::{HashMap, HashSet};
use turnwire_core::{ContentBlock, EventKind, Msg, content_blocks};
use turnwire_wires::ModelOption;
use turnwire_wires::model_request::{ToolChoice, ToolDefinition};

/// The longest name that every provider accepts.
const MAX_NAME_LENGTH: usize = 64;

/// Calls a model with names that it accepts.
pub(crate) async fn stream_with_provider_names(
    model: &dyn Model,
    ask: ModelRequest<'_>,
) -> Result<ModelStream, ModelError> {
    let names = ProviderNames::new(ask.tools);
    if names.names.is_empty() {
        return model.stream(ask).await;
    }
    let messages: Vec<Msg> = ask.messages.iter().map(|msg| names.rename_in_message(msg)).collect();
    let tools: Vec<ToolDefinition> = ask.tools.iter().map(|tool| names.rename_tool(tool)).collect();
    let tool_choice = match ask.tool_choice {
        ToolChoice::Tool(name) => ToolChoice::Tool(names.provider_name(name).to_owned()),
        ToolChoice::Allowed { required, names: allowed } => ToolChoice::Allowed {
            required: *required,
            names: allowed.iter().map(|name| names.provider_name(name).to_owned()).collect(),
        },
        other @ (ToolChoice::Auto
        | ToolChoice::None
        | ToolChoice::Required
        | ToolChoice::Other(_)) => other.clone(),
    };
    let mut options = ask.options.clone();
    if tool_choice != *ask.tool_choice {
        options.forget_original(ModelOption::ToolChoice);
    }
    let renamed = ModelRequest {
        messages: &messages,
        tools: &tools,
        tool_choice: &tool_choice,
        options: &options,
        ..ask
    };
    let answer = model.stream(renamed).await?;
    let own: HashMap<String, String> =
        names.names.into_iter().map(|(own, renamed)| (renamed, own)).collect();
    let back = move |event| match event {
        Ok(mut event) => {
            if let turnwire_core::Event { kind: EventKind::ToolCallStart(start), .. } = &mut event
                && let Some(own) = own.get(&*start.tool_call_name)
            {
                start.tool_call_name = own.clone().into();
            }
            Ok(event)
        }
        Err(error) => Err(error),
    };
    Ok(answer.map(back).boxed())
}

/// The provider names of tools whose own names are not accepted.
struct ProviderNames {
    names: HashMap<String, String>,
}

impl ProviderNames {
    /// Chooses a distinct name for each tool.
    fn new(tools: &[ToolDefinition]) -> Self {
        let mut names = HashMap::new();
        let tools: Vec<&ToolDefinition> =
            tools.iter().filter(|tool| tool.can_call(&tool.name)).collect();
        if tools.iter().all(|tool| is_valid_name(&tool.name)) {
            return Self { names };
        }
        let fine = tools.iter().filter(|tool| is_valid_name(&tool.name));
        let mut taken: HashSet<String> = fine.map(|tool| tool.name.clone()).collect();
        for tool in tools.iter().filter(|tool| !is_valid_name(&tool.name)) {
            if names.contains_key(&tool.name) {
                continue;
            }
            let plain = replace_invalid_chars(&tool.name);
            let mut name = truncate_name(&plain, MAX_NAME_LENGTH).to_owned();
            let mut more = 2_u32;
            while !taken.insert(name.clone()) {
                let end = format!("_{more}");
                name = format!("{}{end}", truncate_name(&plain, MAX_NAME_LENGTH - end.len()));
                more += 1;
            }
            names.insert(tool.name.clone(), name);
        }
        Self { names }
    }

    fn provider_name<'n>(&'n self, own: &'n str) -> &'n str {
        self.names.get(own).map_or(own, String::as_str)
    }

    fn rename_tool(&self, tool: &ToolDefinition) -> ToolDefinition {
        ToolDefinition { name: self.provider_name(&tool.name).to_owned(), ..tool.clone() }
    }

    fn rename_in_message(&self, msg: &Msg) -> Msg {
        let is_told = |name: &str| self.names.contains_key(name);
        let concerns = |block: &ContentBlock| match block {
            ContentBlock::ToolCall(call) => is_told(&call.name),
            ContentBlock::ToolResult(result) => is_told(&result.name),
            content_blocks!(Text Thinking Data Hint Other) => false,
        };
        if !msg.content().iter().any(concerns) {
            return msg.clone();
        }
        let blocks = msg.content().iter().cloned().map(|mut block| {
            match &mut block {
                ContentBlock::ToolCall(call) => {
                    call.name = self.provider_name(&call.name).to_owned();
                }
                ContentBlock::ToolResult(result) => {
                    result.name = self.provider_name(&result.name).to_owned();
                }
                content_blocks!(Text Thinking Data Hint Other) => {}
            }
            block
        });
        let blocks: Vec<ContentBlock> = blocks.collect();
        msg.to_builder().content(blocks).build().unwrap_or_else(|_| msg.clone())
    }
}

fn is_allowed_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_LENGTH && name.chars().all(is_allowed_char)
}

/// `files/read` becomes `files__read`.
fn replace_invalid_chars(name: &str) -> String {
    let mut plain = String::with_capacity(name.len() + 1);
    for letter in name.chars() {
        match letter {
            '/' => plain.push_str("__"),
            letter if is_allowed_char(letter) => plain.push(letter),
            _ => plain.push('_'),
        }
    }
    if plain.is_empty() {
        plain.push_str("unnamed");
    }
    plain
}

/// The name is ASCII here.
fn truncate_name(plain: &str, most: usize) -> &str {
    plain.get(..most).unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider_names(names: &[&str]) -> Vec<String> {
        let tool = |name: &&str| ToolDefinition {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: serde_json::Map::new().into(),
            ..ToolDefinition::default()
        };
        let tools: Vec<ToolDefinition> = names.iter().map(tool).collect();
        let all = ProviderNames::new(&tools);
        tools.iter().map(|tool| all.provider_name(&tool.name).to_owned()).collect()
    }

    #[test]
    fn valid_tool_names_stay() {
        assert_eq!(provider_names(&["read", "get-weather_2"]), ["read", "get-weather_2"]);
    }

    #[test]
    fn no_two_tools_have_the_same_name_for_the_provider() {
        assert_eq!(
            provider_names(&["a/b", "a__b", "a.b", "a b", "ä", "", "é"]),
            ["a__b_2", "a__b", "a_b", "a_b_2", "_", "unnamed", "__2"]
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let (one, two) = (format!("s/{}1", "x".repeat(80)), format!("s/{}2", "x".repeat(80)));
        let provider_names = provider_names(&[&one, &two]);
        assert!(provider_names.iter().all(|name| is_valid_name(name)), "{provider_names:?}");
        assert_ne!(provider_names.first(), provider_names.last());
    }
}
