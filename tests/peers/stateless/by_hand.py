"""One case by hand: prints how what the provider saw, what the client got and the sessions differ.

    TURNWIRE=target/debug/turnwire PYTHONPATH=tests/peers target/peers/stateless/bin/python \
        tests/peers/stateless/by_hand.py CLIENT CASE [UPSTREAM] [--bodies]

Without arguments: the clients and the cases. `--bodies` also prints each request of both runs.
"""

import json
import sys

from cases import CASES
from clients import CLIENTS
from harness import run_straight, run_through
from test_clients import CHECKS


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(words) < 2:
        print(__doc__, "clients:", *CLIENTS, "\ncases:", *CASES)
        return
    client = CLIENTS[words[0]]
    upstream = words[2] if len(words) > 2 else client.wire
    control = run_straight(client, words[1])
    found = run_through(client, words[1], upstream)
    if "--bodies" in sys.argv:
        for name, outcome in (("straight", control), ("through", found)):
            for request in outcome.requests:
                print(name, json.dumps(request, indent=1))
    print("straight:", control.error or f"{len(control.requests)} requests, {len(control.answers)} answers")
    print("through: ", found.error or f"{len(found.requests)} requests, {len(found.answers)} answers")
    for aspect, check in CHECKS.items():
        problems = check(control, found, client, upstream)
        print(f"{aspect}: {'equal' if not problems else ''}", *problems, sep="\n    " if problems else "")


main()
