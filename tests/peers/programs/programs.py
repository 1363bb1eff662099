"""Coding assistants from npm, each in a home of its own: one message of the user, up to the end of the turn."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from conversation import ANTHROPIC, CHAT, RESPONSES, Json

BIN = Path(__file__).parents[1] / "node/programs/node_modules/.bin"

# Whatever takes longer than this hangs.
TIMEOUT = 240.0


@dataclass
class Turn:
    """How a turn ended."""

    code: int
    # The last answer of the model, as the program gives it to its caller.
    text: str
    # What the program printed, to understand a failure.
    output: str


class Program:
    name: str
    wire: str
    model: str
    # The name of its shell tool.
    shell: str

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.home, self.work = folder / "home", folder / "work"
        for made in (self.home, self.work):
            made.mkdir()
        self.configure()

    def configure(self) -> None:
        """Writes the program's own settings."""

    def environment(self) -> dict[str, str]:
        return {}

    def command(self, text: str, is_first: bool) -> list[str]:
        raise NotImplementedError

    def read(self, output: str) -> str:
        """The last answer in what the program printed."""
        raise NotImplementedError

    def start(self, text: str, is_first: bool) -> subprocess.Popen[str]:
        """Nothing of the machine's own environment: no settings, no credentials, no proxy."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb", "TZ": "UTC"}
        program, *arguments = self.command(text, is_first)
        return subprocess.Popen(
            [str(BIN / program), *arguments],
            cwd=self.work,
            env=env | self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Turn:
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            return Turn(-1, "", f"it hangs\n{output}")
        return Turn(process.returncode, self.read(output), output)


def lines_of_json(output: str) -> list[Json]:
    found = []
    for line in output.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return [line for line in found if isinstance(line, dict)]


class Codex(Program):
    name, wire, model, shell = "codex", RESPONSES, "gpt-5.5", "exec_command"

    def configure(self) -> None:
        (self.home / ".codex").mkdir()
        (self.home / ".codex/config.toml").write_text(f"""model = "{self.model}"
model_provider = "test"
check_for_update_on_startup = false

[model_providers.test]
name = "test"
base_url = "{self.url}/v1"
wire_api = "responses"
env_key = "TEST_API_KEY"
""")

    def environment(self) -> dict[str, str]:
        return {"TEST_API_KEY": "none"}

    def command(self, text: str, is_first: bool) -> list[str]:
        resume = [] if is_first else ["resume", "--last"]
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["codex", "exec", *resume, *options, text]

    def read(self, output: str) -> str:
        items = [line["item"] for line in lines_of_json(output) if line.get("type") == "item.completed"]
        texts = [item["text"] for item in items if item["type"] == "agent_message"]
        return texts[-1] if texts else ""


class ClaudeCode(Program):
    name, wire, model, shell = "claude-code", ANTHROPIC, "claude-sonnet-4-6", "Bash"

    def environment(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_MODEL": self.model,
            # The small model of titles and the like.
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": self.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def command(self, text: str, is_first: bool) -> list[str]:
        resume = [] if is_first else ["--continue"]
        return ["claude", "-p", text, *resume, "--output-format", "json", "--allowedTools", "Bash"]

    def read(self, output: str) -> str:
        results = [line for line in lines_of_json(output) if line.get("type") == "result"]
        return results[-1].get("result", "") if results else ""


class OpenCode(Program):
    name, wire, model, shell = "opencode", CHAT, "gpt-4o", "bash"

    def environment(self) -> dict[str, str]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "test",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "none"},
            "models": {self.model: {"name": self.model}},
        }
        settings = {
            "provider": {"test": provider},
            "model": f"test/{self.model}",
            "small_model": f"test/{self.model}",
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
        }
        return {
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }

    def command(self, text: str, is_first: bool) -> list[str]:
        resume = [] if is_first else ["--continue"]
        return ["opencode", "run", *resume, "--format", "json", text]

    def read(self, output: str) -> str:
        texts = [line["part"]["text"] for line in lines_of_json(output) if line.get("type") == "text"]
        return texts[-1] if texts else ""


PROGRAMS = {made.name: made for made in (Codex, ClaudeCode, OpenCode)}
