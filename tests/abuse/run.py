"""`make abuse`: attacks a server of its own, and prints what each attack costs beside the bound.

    TURNWIRE=target/release/turnwire python3 tests/abuse/run.py [ATTACK ...]
"""

import sys
import time
import traceback

from attacks import ATTACKS
from harness import Figure


def main() -> int:
    wanted = sys.argv[1:] or list(ATTACKS)
    if unknown := [name for name in wanted if name not in ATTACKS]:
        print(f"no such attack: {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
        return 2
    failed = 0
    for name in wanted:
        attack = ATTACKS[name]
        print(f"{name}: {(attack.__doc__ or '').strip()}", flush=True)
        start = time.monotonic()
        try:
            result = attack()
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            failed += 1
            continue
        print(f"    answers: {result.answers}")
        for figure in result.figures:
            print(f"    {'ok  ' if figure.holds() else 'OVER'} {figure}")
        failed += not all(map(Figure.holds, result.figures))
        print(f"    ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
