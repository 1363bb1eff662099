"""Seeded values: text with everything in it that breaks readers, bytes, JSON."""

import base64
import random
from typing import Any

PIECES = (
    "a", "Hello ", "42", "é", "漢字", "e\u0301", "😀", "👩\u200d👩\u200d👧", "\U0010ffff", "\ue000",
    "\n", "\r\n", "\r", "\t", "\b\f", "\0", "\x1f", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff",
    '"', "\\", "\\u0041", "\\n", "/", "'", "{}[]:,", "</script>", "data: x\n\n", "[DONE]", " ",
)  # fmt: skip

NUMBERS = (
    0, -1, 7, 2**53 + 1, 2**64, -(2**70),
    0.1, 1.0, -0.0, 1e22, 1.5e-7, 5e-324, 1.7976931348623157e308,
)  # fmt: skip

# As AgentScope's own URL type writes them: it rewrites every other form.
URLS = (
    "https://example.com/",
    "https://example.com/a/b.png?q=1&r=%20#top",
    "http://127.0.0.1:8080/%E6%BC%A2",
    "file:///tmp/a.wav",
    "data:text/plain,hi",
)

MEDIA = ("image/png", "audio/pcm;rate=24000", "text/plain; charset=utf-8")


def text(rng: random.Random, most: int = 6) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(0, most)))


def word(rng: random.Random) -> str:
    return rng.choice(("get_weather", "files/write", "検索", "a b", "x"))


def chunk(rng: random.Random) -> str:
    """Bytes encoded on their own, padding and all; of any length, seldom a multiple of three."""
    return base64.b64encode(rng.randbytes(rng.choice((0, 1, 2, 3, 4, 5, 16, 61)))).decode()


def json_value(rng: random.Random, depth: int = 2) -> Any:
    match rng.randrange(7 if depth else 5):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice(NUMBERS)
        case 3 | 4:
            return text(rng)
        case 5:
            return [json_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        case _:
            return json_object(rng, depth - 1)


def json_object(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    return {text(rng, 2): json_value(rng, depth) for _ in range(rng.randint(0, 3))}
