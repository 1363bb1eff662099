"""The figures of the packages, for docs/benchmarks.md: sizes, start of the server, install to first reply.

The first installation of each package fills the caches of pip and npm; the figure is the best and the worst of the next ones.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import smoke
from overlay import Overlay
from test_packages import PACKAGES, package, run

ROUNDS = 5
STARTS = 30


def sizes():
    for file in sorted(PACKAGES.iterdir()):
        if file.suffix in {".gz", ".whl", ".tgz", ".deb"}:
            print(f"{file.name:60} {file.stat().st_size / 2**20:6.2f} MiB")


def start_times(program, folder):
    """From the start of the process to the line that it listens, over a new file each time; then to a first response."""
    listening, ready = [], []
    for round in range(STARTS):
        store = f"sqlite:{folder}/start-{round}.db"
        begun = time.perf_counter()
        with smoke.serve([program], ["--store", store], cwd=folder) as server:
            listening.append(time.perf_counter() - begun)
            server.request("/readyz").read()
            ready.append(time.perf_counter() - begun)
    for name, times in {"listening": listening, "/readyz answered": ready}.items():
        times.sort()
        print(f"start to {name}: best {times[0] * 1e3:.1f} ms, median {times[len(times) // 2] * 1e3:.1f} ms, worst {times[-1] * 1e3:.1f} ms")


def from_wheel(folder):
    run(sys.executable, "-m", "venv", folder / "venv")
    begun = time.perf_counter()
    run(folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", package("turnwire-*.whl"))
    return begun, smoke.serve([folder / "venv/bin/turnwire"], ["--store", f"sqlite:{folder}/s.db"], cwd=folder)


def from_npm(folder):
    (folder / "package.json").write_text('{"name": "empty", "private": true}')
    files = [package("turnwire-cli-[0-9]*.tgz"), package("turnwire-cli-[a-z]*.tgz")]
    begun = time.perf_counter()
    run("npm", "install", "--no-audit", "--no-fund", "--prefer-offline", *files, cwd=folder)
    return begun, smoke.serve(["npx", "turnwire"], ["--store", f"sqlite:{folder}/s.db"], cwd=folder)


def from_tar(folder):
    begun = time.perf_counter()
    run("tar", "xzf", package("turnwire-*-*.tar.gz"), "--strip-components=1", cwd=folder)
    return begun, smoke.serve([folder / "turnwire"], ["--store", f"sqlite:{folder}/s.db"], cwd=folder)


def from_deb(folder, overlay):
    begun = time.perf_counter()
    overlay.run("dpkg", "--install", package("turnwire_*.deb"))
    become = ["setpriv", "--reuid=turnwire", "--regid=turnwire", "--clear-groups"]
    command = overlay.command(*become, "turnwire")
    return begun, smoke.serve(command, ["--config", "/etc/turnwire/turnwire.toml"])


def first_replies(name, install):
    times = []
    for _ in range(ROUNDS + 1):
        folder = Path(tempfile.mkdtemp(prefix="turnwire-figures-"))
        try:
            begun, serving = install(folder)
            with serving as server:
                smoke.first_reply(server)
                times.append(time.perf_counter() - begun)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}, install to first reply: {min(times[1:]):.2f} to {max(times[1:]):.2f} s (first, with cold caches: {times[0]:.2f} s)")


def main():
    load = os.getloadavg()[0]
    print(f"load average {load:.1f}; {subprocess.check_output(['uname', '-srm'], text=True).strip()}")
    sizes()
    with tempfile.TemporaryDirectory() as folder:
        run("tar", "xzf", package("turnwire-*-*.tar.gz"), "--strip-components=1", cwd=folder)
        program = Path(folder) / "turnwire"
        data = program.read_bytes()
        print(f"the program alone: {len(data) / 2**20:.2f} MiB, with gzip {len(gzip.compress(data, 9)) / 2**20:.2f} MiB")
        start_times(program, folder)
    first_replies("tar.gz", from_tar)
    first_replies("npm", from_npm)
    if list(PACKAGES.glob("*.whl")):
        first_replies("wheel", from_wheel)

    def in_new_overlay(folder):
        overlay = Overlay().__enter__()
        overlays.append(overlay)
        return from_deb(folder, overlay)

    overlays = []
    try:
        first_replies("deb", in_new_overlay)
    except OSError as error:
        print(f"deb: {error}")
    finally:
        for overlay in overlays:
            overlay.__exit__()


if __name__ == "__main__":
    main()
