"""All clients, by their names."""

import client_ai_sdk
import client_anthropic
import client_langchain
import client_llm
import client_openai
import client_openai_agents
import client_pydantic_ai

MODULES = [
    client_openai, client_anthropic, client_pydantic_ai, client_openai_agents, client_langchain, client_llm, client_ai_sdk,
]  # fmt: skip

CLIENTS = {made.name: made() for module in MODULES for made in module.CLIENTS}

# Every client runs with upstreams of other wires, too. These have all cases there, one client for each wire; the others have
# those in which clients differ.
CROSS_WIRE = {"openai-chat", "openai-responses", "anthropic"}
CROSS_WIRE_CASES = {
    "streamed", "options", "tool_options", "structured_native", "structured_tool", "image", "edit", "begun_elsewhere",
}  # fmt: skip

# What the wire of an upstream has no room for, so that the conversation must differ: these cases run on other wires only.
LOSSES = {
    ("options", "openai-responses"): "it has no stop sequences",
    ("thinking", "openai-chat"): "thinking goes back to the model that made it",
    ("thinking", "openai-responses"): "thinking goes back to the model that made it",
    ("thinking", "anthropic"): "thinking goes back to the model that made it",
}
