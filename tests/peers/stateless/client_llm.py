"""The program and library `llm`, with its OpenAI models."""

from typing import Any

import llm
from llm.default_plugins.openai_models import Chat

from cases import Client, History, Turn
from conversation import CHAT, Json
from tools import TOOLS, City


class Llm(Client):
    name, wire = "llm", CHAT
    options: Json = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 12,
        "stop": "STOP",
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"50256": -1},
    }
    cannot = {
        "thinking": "the API does not return it",
        "structured_tool": "it has no tool choice",
        "tool_options": "it has no tool choice",
    }

    def connect(self, url: str, model: str) -> None:
        self.model = Chat(
            model, model_name=model, api_base=f"{url}/v1", key="none", vision=True, supports_schema=True, supports_tools=True
        )
        self.model.key = "none"

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        conversation = llm.Conversation(model=self.model, responses=list(history))
        more: Json = {"system": turn.system, "stream": turn.stream, "key": "none"}
        if turn.image:
            more["attachments"] = [llm.Attachment(content=turn.image, type="image/png")]
        if turn.tools:
            chain: Any = conversation.chain(turn.text, tools=list(TOOLS.values()), options=turn.options, **more)
            said = chain.text()
        else:
            response: Any = conversation.prompt(turn.text, schema=City if turn.structured else None, **more, **turn.options)
            said = response.text()
        new = conversation.responses[len(history) :]
        answer = {
            "said": said,
            "steps": [
                {
                    "text": step.text(),
                    "calls": [[call.name, call.arguments] for call in step.tool_calls()],
                    "usage": [step.usage().input, step.usage().output],
                }
                for step in new
            ],
        }
        return answer, conversation.responses


CLIENTS = [Llm]
