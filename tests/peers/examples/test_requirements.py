"""The examples pin what their tests install, and what the Python package is tested with."""

from pathlib import Path

import pytest
from example import REPOSITORY


def pins(path: Path) -> dict[str, str]:
    return dict(line.split("==") for line in path.read_text().splitlines() if "==" in line)


@pytest.mark.parametrize("name", ["fastapi-agentscope", "approval-bot"])
def test_the_versions_are_those_that_are_tested(name: str) -> None:
    file = REPOSITORY / "examples" / name / "requirements.txt"
    pinned = pins(file)
    assert pinned.items() <= pins(Path(__file__).parent / "requirements.txt").items()
    of_package = pins(REPOSITORY / "clients/python/tests/requirements.txt")
    assert {package: of_package.get(package, version) for package, version in pinned.items()} == pinned
    [package] = [line for line in file.read_text().splitlines() if "==" not in line and not line.startswith("#")]
    assert (file.parent / package).resolve() == REPOSITORY / "clients/python"
