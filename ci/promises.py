#!/usr/bin/env python3
"""Checks docs/promises.md, which describes its rows: each statement of the pages has one row, and each named test exists."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "docs/promises.md"
PAGES = ("guarantees", "gaps", "order", "errors", "metrics")
LONGEST = 12  # words of a quote
# A page, rows for it, and rows with a mistake, each with the message that must be found.
PLANTED = "# P\n\nIds grow. They [end](e.md):\n\n- `a|b`\n  is one\n\n| x | y |\n| --- | --- |\n| row | 3 |\n\n```sh\nno\n```\n"
GOOD = ["Ids grow. | `ci/lib.sh fail skip`", "They end | `ci/lib.sh fail`", r"`a\|b` is | - (advice)", "row | `ci/lib.sh fail`"]
MISTAKES = [
    (GOOD[1:], "in 0 rows"),
    ([*GOOD, GOOD[0]], "in 2 rows"),
    (GOOD[::-1], "not in the order"),
    ([*GOOD, "Ids shrink | `ci/lib.sh fail`"], "matches 0 statements"),
    (["Ids grow. | `ci/lib.sh fail no_such_name`", *GOOD[1:]], "does not exist: ci/lib.sh fail no_such_name"),
    (["Ids grow. | `ci/no_such_file.rs fail`", *GOOD[1:]], "does not exist: ci/no_such_file.rs"),
    (["Ids grow. | `ci/lib.sh fail`; MISSING: more", *GOOD[1:]], "has no test"),
    (["Ids grow. | soon", *GOOD[1:]], "has no test"),
]


def plain(text):
    """Returns the text without Markdown: links become their text."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.replace(r"\|", "|"))
    return " ".join(re.sub(r"[*`]", "", text).split())


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def statements(page):
    """Returns the sentences, list items and table rows of a page, in order."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    page = re.sub(r"^ *([-*]|\d+\.) ", "\n", page, flags=re.M)
    found = []
    for block in re.split(r"\n\s*\n", page):
        lines = [line for line in block.splitlines() if not re.match(r"#|!\[", line)]
        if lines and lines[0].startswith("|"):
            found += [plain(" ".join(cells(line))) for line in lines[2:]]
        else:
            found += re.split(r"(?<=[.?!]) ", plain(" ".join(lines)))
    return [one for one in found if one]


def exists(test):
    """Whether all tests in `FILE NAME…` exist: functions or mutants of a Rust file, or words of another file."""
    path, *names = test.split()
    if not names or not (ROOT / path).is_file():
        return False
    text = (ROOT / path).read_text("utf-8")
    wanted = r'\bfn {0}\b|^\s*"{0}",$' if path.endswith(".rs") else r"(?<!\w){0}(?!\w)"
    return all(re.search(wanted.format(re.escape(name)), text, re.M) for name in names)


def faults(page, rows):
    """Yields a message for each error in the rows of a page."""
    found, places = statements(page), []
    for quote, tests in rows:
        matches = [at for at, one in enumerate(found) if re.match(re.escape(plain(quote)) + r"(?!\w)", one)]
        if len(matches) != 1 or len(quote.split()) > LONGEST:
            yield f"“{quote}” matches {len(matches)} statements, or has more than {LONGEST} words"
        places += matches[:1]
        named = re.findall(r"`([^`]+)`", tests)
        if "MISSING" in tests or not named and not re.fullmatch(r"- \(\w+\)", tests):
            yield f"“{quote}” has no test: {tests.partition('MISSING: ')[2] or tests}"
        else:
            yield from (f"“{quote}” names a test that does not exist: {test}" for test in named if not exists(test))
    for at, one in enumerate(found):
        if places.count(at) != 1:
            yield f"in {places.count(at)} rows of {TABLE}, instead of one: {one}"
    if places != sorted(places):
        yield "the rows are not in the order of the statements"


def main():
    rows_of = lambda lines: [cells(line) for line in lines if line.startswith("|")]
    planted = lambda rows: list(faults(PLANTED, rows_of(f"| {row} |" for row in rows)))
    missed = [message for rows, message in MISTAKES if not any(message in one for one in planted(rows))]
    if missed or planted(GOOD):
        sys.exit(f"ci/promises.py misses planted mistakes: {missed}; in good rows, it finds {planted(GOOD)}")
    sections = dict(re.findall(r"^## \[.*?\]\(guide/(\w+)\.md\)\n(.*?)(?=^## |\Z)", (ROOT / TABLE).read_text("utf-8"), re.M | re.S))
    texts = {name: (ROOT / f"docs/guide/{name}.md").read_text("utf-8") for name in PAGES}
    found = [f"{name}.md: {fault}" for name in PAGES for fault in faults(texts[name], rows_of(sections.get(name, "").splitlines())[2:])]
    if found:
        sys.exit("\n".join(found))
    print(sum(len(statements(text)) for text in texts.values()))


if __name__ == "__main__":
    main()
