"""A copy of this machine that keeps its changes in memory: packages are installed there, and nothing of them stays here."""

import subprocess
import tempfile

MOUNT = """
mount -t tmpfs turnwire-test "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay turnwire-test -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
for folder in proc dev tmp; do mount --rbind "/$folder" "$1/root/$folder"; done
# Only for the tests of what a service does without systemd.
mount -t tmpfs turnwire-test "$1/root/run"
echo ready
exec sleep infinity
"""


class Overlay:
    """Needs root. Raises OSError where such a copy cannot be made."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        command = ["unshare", "--mount", "--propagation=private", "sh", "-ec", MOUNT, "sh", self.folder.name]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            message = self.process.stderr.read()
            self.__exit__()
            raise OSError(f"no copy of this machine: {message}")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()

    def command(self, *command):
        """The command line that runs a command inside."""
        namespace = f"--mount=/proc/{self.process.pid}/ns/mnt"
        return ["nsenter", namespace, "chroot", f"{self.folder.name}/root", *map(str, command)]

    def run(self, *command, **options):
        done = subprocess.run(self.command(*command), capture_output=True, text=True, **options)
        if done.returncode:
            raise AssertionError(f"{command} has status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def has(self, path):
        return subprocess.run(self.command("test", "-e", path)).returncode == 0

    def changed_files(self):
        """The files that are new, other or gone, without the bookkeeping of the system."""
        namespace = f"--mount=/proc/{self.process.pid}/ns/mnt"
        command = ["nsenter", namespace, "find", f"{self.folder.name}/changes", "!", "-type", "d", "-printf", "/%P\\n"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        bookkeeping = ("/var/lib/dpkg/", "/var/log/", "/var/cache/", "/etc/passwd", "/etc/group", "/etc/shadow")
        bookkeeping += ("/etc/gshadow", "/etc/subuid", "/etc/subgid", "/etc/.pwd.lock", "/var/tmp/", "/root/")
        return sorted(path for path in found if not path.startswith(bookkeeping))


