"""Compares the public API of the crates with its record beside this file.

`make check` runs it after `cargo doc`; `make api-record` writes the record. It reads the pages of rustdoc, because
tools that know the API better need a nightly compiler: public items with their declarations, their methods and the
traits that they implement. Items that are hidden from the documentation are not recorded.
"""

import difflib
import html
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
DOC = Path(os.environ.get("CARGO_TARGET_DIR") or HERE / "../../target") / "doc"
CRATES = ["turnwire-core", "turnwire-wires", "turnwire-log", "turnwire-agent", "turnwire-server"]


def text(markup):
    """The text of HTML on one line, without collapsed headings such as "Show 13 fields"."""
    markup = re.sub(r"<summary.*?</summary>", "", markup, flags=re.S).replace("<div", " <div")
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def section(page, name):
    """The part of a page below a heading."""
    found = re.search(rf'<h2 id="{name}"(.*?)(?=<h2 id=|\Z)', page, flags=re.S)
    return found[1] if found else ""


def headers(markup, level):
    """The declarations of methods (level 4) or of implementations (level 3)."""
    found = re.findall(rf'<h{level} class="code-header">(.*?)</h{level}>', markup, flags=re.S)
    return [text(each) for each in found]


def item(path, page):
    declaration = re.search(r'<pre class="rust (?:item-decl|macro)">(.*?)</pre>', page, flags=re.S)
    yield f"{path}: {text(declaration[1])}" if declaration else path
    for each in headers(section(page, "implementations"), 4):
        yield f"{path}: {each}"
    for each in headers(section(page, "trait-implementations"), 3):
        # A part of `derive(PartialEq)` that no code outside can use.
        if "StructuralPartialEq" not in each:
            yield f"{path}: {each}"


def module(path, file):
    """The lines of a module. Starts from its index, because pages of removed items stay in the folder."""
    page = file.read_text()
    yield f"{path}: mod"
    for entry in re.findall(r"<dt.*?</dt>", page, flags=re.S):
        if "pub use " in text(entry):
            yield f"{path}: {text(re.search(r'<code>.*</code>', entry)[0])}"
            continue
        kind, link, name = re.search(r'<a class="(\w+)" href="(.*?)".*?>(.*?)</a>', entry).groups()
        inner = f"{path}::{text(name)}"
        if kind == "mod":
            yield from module(inner, file.parent / link)
        else:
            yield from item(inner, (file.parent / link).read_text())


def skip(why):
    """As the function of this name in the Makefile."""
    line = f"skipped: public API: {why}"
    if os.environ.get("TURNWIRE_REQUIRE_ALL") == "1":
        sys.exit(f"{line}: install that version, or run `make api-record` with this one")
    print(line)
    with open(os.environ.get("TURNWIRE_SKIPS", os.devnull), "a") as skips:
        print(line, file=skips)


def main():
    is_recording = "--record" in sys.argv
    differences = []
    for crate in CRATES:
        name = crate.replace("-", "_")
        index = DOC / name / "index.html"
        version = re.search(r'data-rustdoc-version="([\d.]+)', index.read_text())[1]
        found = [f"rustdoc {version}", *sorted(set(module(name, index)))]
        record = HERE / f"{crate}.txt"
        if is_recording:
            record.write_text("\n".join(found) + "\n")
            continue
        recorded = record.read_text().splitlines()
        if recorded[0] != found[0]:
            # Its pages may differ, although the API does not.
            return skip(f"recorded with {recorded[0]}, and this is {found[0]}")
        differences += difflib.unified_diff(recorded, found, crate, crate, n=0, lineterm="")
    if differences:
        print("\n".join(differences))
        sys.exit(
            "The public API is not the recorded one. If that is intended: `make api-record`, commit tools/public-api, "
            "and add a line to CHANGELOG.md."
        )


main()
