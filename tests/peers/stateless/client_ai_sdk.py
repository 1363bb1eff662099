"""The npm package `ai` with its OpenAI, OpenAI-compatible and Anthropic providers: a Node process that is told what to do."""

import atexit
import json
import subprocess
from pathlib import Path
from typing import Any

from cases import Client, History, Turn
from conversation import ANTHROPIC, CHAT, RESPONSES, Json

FOLDER = Path(__file__).parents[1] / "node/stateless"
SHARED: Json = {"temperature": 0.2, "topP": 0.9, "maxOutputTokens": 12}


class AiSdk(Client):
    no_tools: Json = {"toolChoice": "none"}
    name: str
    process: Any = None

    def tell(self, command: Json) -> Json:
        if AiSdk.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            AiSdk.process = subprocess.Popen(["node", "turns.mjs"], cwd=FOLDER, **pipes)
            atexit.register(AiSdk.process.kill)
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the Node process ended: run `npm ci` in tests/peers/node/stateless"
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def connect(self, url: str, model: str) -> None:
        self.tell({"connect": {"client": self.name, "url": url, "model": model}})

    def start(self) -> History:
        return -1

    def run_turn(self, history: History, turn: Turn) -> tuple[Json, History]:
        command = vars(turn) | {"history": history, "image": turn.image_base64}
        reply = self.tell({"turn": command})
        return reply["answer"], reply["history"]


class AiSdkResponses(AiSdk):
    name, wire = "ai-openai", RESPONSES
    cannot = {"begun_elsewhere": "it names the items of earlier answers by their ids, which another provider does not know"}
    options: Json = SHARED | {
        "providerOptions": {
            "openai": {"user": "ada", "metadata": {"team": "red"}, "serviceTier": "default", "store": False, "textVerbosity": "low"}
        }
    }
    one_at_a_time: Json = {"providerOptions": {"openai": {"parallelToolCalls": False}}}
    thinking: Json = {
        "providerOptions": {
            "openai": {"reasoningEffort": "low", "store": False, "include": ["reasoning.encrypted_content"], "forceReasoning": True}
        }
    }


class AiSdkChat(AiSdk):
    name, wire = "ai-openai-chat", CHAT
    options: Json = SHARED | {
        "stopSequences": ["STOP"],
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "providerOptions": {
            "openai": {"user": "ada", "metadata": {"team": "red"}, "serviceTier": "default", "logitBias": {"50256": -1}}
        },
    }
    one_at_a_time: Json = {"providerOptions": {"openai": {"parallelToolCalls": False}}}
    cannot = {"thinking": "the API does not return it"}


class AiSdkCompatible(AiSdk):
    name, wire = "ai-openai-compatible", CHAT
    options: Json = SHARED | {
        "stopSequences": ["STOP"],
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "providerOptions": {"compatible": {"user": "ada", "reasoningEffort": "low"}},
    }
    one_at_a_time: Json = {"providerOptions": {"compatible": {"parallel_tool_calls": False}}}
    cannot = {"thinking": "the API does not return it"}


class AiSdkAnthropic(AiSdk):
    name, wire = "ai-anthropic", ANTHROPIC
    options: Json = {"temperature": 0.2, "topK": 5, "maxOutputTokens": 12, "stopSequences": ["STOP"]}
    one_at_a_time: Json = {"providerOptions": {"anthropic": {"disableParallelToolUse": True}}}
    thinking: Json = {
        "maxOutputTokens": 4000,
        "providerOptions": {"anthropic": {"thinking": {"type": "enabled", "budgetTokens": 1024}}},
    }


CLIENTS = [AiSdkResponses, AiSdkChat, AiSdkCompatible, AiSdkAnthropic]
