"""A preprocessor of mdBook that makes the links of all pages work in the guide.

Chapters may lie outside of docs/guide: pages of the repository are read where they are, and written to a path below the
guide. A link to a chapter leads to the chapter; a link to another file of the repository leads to the repository.
"""

import json
import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
LINK = re.compile(r"""(\]\(|(?:src|srcset|href)=")([^)"\s#]*)(#[^)"\s]*)?(?=[)"])""")


def chapters(items):
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            yield chapter
            yield from chapters(chapter["sub_items"])


def place(source):
    """Returns the path of a page in the guide: stores/postgres.md for stores/postgres/README.md of the repository."""
    if source.is_relative_to(GUIDE):
        return str(source.relative_to(GUIDE))
    inside = source.relative_to(ROOT)
    if inside.parts[0] == "docs":
        inside = inside.relative_to("docs")
    return str(inside.parent.with_suffix(".md") if inside.name == "README.md" else inside)


def rewritten(content, source, places, repository):
    here = Path(places[source]).parent

    def link(match):
        before, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if not target or re.match(r"[a-z]+:", target):
            return match.group(0)
        file = Path(os.path.normpath(source.parent / target))
        if not file.exists():
            sys.exit(f"{source}: {target} does not exist")
        if file in places:
            return f"{before}{os.path.relpath(places[file], here)}{anchor}"
        if file.is_relative_to(GUIDE):
            return f"{before}{os.path.relpath(file.relative_to(GUIDE), here)}{anchor}"
        kind = "tree" if file.is_dir() else "blob"
        return f"{before}{repository}/{kind}/main/{file.relative_to(ROOT)}{anchor}"

    # Code is left as it is. Inline code may span several lines.
    parts = re.split(r"(^```.*?^```|`(?:[^`\n]|\n(?!\n))+`)", content, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if n % 2 else LINK.sub(link, part) for n, part in enumerate(parts))


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    repository = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
    every = {(GUIDE / chapter["path"]).resolve(): chapter for chapter in chapters(book["items"])}
    places = {source: place(source) for source in every}
    for source, chapter in every.items():
        chapter["content"] = rewritten(chapter["content"], source, places, repository)
        chapter["path"] = places[source]
    json.dump(book, sys.stdout)


main()
