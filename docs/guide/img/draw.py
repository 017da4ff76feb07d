"""Draws the pictures of the pages. `docs/guide/img/draw.py` writes the SVG files next to it; `--check` fails if one differs."""

import math
import sys
from pathlib import Path

HERE = Path(__file__).parent
STYLE = """
text{font:14px system-ui,sans-serif;fill:#1f2328}
.small{font-size:12px;fill:#59636e}.on{fill:#fff}.mid{text-anchor:middle}.bold{font-weight:600}
.line{stroke:#59636e;stroke-width:1.5;fill:none}.dash{stroke-dasharray:5 4}
.box{fill:#f6f8fa;stroke:#59636e;stroke-width:1.2}
.one{fill:#0969da}.two{fill:#8250df}.gap{fill:#d1d9e0}.bad{fill:#cf222e}.good{fill:#1a7f37}.area{fill:#0969da;opacity:.18}
.curve{stroke:#0969da;stroke-width:2;fill:none}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}.small{fill:#9198a1}.on{fill:#fff}.line{stroke:#9198a1}.box{fill:#161b22;stroke:#9198a1}
.one{fill:#1f6feb}.two{fill:#8957e5}.gap{fill:#3d444d}.bad{fill:#da3633}.good{fill:#238636}.area{fill:#58a6ff}.curve{stroke:#58a6ff}
}"""


class Picture:
    def __init__(self, name, title, width, height):
        self.name, self.title, self.size, self.parts = name, title, (width, height), []

    def text(self, x, y, text, kind=""):
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}">{text}</text>')

    def box(self, x, y, width, height, kind, label="", on="on", round=4):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{round}" class="{kind}"/>')
        if label:
            lines = label.split("\n")
            for n, line in enumerate(lines):
                self.text(x + width / 2, y + height / 2 + 5 + 17 * (n - (len(lines) - 1) / 2), line, f"mid {on}")

    def line(self, *points, kind="line", arrow=False):
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        end = ' marker-end="url(#tip)"' if arrow else ""
        self.parts.append(f'<path d="{path}" class="{kind}"{end}/>')

    def svg(self):
        width, height = self.size
        tip = ('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
               '<path d="M0 0L8 4L0 8" class="line"/></marker></defs>')
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
                f"<title>{self.title}</title>\n<style>{STYLE}\n</style>\n{tip}\n" + "\n".join(self.parts) + "\n</svg>\n")


def ranges():
    """Two processes take ranges from one counter."""
    picture = Picture("ranges", "Two processes take ranges of ten from one counter, and draw from them at the same time", 720, 190)
    picture.text(20, 30, "the counter in the store", "small")
    for n, (kind, who) in enumerate([("one", "A"), ("two", "B"), ("one", "A"), ("two", "B")]):
        picture.box(20 + n * 170, 42, 164, 34, kind, f"{who}: {n * 10 + 1} to {n * 10 + 10}")
    for row, (kind, who, ids) in enumerate([("one", "process A draws", [1, 2, 3, 4, 5]), ("two", "process B draws", [11, 12, 13])]):
        y = 100 + row * 40
        picture.text(20, y + 21, who)
        for n, each in enumerate(ids):
            picture.box(150 + n * (62 if row == 0 else 104) + row * 30, y, 42, 30, kind, str(each))
    picture.line((480, 155), (690, 155), arrow=True)
    picture.text(560, 147, "time", "small")
    return picture


def refill():
    """The ids in memory over time."""
    picture = Picture("refill", "The ids in memory over time: a refill starts at the watermark, and arrives before memory is empty", 720, 260)
    top, bottom, mark = 40, 210, 150
    picture.line((60, top - 15), (60, bottom), (700, bottom))
    picture.text(20, 22, "ids in memory", "small")
    picture.text(668, 230, "time", "small")
    points, x = [(60, 60)], 60
    starts = []
    level = 60
    while x < 660:
        start = x + (mark - level) * 1.3
        arrives = start + 50
        low = mark + 38
        points += [(start, mark), (arrives, low), (arrives, low - 118)]
        starts.append((start, arrives))
        x, level = arrives, low - 118
    points.pop()  # the refill at the right edge
    picture.parts.append(f'<path d="M60 {bottom}L' + "L".join(f"{px} {py}" for px, py in points) + f'L{points[-1][0]} {bottom}Z" class="area"/>')
    picture.line(*points, kind="curve")
    picture.line((60, mark), (690, mark), kind="line dash")
    picture.text(66, mark - 6, "watermark", "small")
    for start, arrives in starts[:2]:
        picture.line((start, 236), (arrives, 236), arrow=True)
        picture.line((start, mark), (start, 236), kind="line dash")
    picture.text(starts[0][0] - 70, 254, "the refill is sent, and takes one round trip; draws go on", "small")
    return picture


def crash():
    """A process is killed, and its ids become a gap."""
    picture = Picture("crash", "A process that is killed loses its unused ids, which become a gap; the next process continues above them", 720, 150)
    for n in range(1, 16):
        kind = "one" if n <= 4 else "gap" if n <= 10 else "two"
        picture.box(20 + (n - 1) * 45, 46, 40, 34, kind, str(n), on="on" if kind != "gap" else "small")
    picture.text(20, 32, "process A reserved 1 to 10, and handed out 4 ids")
    picture.text(20 + 10 * 45, 32, "process B continues")
    picture.line((20 + 4 * 45, 92), (20 + 10 * 45 - 6, 92))
    picture.text(20 + 7 * 45, 112, "gap: A was killed", "mid")
    picture.text(20, 138, "The ids 5 to 10 are never handed out. A clean shutdown gives them back.", "small")
    return picture


def restore():
    """A restored store with and without a guard."""
    picture = Picture("restore", "After a restore, a store without a guard grants ids again; with a guard, ids continue above all claims", 720, 250)
    for row, (title, kind, label, after) in enumerate([
        ("without a guard", "bad", "11 to 20\nagain", "duplicates"),
        ("with a guard", "good", "31 to 40", "the witness has claims up to 30"),
    ]):
        y = 20 + row * 118
        picture.text(20, y + 14, title, "bold")
        for n in range(3):
            picture.box(20 + n * 110, y + 26, 104, 40, "one", f"{n * 10 + 1} to {n * 10 + 10}")
        picture.line((127, y + 86), (127, y + 70), arrow=True)
        picture.text(137, y + 90, "the backup was made here", "small")
        picture.line((360, y + 46), (500, y + 46), arrow=True)
        picture.text(430, y + 38, "restored", "mid small")
        picture.box(510, y + 26, 120, 40, kind, label)
        picture.text(510, y + 86, after, "small")
    return picture


def ways():
    """Embedded, through a server, and remote."""
    picture = Picture("ways", "Three ways: the library in your service, a server, and a service that uses a server as its store", 720, 230)
    rows = [
        ("embedded", [("your service\nwith idmill", "one")], "Rust; a draw takes nanoseconds"),
        ("server", [("your service", "box"), ("idmill serve", "one")], "any language; a draw takes a round trip in the network"),
        ("remote", [("your service\nwith idmill-remote", "one"), ("idmill serve", "one")], "Rust; no access to the database; draws from memory"),
    ]
    for row, (title, boxes, note) in enumerate(rows):
        y = 14 + row * 72
        picture.text(20, y + 28, title, "bold")
        x = 120
        for label, kind in boxes:
            picture.box(x, y, 150, 46, kind, label, on="on" if kind == "one" else "")
            picture.line((x + 150, y + 23), (x + 188, y + 23), arrow=True)
            x += 190
        picture.box(x, y, 80, 46, "box", "store", on="")
        picture.text(120, y + 62, note, "small")
    return picture


def order():
    """How to choose an order."""
    picture = Picture("order", "Choose an order: gapless numbers in your transaction; growth everywhere; otherwise per process or thread", 720, 330)
    questions = [
        (20, "May numbers be missing?", "no", "in your transaction", "a row lock for each id"),
        (100, "Must ids grow across processes?", "yes", "Order::Global, or a window", "a round trip for a group of ids"),
        (180, "Must ids grow within a process?", "yes", "Order::Process (default)", "one atomic instruction"),
    ]
    for y, question, answer, choice, cost in questions:
        picture.box(20, y, 260, 44, "box", question, on="")
        picture.line((280, y + 22), (410, y + 22), arrow=True)
        picture.text(345, y + 15, answer, "mid small")
        picture.box(416, y, 284, 44, "one", choice)
        picture.text(558, y + 60, cost, "mid small")
        picture.line((150, y + 44), (150, y + 78), arrow=True)
        picture.text(160, y + 66, "yes" if answer == "no" else "no", "small")
    picture.box(20, 260, 260, 44, "one", "Order::Thread")
    picture.text(150, 321, "a plain increment", "mid small")
    return picture


def throughput():
    """Ids per second by two threads, as measured in docs/performance.md, on a logarithmic scale."""
    picture = Picture("throughput", "Ids per second by two threads: nextval 72 thousand, a mutex 111 million, idmill 185 million to 1.7 billion", 720, 250)
    rows = [
        ("SELECT nextval", 72e3, "72 thousand", "gap"),
        ("nextval, CACHE 1000", 95e3, "95 thousand", "gap"),
        ("a counter in a mutex", 111e6, "111 million", "gap"),
        ("idmill: next().await", 185e6, "185 million", "one"),
        ("idmill: a handle", 208e6, "208 million", "one"),
        ("idmill: a block of 64", 1.7e9, "1.7 billion", "one"),
    ]
    for row, (name, rate, label, kind) in enumerate(rows):
        y, width = 14 + row * 36, round(52 * math.log10(rate / 1e3))
        picture.text(20, y + 18, name)
        picture.box(190, y, width, 26, kind)
        picture.text(198 + width, y + 18, label, "bold" if kind == "one" else "")
    picture.text(190, 240, "ids per second by two threads or clients; each step of the scale is a factor of ten", "small")
    return picture


def main():
    for picture in (ranges(), refill(), crash(), restore(), ways(), order(), throughput()):
        file, text = HERE / f"{picture.name}.svg", picture.svg()
        if "--check" in sys.argv:
            if not file.exists() or file.read_text() != text:
                sys.exit(f"{file} differs: run python3 docs/guide/img/draw.py")
        else:
            file.write_text(text)


main()
