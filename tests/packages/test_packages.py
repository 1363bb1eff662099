"""Every package that `make dist` has built is installed into an empty environment, used, and removed.

PACKAGES is the folder of the packages. TURNWIRE_REQUIRE_ALL=1 turns skips into failures.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import smoke
from overlay import Overlay

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(os.environ["PACKAGES"]).resolve()
# Slow enough that a reply can be killed in its middle.
SLOWLY = {"TURNWIRE_DEMO_RATE": "100"}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command} has status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def package(pattern):
    """The one package with such a name."""
    found = sorted(PACKAGES.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def skip(what, why):
    if os.environ.get("TURNWIRE_REQUIRE_ALL") == "1":
        raise AssertionError(f"{what} is required: {why}")
    if os.environ.get("TURNWIRE_SKIPS"):
        with open(os.environ["TURNWIRE_SKIPS"], "a") as skips:
            skips.write(f"skipped: {what}: {why}\n")
    raise unittest.SkipTest(f"{what}: {why}")


def need(program):
    if not shutil.which(program):
        skip(f"packages with {program}", "it is not installed")


class PackageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="turnwire-packages-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def smoke(self, *command, **options):
        """The smoke test, with a store in the folder of the test."""
        store = f"sqlite:{self.folder / 'store.db'}"
        smoke.check(lambda: smoke.serve(command, ["--store", store], SLOWLY, **options))

    def unpack(self):
        with tarfile.open(package("turnwire-*-*.tar.gz")) as tar:
            tar.extractall(self.folder, filter="data")
        return next(self.folder.glob("turnwire-*"))


class Tar(PackageTest):
    def test_the_program_serves_and_resumes_after_a_kill(self):
        self.smoke(self.unpack() / "turnwire", cwd=self.folder)

    def test_the_checksums_are_those_of_the_files(self):
        listed = dict(line.split("  ")[::-1] for line in (PACKAGES / "SHA256SUMS").read_text().splitlines())
        files = [path for path in PACKAGES.iterdir() if path.name != "SHA256SUMS"]
        self.assertEqual(listed, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})

    def test_nothing_of_the_machine_that_built_it_is_in_the_program(self):
        program = (self.unpack() / "turnwire").read_bytes()
        # The name of a section. Without the zeros around it, it is also a text of Rust's library.
        if b"\0.debug_info\0" in program:
            skip("paths in the program", "it is not one of the profile dist")
        for path in [ROOT, Path.home() / ".cargo", Path.home() / ".rustup", Path.home() / ".npm"]:
            self.assertNotIn(str(path).encode(), program)

    def test_every_command_has_a_manual_page_without_mistakes(self):
        need("man")
        folder = self.unpack()
        pages = {page.name for page in (folder / "man/man1").iterdir()}
        commands = re.findall(r"^  ([a-z]+) ", run(folder / "turnwire", "--help"), re.MULTILINE)
        self.assertGreater(len(commands), 10)
        self.assertLessEqual({f"turnwire-{command}.1" for command in commands} | {"turnwire.1"}, pages)
        for page in pages:
            command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(folder / "man/man1" / page)]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"MANWIDTH": "80"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_bash_completes_commands_and_options(self):
        need("bash")
        script = f"""
            source {shlex.quote(str(self.unpack() / "completions/turnwire"))}
            COMP_WORDS=(turnwire serve --beh) COMP_CWORD=2
            _turnwire turnwire --beh serve
            echo "${{COMPREPLY[@]}}"
        """
        self.assertEqual(run("bash", "-c", script).strip(), "--behind-proxy")

    def test_zsh_reads_its_completions(self):
        need("zsh")
        run("zsh", "-n", self.unpack() / "completions/_turnwire")

    def test_fish_completes_commands(self):
        need("fish")
        file = self.unpack() / "completions/turnwire.fish"
        found = run("fish", "--no-config", "-c", f"source {file}; complete -C 'turnwire ser'", cwd=self.folder)
        self.assertIn("serve", found)

    def test_the_licence_of_everything_in_the_bill_of_materials_is_included(self):
        notices = (self.unpack() / "THIRD-PARTY-LICENSES.txt").read_text()
        materials = json.loads(package("turnwire-*.cdx.json").read_text())
        names = [(component["name"], component["version"]) for component in materials["components"]]
        self.assertGreater(len(names), 200)
        self.assertIn("react-dom", dict(names))
        missing = [name for name in names if not name[0].startswith("turnwire-") and f"{name[0]} {name[1]}: " not in notices]
        self.assertEqual(missing, [])
        # What is compiled from C, and named by no crate.
        for text in ["Daan Leijen", "BoringSSL"]:
            self.assertIn(text, notices)

    def test_the_bill_of_materials_is_valid_cyclonedx(self):
        try:
            from cyclonedx.schema import SchemaVersion
            from cyclonedx.validation.json import JsonStrictValidator
        except ImportError:
            skip("the bill of materials", "cyclonedx-python-lib[json-validation] is not installed")
        text = package("turnwire-*.cdx.json").read_text()
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text))
        materials = json.loads(text)
        known = {component["bom-ref"] for component in materials["components"]}
        known.add(materials["metadata"]["component"]["bom-ref"])
        for dependency in materials["dependencies"]:
            self.assertLessEqual({dependency["ref"], *dependency["dependsOn"]}, known)


class Npm(PackageTest):
    def setUp(self):
        super().setUp()
        need("npm")
        (self.folder / "package.json").write_text('{"name": "empty", "private": true, "type": "module"}')

    def npm(self, *options):
        # Another platform's package may be in no registry yet: npm leaves it out, as it is optional.
        return run("npm", *options, "--no-audit", "--no-fund", cwd=self.folder)

    def packages(self):
        return [package("turnwire-cli-[0-9]*.tgz"), package("turnwire-cli-[a-z]*.tgz"), package("turnwire-[0-9]*.tgz")]

    def installed(self):
        modules = self.folder / "node_modules"
        names = [path.relative_to(modules) for path in modules.rglob("package.json")] if modules.exists() else []
        return sorted(str(name.parent) for name in names if "turnwire" in str(name) and "node_modules" not in name.parts)

    def test_npx_serves_and_resumes_after_a_kill_and_is_removed_without_rest(self):
        self.npm("install", *self.packages())
        self.assertEqual(len(self.installed()), 3, self.installed())
        self.smoke(self.folder / "node_modules/.bin/turnwire", cwd=self.folder)
        version = run("npx", "turnwire", "--version", cwd=self.folder)
        self.assertRegex(version, r"^turnwire \d+\.\d+\.\d+")
        with smoke.serve(["npx", "turnwire"], ["--store", "memory:"], cwd=self.folder) as server:
            smoke.first_reply(server)
        self.npm("uninstall", "turnwire", "turnwire-cli", "@turnwire/cli-linux-x64")
        self.assertEqual(self.installed(), [])
        self.assertFalse((self.folder / "node_modules/.bin/turnwire").exists())
        self.assertTrue((self.folder / "store.db").exists())

    def test_the_program_of_each_package_is_the_same_one(self):
        cli, program, client = self.packages()
        self.npm("install", cli, program)
        self.assertRegex(run("npx", "turnwire", "--version", cwd=self.folder), r"^turnwire \d")
        self.npm("install", client)
        self.assertRegex(run("npx", "turnwire", "--version", cwd=self.folder), r"^turnwire \d")

    def test_the_exit_status_of_the_program_is_that_of_the_launcher(self):
        cli, program, _ = self.packages()
        self.npm("install", cli, program)
        done = subprocess.run(["node_modules/.bin/turnwire", "serve", "--config", "none.toml"], cwd=self.folder)
        self.assertEqual(done.returncode, 2)

    def test_a_missing_program_is_named(self):
        self.npm("install", "--omit=optional", self.packages()[0])
        done = subprocess.run(
            ["node_modules/.bin/turnwire", "serve"], cwd=self.folder, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("@turnwire/cli-", done.stderr)

    def test_the_client_talks_to_the_program(self):
        self.npm("install", *self.packages())
        (self.folder / "talk.js").write_text(
            """
            import { AssistantMsg, connect, EventType } from "turnwire";
            const client = connect({ url: process.env.URL });
            const { id } = await client.create();
            await client.session(id).send("hello");
            let msg = null;
            for await (const event of client.session(id).watch({ until: "idle" })) {
              if (event.type === EventType.REPLY_START) msg ??= new AssistantMsg({ name: event.name, content: [], id: event.reply_id });
              else msg?.appendEvent(event);
            }
            console.log(msg.getTextContent());
            """
        )
        with smoke.serve(["node_modules/.bin/turnwire"], ["--store", "memory:"], cwd=self.folder) as server:
            said = run("node", "talk.js", cwd=self.folder, env=os.environ | {"URL": server.url})
        self.assertTrue(said.strip())

    def test_the_client_is_packed_from_a_clean_checkout(self):
        need("git")
        checkout = self.folder / "checkout"
        run("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", checkout)
        run("npm", "pack", "--silent", "--pack-destination", self.folder, cwd=checkout / "clients/typescript")
        with tarfile.open(next(self.folder.glob("turnwire-*.tgz"))) as tar:
            names = tar.getnames()
        wanted = {f"package/{name}" for name in ["dist/index.js", "dist/index.d.ts", "dist/react.js", "LICENSE-MIT"]}
        self.assertLessEqual(wanted, set(names))
        self.assertEqual(run("git", "status", "--porcelain", cwd=checkout), "")


class Wheel(PackageTest):
    def test_pip_installs_a_program_that_serves_and_is_removed_without_rest(self):
        if not list(PACKAGES.glob("*.whl")):
            skip("the wheel", "it was not built")
        python = self.folder / "venv/bin/python"
        run(sys.executable, "-m", "venv", self.folder / "venv")
        run(python, "-m", "pip", "install", "--quiet", package("turnwire-*.whl"))
        self.smoke(self.folder / "venv/bin/turnwire", cwd=self.folder)
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "turnwire")
        rest = [path for path in (self.folder / "venv").rglob("*turnwire*")]
        self.assertEqual(rest, [])
        self.assertTrue((self.folder / "store.db").exists())


class Debian(PackageTest):
    def setUp(self):
        super().setUp()
        need("dpkg")
        self.deb = package("turnwire_*.deb")

    def overlay(self):
        if os.geteuid() != 0:
            skip("dpkg --install", "only root may install packages")
        try:
            return self.enterContext(Overlay())
        except OSError as error:
            skip("dpkg --install", str(error).strip())

    def start(self, overlay):
        """What systemd runs, as the user that it runs it as."""
        unit = overlay.run("cat", "/usr/lib/systemd/system/turnwire.service")
        command = re.search(r"^ExecStart=(.*) serve (.*)$", unit, re.MULTILINE)
        user = re.search(r"^User=(.*)$", unit, re.MULTILINE)[1]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
        return smoke.serve(overlay.command(*become, command[1]), command[2].split(), SLOWLY)

    def test_the_service_serves_an_upgrade_keeps_the_store_and_purge_leaves_nothing(self):
        overlay = self.overlay()
        overlay.run("dpkg", "--install", self.deb)
        self.assertIn("turnwire", overlay.run("turnwire", "--version"))
        overlay.run("turnwire", "config", "check", "/etc/turnwire/turnwire.toml")
        smoke.check(lambda: self.start(overlay))
        store = "/var/lib/turnwire/turnwire.db"
        self.assertEqual(overlay.run("stat", "--format=%U %a", "/var/lib/turnwire").strip(), "turnwire 750")

        overlay.run("sh", "-c", "echo '# mine' >> /etc/turnwire/turnwire.toml")
        overlay.run("dpkg", "--install", self.deb)
        self.assertIn("# mine", overlay.run("cat", "/etc/turnwire/turnwire.toml"))
        with self.start(overlay) as server:
            sessions = server.json("/v1/sessions")["sessions"]
            self.assertIn("killed", [session["id"] for session in sessions])
            server.stop()

        overlay.run("dpkg", "--remove", "turnwire")
        self.assertFalse(overlay.has("/usr/bin/turnwire"))
        # What systemd remembers of a service that was removed: whether to enable it when it comes back.
        remembered = (store, "/etc/systemd/system/", "/var/lib/systemd/deb-systemd-helper-")
        left = [path for path in overlay.changed_files() if not path.startswith(remembered)]
        self.assertEqual(left, ["/etc/turnwire/turnwire.toml"])
        self.assertTrue(overlay.has(store))

        overlay.run("dpkg", "--purge", "turnwire")
        self.assertEqual(overlay.changed_files(), [])
        self.assertFalse(overlay.has("/var/lib/turnwire"))
        self.assertFalse(overlay.has("/etc/turnwire"))
        self.assertNotIn("turnwire", overlay.run("getent", "passwd"))

    def test_it_unpacks_without_being_installed(self):
        run("dpkg", "--extract", self.deb, self.folder / "root")
        self.smoke(self.folder / "root/usr/bin/turnwire")

    def test_lintian_finds_nothing(self):
        need("lintian")
        # It is built for users of this project, not for the archive of Debian: no bug of theirs asks for it.
        allowed = "initial-upload-closes-no-bugs,no-changelog"
        run("lintian", "--allow-root", "--fail-on=error,warning", f"--suppress-tags={allowed}", self.deb)

    def test_systemd_accepts_the_service_and_finds_it_confined(self):
        need("systemd-analyze")
        overlay = self.overlay()
        overlay.run("dpkg", "--install", self.deb)
        unit = "/usr/lib/systemd/system/turnwire.service"
        self.assertEqual(overlay.run("systemd-analyze", "verify", "--man=no", unit), "")
        found = overlay.run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
        self.assertIn("Overall exposure level", found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
