"""The command `turnwire`: runs the binary that the wheel carries, as `turnwire serve`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_NAME = "turnwire.exe" if sys.platform == "win32" else "turnwire"


def find_binary() -> Path | None:
    """The binary: `TURNWIRE_BINARY`, or the one in the package."""
    given = os.environ.get("TURNWIRE_BINARY")
    path = Path(given) if given else Path(__file__).parent / "bin" / _NAME
    return path if path.is_file() else None


def main() -> None:
    """Replaces this process by the binary, so that signals and the exit status are its own."""
    binary = find_binary()
    if binary is None:
        given = os.environ.get("TURNWIRE_BINARY")
        why = f"TURNWIRE_BINARY={given} is no file" if given else "this build of the package has no turnwire binary"
        sys.exit(
            f"turnwire: {why}.\n"
            "Install it with `cargo install turnwire`, or set TURNWIRE_BINARY to the path of one.\n"
            "The client and the publisher in Python work without it."
        )
    command = [str(binary), *sys.argv[1:]]
    if sys.platform == "win32":
        sys.exit(subprocess.run(command, check=False).returncode)
    # An archive may have lost this.
    if not os.access(binary, os.X_OK):
        binary.chmod(0o755)
    os.execv(binary, command)
