//! Tools of an MCP server that is a child process. Here the server is this program, started again; any other
//! command works, too.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt, transport};
use std::error::Error;
use std::sync::Arc;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::permission::Rule;
use turnwire_agent::{Agent, McpServer};
use turnwire_core::{Behavior, Msg};

/// The server.
struct Library;

impl ServerHandler for Library {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = [("find", "Where a book stands"), ("discard", "Throws a book away")];
        let tool = |(name, about)| Tool::new(name, about, Arc::default());
        Ok(ListToolsResult::with_all_items(tools.map(tool).to_vec()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let output = format!("{}: shelf 7", call.name);
        Ok(CallToolResult::success(vec![ContentBlock::text(output)]).into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        Library.serve(transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let program = std::env::current_exe()?.display().to_string();
    let library = McpServer::command([program.as_str(), "serve"]).with_name("library");

    let model = ScriptedModel::new([
        vec![
            ScriptStep::call("1", "library/find", r#"{"title":"Middlemarch"}"#),
            ScriptStep::call("2", "library/discard", r#"{"title":"Middlemarch"}"#),
        ],
        vec![ScriptStep::text("It stands where it should.")],
    ]);
    let library = library.connect().await?;
    for tool in &library.tools {
        println!("{}: {}", tool.spec().name, tool.spec().description);
    }
    let friday = Agent::builder("friday", model)
        .system(library.instructions)
        .tools(library.tools)
        .permissions([Rule::new("library/discard", Behavior::Deny)])
        .build();

    let reply = friday.call([Msg::user("ann", "Where is Middlemarch?")]).await?;
    for (call, result) in reply.tool_calls() {
        let output = result.map(|result| result.output.text("")).unwrap_or_default();
        println!("{} {} -> {output}", call.name, call.input);
    }
    println!("{}", reply.text("").unwrap_or_default());
    Ok(())
}
