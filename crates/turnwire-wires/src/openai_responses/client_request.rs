//! Reads the tools of a client's Responses request. The server calls this.

use super::client_call::{MCP_APPROVAL, client_tool};
use crate::client_request::{
    ClientToolDefinition, get_field, invalid_request, take_field, take_name,
};
use crate::model_request::ToolKind;
use turnwire_core::{Fields, Result};

/// The name of the calls with which the provider of the hosted tool `mcp` asks whether it may call an MCP server.
pub const APPROVAL_CALL: (&str, &str) = ("mcp", MCP_APPROVAL);

/// Reads `tools`. The functions of a group come after the group.
pub fn read_tools(tools: Vec<Fields>) -> Result<Vec<ClientToolDefinition>> {
    let mut read = Vec::with_capacity(tools.len());
    for tool in tools {
        let kind: Option<String> = get_field(&tool, "type")?;
        match kind.as_deref() {
            None => return Err(invalid_request("a tool has no `type`")),
            Some("function") => read.push(read_function(tool)?),
            Some("custom") => {
                let name = take_name(&mut tool.clone())?;
                read.push(ClientToolDefinition::native(ToolKind::Custom, name, tool));
            }
            Some("namespace") => read_group(tool, &mut read)?,
            Some(kind) => read.push(match client_tool(kind, &tool) {
                Some(name) => ClientToolDefinition::native(ToolKind::Custom, name.to_owned(), tool),
                None => ClientToolDefinition::native(ToolKind::Hosted, kind.to_owned(), tool),
            }),
        }
    }
    Ok(read)
}

fn read_function(mut tool: Fields) -> Result<ClientToolDefinition> {
    tool.remove("type");
    ClientToolDefinition::read(tool, "parameters")
}

fn read_group(group: Fields, read: &mut Vec<ClientToolDefinition>) -> Result<()> {
    let mut rest = group.clone();
    let name = take_name(&mut rest)?;
    let members: Vec<Fields> = take_field(&mut rest, "tools")?.unwrap_or_default();
    read.push(ClientToolDefinition::native(ToolKind::Namespace, name.clone(), group));
    for mut member in read_tools(members)? {
        member.namespace = Some(name.clone());
        // The group has everything.
        if !member.kind.is_function() {
            member.fields = Fields::default();
        }
        read.push(member);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(tools: &Value) -> Result<Vec<ClientToolDefinition>> {
        read_tools(serde_json::from_value(tools.clone()).unwrap())
    }

    #[test]
    fn tools_of_every_kind_are_read() {
        let tools = json!([
            {"type": "function", "name": "f", "description": "d", "strict": true, "parameters": {"type": "object"}},
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
            {"type": "web_search", "external_web_access": true},
            {"type": "local_shell"},
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "shell", "environment": {"type": "container_auto"}},
            {"type": "computer_use_preview", "display_width": 1},
        ]);
        let read = read(&tools).unwrap();
        let kinds: Vec<_> = read.iter().map(|tool| (&*tool.name, tool.kind)).collect();
        let expected = [
            ("f", ToolKind::Function),
            ("patch", ToolKind::Custom),
            ("agents", ToolKind::Namespace),
            ("spawn", ToolKind::Function),
            ("web_search", ToolKind::Hosted),
            ("local_shell", ToolKind::Custom),
            ("shell", ToolKind::Custom),
            ("shell", ToolKind::Hosted),
            ("computer", ToolKind::Custom),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(read[0].strict, Some(true));
        assert_eq!(read[3].namespace.as_deref(), Some("agents"));
        assert_eq!(serde_json::to_value(&read[1].fields).unwrap(), tools[1]);
    }

    #[test]
    fn a_tool_without_type_or_name_is_refused() {
        for (tools, why) in [
            (json!([{"name": "f"}]), "no `type`"),
            (json!([{"type": "function"}]), "no `name`"),
            (json!([{"type": "namespace", "tools": []}]), "no `name`"),
            (json!([{"type": "function", "name": "f", "parameters": 7}]), "not a JSON Schema"),
        ] {
            let error = read(&tools).unwrap_err().to_string();
            assert!(error.contains(why), "{error} has no {why}");
        }
    }
}
