"""What a package of Turnwire contains of others: a bill of materials (CycloneDX), and their licences.

`packaging/build` calls it. The crates come from `cargo metadata`, for the target that is built; the npm packages of the console
from its lock file: those under `dependencies`, because a bundle has no other.
"""

import base64
import hashlib
import json
import re
import subprocess
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$", re.IGNORECASE)
# In crates with code of others, such as SQLite or mimalloc, its licence is in a folder below.
DEPTH = 4


class Component:
    """One crate or npm package of others that is in the binary."""

    def __init__(self, kind, name, version, licence, folder, sha256=None, sha512=None):
        self.kind, self.name, self.version, self.licence, self.folder = kind, name, version, licence, folder
        self.hashes = {"SHA-256": sha256, "SHA-512": sha512}
        self.purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"

    def licence_texts(self):
        """The files with its licence: those of its folder, or else those below it."""
        files = [
            path
            for path in sorted(self.folder.rglob("*"))
            if LICENCE_FILE.match(path.name)
            and path.is_file()
            and path.suffix not in {".rs", ".py", ".json", ".html"}
            and len(path.relative_to(self.folder).parts) <= DEPTH
        ]
        return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def read_crates(target, manifest=ROOT / "Cargo.toml", root="turnwire"):
    """The crates that are compiled into `root`, the ids of ours and theirs, and who depends on whom."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.check_output([*command, f"--manifest-path={manifest}"]))
    lock = (manifest.parent / "Cargo.lock").read_text()
    checksums = {
        (name, version): checksum
        for name, version, checksum in re.findall(
            r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]{64})"', lock
        )
    }
    # `cargo metadata` joins the features of the whole workspace; `cargo tree` knows what this package is built with.
    tree = ["cargo", "tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}", f"--target={target}"]
    lines = subprocess.check_output([*tree, f"--manifest-path={manifest}", f"--package={root}"], text=True)
    built = {tuple(line.split()[:2]) for line in lines.splitlines()}
    packages = {
        package["id"]: package
        for package in metadata["packages"]
        if (package["name"], f"v{package['version']}") in built
    }
    edges = {
        node["id"]: [
            dependency["pkg"]
            for dependency in node["deps"]
            if dependency["pkg"] in packages and any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
        if node["id"] in packages
    }
    start = next(id for id, package in packages.items() if package["name"] == root and not package["source"])
    found, queue = {start}, [start]
    while queue:
        for id in edges[queue.pop()]:
            if id not in found:
                found.add(id)
                queue.append(id)
    components = {}
    for id in found:
        package = packages[id]
        key = package["name"], package["version"]
        # Old manifests separate licences by a slash.
        licence = (package["license"] or "").replace("/", " OR ").replace("  ", " ")
        components[id] = Component(
            "cargo", *key, licence, Path(package["manifest_path"]).parent, sha256=checksums.get(key)
        )
    ours = {id for id in found if packages[id]["source"] is None}
    return components, ours, edges, start


def read_npm(folder):
    """The npm packages that are bundled, from a lock file. `npm ci` has installed them."""
    lock = json.loads((folder / "package-lock.json").read_text())
    for path, package in sorted(lock["packages"].items()):
        if path and not package.get("dev") and not package.get("optional") and not package.get("peer"):
            kind, _, digest = package["integrity"].partition("-")
            if kind != "sha512":
                raise SystemExit(f"{path}: expected an integrity of sha512, found {kind}")
            sha512 = base64.b64decode(digest).hex()
            name = path.rpartition("node_modules/")[2]
            yield Component("npm", name, package["version"], package["license"], folder / path, sha512=sha512)


def bill_of_materials(name, version, target, crates, npm, epoch):
    """A CycloneDX 1.6 document."""
    components, ours, edges, start = crates

    def entry(component):
        hashes = [{"alg": alg, "content": content} for alg, content in component.hashes.items() if content]
        return {
            "type": "library",
            "bom-ref": component.purl,
            "name": component.name,
            "version": component.version,
            "purl": component.purl,
            **({"licenses": [{"expression": component.licence}]} if component.licence else {}),
            **({"hashes": hashes} if hashes else {}),
        }

    by_purl = sorted(components.items(), key=lambda item: item[1].purl)
    root = entry(components[start]) | {"type": "application", "name": name}
    npm = list(npm)
    console = [component.purl for component in components.values() if component.name == "turnwire-console"]
    dependencies = [
        {
            "ref": component.purl,
            "dependsOn": sorted(
                {components[other].purl for other in edges[id]}
                | ({package.purl for package in npm} if component.purl in console else set())
            ),
        }
        for id, component in by_purl
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": root,
            "properties": [{"name": "turnwire:target", "value": target}],
        },
        "components": [entry(component) for id, component in by_purl if id != start] + [entry(one) for one in npm],
        "dependencies": dependencies + [{"ref": component.purl, "dependsOn": []} for component in npm],
    }
    # The same content has the same number, so that two builds give the same bytes.
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def notices(crates, npm, rust_version):
    """The licences of everything of others, each text once, with the names that it is for."""
    components, ours, _, _ = crates
    apache = (ROOT / "LICENSE-APACHE").read_text().strip()
    mit = (ROOT / "LICENSE-MIT").read_text().split("\n\n", 2)[2].strip()
    texts, listed = {}, []
    others = [component for id, component in components.items() if id not in ours] + list(npm)
    for component in sorted(others, key=lambda component: component.purl):
        listed.append(f"{component.name} {component.version}: {component.licence or 'see its licence below'}")
        found = component.licence_texts()
        if not found and "Apache-2.0" in component.licence:
            found = [apache]
        elif not found and "MIT" in component.licence:
            found = [f"MIT License\n\nCopyright (c) the authors of {component.name}\n\n{mit}"]
        if not found:
            raise SystemExit(f"{component.name} {component.version} ({component.licence}) has no text of its licence")
        for text in found:
            texts.setdefault(text, []).append(f"{component.name} {component.version}")
    listed.append(f"the standard library of Rust {rust_version}: MIT OR Apache-2.0")
    texts.setdefault(apache, []).append(f"the standard library of Rust {rust_version}")
    parts = ["Turnwire contains the following software of others.\n", "\n".join(listed)]
    for text, names in sorted(texts.items(), key=lambda item: (item[1][0], item[0])):
        parts.append("=" * 100 + "\n" + ", ".join(dict.fromkeys(names)) + "\n" + "-" * 100 + "\n" + text)
    return "\n\n".join(parts) + "\n"
