"""Draws ids from the command line; see ../README.md."""

import os
import sys
import time
from http.client import HTTPException

import redis

from idmill import Block, Ids, code_of, is_transient
from idmill_http import Problem, draw

TRANSIENT = 75  # EX_TEMPFAIL


def words(variable, default):
    return os.environ.get(variable, default).split(",")


def record(ids, name, seconds):
    """Draws in every way for some seconds, and prints each range with the server that it came from."""
    cache = Block(ids, name, 20)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        first = ids.next(name)
        print(ids.server, first, first)
        for taken in ids.take(name, 30):
            print(ids.server, taken[0], taken[-1])
        block = ids.block(name, 10)
        print(ids.server, block[0], block[-1])
        for id in ids.many(name, 10):
            print(ids.server, id, id)
        for _ in range(25):
            id = cache.next()
            print("block", id, id)
    fork(cache)
    print(ids.retries, "retries", file=sys.stderr)


def fork(cache):
    """Draws from a block of both processes after a fork."""
    cache.next()  # a block with ids in memory
    sys.stdout.flush()
    child = os.fork()
    for _ in range(5):
        id = cache.next()
        print("block", id, id)
    sys.stdout.flush()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def run(ids, token, what, name, n=1):
    if what == "next":
        print(ids.next(name))
    elif what == "many":
        print(*ids.many(name, n), sep="\n")
    elif what == "block":
        print(*ids.block(name, n), sep="\n")
    elif what == "take":
        print(*(id for range_ in ids.take(name, n) for id in range_), sep="\n")
    elif what == "http":
        print(*draw(words("IDMILL_HTTP", "http://localhost:7381"), name, n, token), sep="\n")
    elif what == "record":
        record(ids, name, n)
    else:
        sys.exit(f"usage: {sys.argv[0]} next|many|block|take|http|record NAME [N]")


def main():
    token = os.environ.get("IDMILL_TOKEN")
    ids = Ids(words("IDMILL_SERVERS", "redis://localhost:7380"), token)
    what, name, *n = sys.argv[1:] or ["next", "orders"]
    try:
        run(ids, token, what, name, *map(int, n))
    except redis.RedisError as error:
        print(code_of(error), error, file=sys.stderr)
        sys.exit(TRANSIENT if is_transient(error) else 1)
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(1 if problem.outcome == "permanent" else TRANSIENT)
    except (OSError, HTTPException) as error:
        print(error, file=sys.stderr)
        sys.exit(TRANSIENT)


main()
