"""Ids from idmill over the Redis protocol, with redis-py: copy this file into a service."""

import os
import random
import threading
import time
import weakref

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# Prefixes of the errors that may not occur on another attempt or another server: the store is unreachable, its reply
# was lost, the server is shutting down, or the server is full. All others (EXHAUSTED, NOTFOUND, NOPERM, …) are
# permanent.
TRANSIENT = ("TRYAGAIN", "UNKNOWN", "CLOSED", "ERR max number of clients")
TRIES = 10  # 3 to 17 seconds in all, if no server is reachable
PAUSE, LONGEST_PAUSE = 0.02, 2.0  # seconds


def code_of(error):
    """The code at the beginning of the server's error, such as NOTFOUND."""
    # redis-py removes the codes that Redis also has, and stores them separately.
    return getattr(error, "status_code", None) or str(error).split(" ", 1)[0]


def is_transient(error):
    # Before ConnectionError, which is its base class in redis-py: a wrong token is a permanent error.
    if isinstance(error, redis.AuthenticationError):
        return False
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        return True
    return code_of(error) in TRANSIENT or str(error).startswith(TRANSIENT)


class Ids:
    """Draws from the first of several servers that answers. Threads may share one.

    A command whose reply was lost is sent again: ids are never handed out twice, so a lost id becomes a gap.
    """

    def __init__(self, urls, token=None):
        self.retries = 0
        self._at = 0
        # One pool for each server. Retries of redis-py would be equally safe. They are disabled, since they would retry
        # the same unreachable server. `rediss://` URLs use TLS.
        self._servers = [
            redis.Redis.from_url(
                url,
                password=token,
                socket_connect_timeout=1,
                socket_timeout=7,  # longer than the server's --timeout (5 s), after which it returns TRYAGAIN
                retry=Retry(NoBackoff(), 0),
            )
            for url in urls
        ]

    def next(self, name):
        """Draws one id."""
        return self._ask(lambda server: server.incr(name))

    def many(self, name, n):
        """Draws ids in one round trip, in increasing order. For more than some hundred, use `take`."""

        def ask(server):
            pipeline = server.pipeline(transaction=False)
            for _ in range(n):
                pipeline.incr(name)
            # Raises the first error. The ids of the other commands become a gap.
            return pipeline.execute()

        return self._ask(ask)

    def block(self, name, n):
        """Draws `n` consecutive ids, as a range: the reply to INCRBY is the last of them."""
        last = self._ask(lambda server: server.incrby(name, n))
        return range(last - n + 1, last + 1)

    def take(self, name, n):
        """Draws `n` ids in as few ranges as possible. Unlike `block`, it skips no ids."""
        ends = self._ask(lambda server: server.execute_command("IDMILL.TAKE", name, n))
        return [range(first, last + 1) for first, last in zip(ends[::2], ends[1::2])]

    @property
    def server(self):
        """The index of the server in use."""
        return self._at

    def _ask(self, command):
        pause = PAUSE
        for attempt in range(1, TRIES + 1):
            at = self._at
            try:
                return command(self._servers[at])
            except redis.RedisError as error:
                if attempt == TRIES or not is_transient(error):
                    raise
            # Switch to the next server, unless another thread already did.
            if self._at == at:
                self._at = (at + 1) % len(self._servers)
            self.retries += 1
            # Random, so that clients do not all retry at the same time when a server is reachable again.
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self):
        for server in self._servers:
            server.close()


_blocks = weakref.WeakSet()


def _forget_blocks():
    for block in list(_blocks):
        block._forget()


# gunicorn with preload, Celery and multiprocessing fork. Windows does not.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_blocks)


class Block:
    """Ids for bulk inserts: drawn a block at a time, handed out from memory. Threads may share one.

    A forked process draws blocks of its own: the ids in memory belong to its parent.

    Choose a `size` that lasts for about one second: unused ids become a gap when the process ends, and are smaller
    than the ids that other processes draw in the meantime.
    """

    def __init__(self, ids, name, size=100):
        self._ids, self._name, self._size = ids, name, size
        self._forget()
        _blocks.add(self)

    def _forget(self):
        self._left = iter(())
        # In a forked process, the old lock may be held by a thread that does not exist there.
        self._lock = threading.Lock()

    def next(self):
        with self._lock:
            for id in self._left:
                return id
            self._left = iter(self._ids.block(self._name, self._size))
            return next(self._left)
