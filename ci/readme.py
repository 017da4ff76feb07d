"""Runs the `console` blocks of a page in order, in one shell, and compares their output with the page. `readme.py PAGE PORT`

A line `…` stands for any lines. After a command that ends with `&`, this program waits until a server accepts connections on PORT.
If a paragraph ends with a path in backticks and a colon, the next block is written to this file before any command runs.
"""

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PAGE, PORT = Path(sys.argv[1]), int(sys.argv[2])
# The time that a background command has to start listening: cargo may have to compile it first.
MINUTES = 10
END = "--- end of a command ---"


def commands(page):
    """Yields each command of the page, and the lines that follow it."""
    for block in re.findall(r"(?ms)^```console\n(.*?)^```", page):
        for command in re.split(r"(?m)^\$ ", block)[1:]:
            line, *shown = command.splitlines()
            yield line, shown


def write_files(page):
    for name, text in re.findall(r"(?ms)`([\w./-]+)`:\n\n```[\w,]+\n(.*?)^```", page):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def wait_for_server():
    for _ in range(MINUTES * 60 * 10):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", PORT)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"no server accepts connections on port {PORT} after {MINUTES} minutes")


def matches(shown, printed):
    """Returns whether the lines were printed. Ignores the prefix `(integer) `, which redis-cli prints only to a terminal."""
    lines = [".*" if line == "…" else re.escape(line.removeprefix("(integer) ")) for line in shown]
    return re.fullmatch("\n".join(lines), "\n".join(printed), re.DOTALL) is not None


def main():
    page = PAGE.read_text()
    write_files(page)
    shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        for command, shown in commands(page):
            print(f"$ {command}", flush=True)
            shell.stdin.write(f"{command}\nfailed=$?\nprintf '\\n%s %s\\n' '{END}' $failed\n")
            shell.stdin.flush()
            printed = []
            while not (line := shell.stdout.readline().rstrip("\n")).startswith(END):
                if shell.poll() is not None:
                    sys.exit("the shell ended")
                printed.append(line)
            while printed and not printed[-1]:
                printed.pop()
            if line != f"{END} 0" or shown and not matches(shown, printed):
                sys.exit(f"`{command}` ended with {line.split()[-1]}, and printed:\n" + "\n".join(printed))
            if command.endswith("&"):
                wait_for_server()
    finally:
        shell.send_signal(signal.SIGTERM)
        subprocess.run(["pkill", "-TERM", "-s", str(shell.pid)], check=False)


main()
