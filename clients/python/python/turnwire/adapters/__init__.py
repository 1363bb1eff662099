"""Agents of frameworks: each module takes the framework's own event stream, publishes it, and hands approvals and stops
back to it. A module imports its framework only when it is imported.

| module | framework |
|---|---|
| `turnwire.adapters.agentscope` | AgentScope 2 |
| `turnwire.adapters.langgraph` | LangGraph |
| `turnwire.adapters.openai_agents` | the OpenAI Agents SDK |
| `turnwire.adapters.pydantic_ai` | Pydantic AI |
"""
