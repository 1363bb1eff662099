"""Writes the synchronous client (`_sync`) from the asynchronous one (`_async`).

python tools/unasync.py           writes it
python tools/unasync.py --check   fails if it is out of date
"""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "python" / "turnwire"

# In this order.
REPLACED = [
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\bAsync(Connections|Stop|Token)\b", r"Sync\1"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(Generator|Iterator|Http|Watch|View|Session|Client)\b", r"\1"),
    (r"\basync_(end|sleep|token)\b", r"sync_\1"),
    (r"`async with`", "`with`"),
    (r"__a(iter|next|enter|exit)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b(aread|aiter_raw|aclose)\b", lambda found: found[1][1:]),
    ("another task", "another thread"),
    (r'"""The asynchronous client\. `tools/unasync\.py` writes `_sync` from it\."""', '"""The synchronous client."""'),
]
HEAD = "# Written by tools/unasync.py from {}. Changes belong there.\n"


def convert(source: Path) -> str:
    text = source.read_text()
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    target = str(PACKAGE / "_sync" / source.name)
    text = HEAD.format(f"_async/{source.name}") + text
    # Names that became shorter sort differently, and what they are in may fit on one line.
    for command in (["check", "--select", "I,UP028", "--fix", "--unsafe-fixes"], ["format"]):
        command = ["ruff", *command, "--quiet", "--stdin-filename", target, "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    out_of_date = []
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        target, text = PACKAGE / "_sync" / source.name, convert(source)
        if not target.exists() or target.read_text() != text:
            out_of_date.append(target.name)
            if "--check" not in sys.argv:
                target.write_text(text)
    if "--check" in sys.argv and out_of_date:
        sys.exit(f"out of date: {', '.join(out_of_date)}; run clients/python/tools/unasync.py")


main()
