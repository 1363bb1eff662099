"""`docs/api.md` knows every route, and its examples are those that are run."""

import re
from pathlib import Path

from harness import Server

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs/api.md").read_text()


def test_every_route_is_in_the_reference(server: Server) -> None:
    for path, methods in server.get("/openapi.json")["paths"].items():
        for method in methods:
            if method != "parameters":
                route = rf"`{method.upper()} {re.escape(path)}(?![\w/])"
                assert re.search(route, REFERENCE), f"{method.upper()} {path}"


def test_every_command_of_the_reference_is_run_by_an_example() -> None:
    examples = [script.read_text() for script in (ROOT / "examples/curl").glob("*.sh")]
    commands = re.findall(r"^```sh\n(.*?)\n```$", REFERENCE, re.MULTILINE | re.DOTALL)
    assert len(commands) > 5
    for command in commands:
        assert any(command in example for example in examples), command


def test_every_link_of_the_reference_leads_somewhere() -> None:
    headings = re.findall(r"^##+ (.*)$", REFERENCE, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    for link in re.findall(r"\]\(([^)]*)\)", REFERENCE):
        file, _, anchor = link.partition("#")
        assert not file or (ROOT / "docs" / file).exists(), link
        assert file or anchor in anchors, link
