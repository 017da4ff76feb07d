"""Checks that each link of the built guide leads to an existing file and heading. `check.py DIRECTORY`

Links to other sites are not requested. Prints the number of checked links.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

GUIDE = Path(sys.argv[1]).resolve()


class Page(HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif value and name in ("href", "src", "srcset"):
                self.links.append(value.split(" ")[0])


def main():
    # print.html and 404.html are left out: print.html joins all chapters, so its anchors are different, and
    # the links of 404.html are relative to the root of a site.
    files = [file for file in GUIDE.rglob("*.html") if file.name not in ("404.html", "print.html")]
    pages = {file: Page(file) for file in files}
    checked, dead = 0, []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                dead.append(f"{file.relative_to(GUIDE)}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                dead.append(f"{file.relative_to(GUIDE)}: {link}: no such heading")
    print(f"{len(pages)} pages, {checked} links, {len(dead)} dead", *dead, sep="\n")
    sys.exit(bool(dead) or not checked)


main()
