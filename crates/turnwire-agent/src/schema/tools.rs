//! Limits for the tools of clients and MCP servers. Their schemas are not compiled, only passed to the
//! model.

use super::MAX_DEPTH;
use super::measure::is_deeper;
use crate::client_context::ClientTool;
use serde_json::Value;
use turnwire_core::Json;

/// The most tools of one message, or of one MCP server.
pub const MAX_TOOLS: usize = 256;
/// The largest tool: name, description and schema, in bytes.
pub const MAX_TOOL_BYTES: usize = 64 << 10;
/// The most bytes of all tools of one message, or of one MCP server.
pub const MAX_TOOLS_BYTES: usize = 1 << 20;

/// Checks the limits of a tool. Returns its size in bytes.
pub fn check_tool(name: &str, description: &str, input: Option<&Json>) -> Result<usize, String> {
    let shown: String = name.chars().take(80).collect();
    let bytes = name.len() + description.len() + input.map_or(0, |input| input.text().len());
    if bytes > MAX_TOOL_BYTES {
        return Err(format!(
            "the tool `{shown}` has {bytes} bytes with its description and its schema, \
             {MAX_TOOL_BYTES} are allowed"
        ));
    }
    let input: Option<Value> = input
        .map(Json::parse_as)
        .transpose()
        .map_err(|error| format!("the input schema of the tool `{shown}` is not read: {error}"))?;
    if input.is_some_and(|input| is_deeper(&input, MAX_DEPTH)) {
        return Err(format!(
            "the input schema of the tool `{shown}` is nested more than {MAX_DEPTH} levels deep"
        ));
    }
    Ok(bytes)
}

/// Checks the limits of a client's tools.
pub fn check_tools(tools: &[ClientTool]) -> Result<(), String> {
    if tools.len() > MAX_TOOLS {
        return Err(format!("there are {} tools, {MAX_TOOLS} are allowed", tools.len()));
    }
    let mut bytes = 0;
    for tool in tools {
        bytes += check_tool(&tool.name, &tool.description, tool.input.as_ref())?;
    }
    if bytes > MAX_TOOLS_BYTES {
        return Err(format!("the tools have {bytes} bytes, {MAX_TOOLS_BYTES} are allowed"));
    }
    Ok(())
}
