"""Ids from idmill over the Redis protocol, by redis-py as it is: copy this file into a service."""

import random
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# How an error begins that another attempt, or another server, may not meet: the store is away; its answer was
# lost; the server ends; the server is full. All others (EXHAUSTED, NOTFOUND, NOPERM, …) stay until somebody
# changes something.
TRANSIENT = ("TRYAGAIN", "UNKNOWN", "CLOSED", "ERR max number of clients")
TRIES = 10  # about ten seconds in all, where nobody answers
PAUSE, LONGEST_PAUSE = 0.02, 2.0  # seconds


def code_of(error):
    """How the server's error begins, such as NOTFOUND."""
    # redis-py cuts off the codes that Redis has too, and keeps them apart.
    return getattr(error, "status_code", None) or str(error).split(" ", 1)[0]


def is_transient(error):
    # Before ConnectionError, of which redis-py makes it a case: a wrong token stays wrong.
    if isinstance(error, redis.AuthenticationError):
        return False
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        return True
    return code_of(error) in TRANSIENT or str(error).startswith(TRANSIENT)


class Ids:
    """Draws from the first of several servers that answers. Threads may share one.

    A command whose answer was lost is simply sent again: ids are never handed out twice, so the lost one is a gap.
    """

    def __init__(self, urls, token=None):
        self.retries = 0
        self._at = 0
        # One pool for each server. redis-py would repeat commands by itself, as safely; it does not here, since
        # it would insist on a server that is away. `rediss://` URLs speak TLS.
        self._servers = [
            redis.Redis.from_url(
                url,
                password=token,
                socket_connect_timeout=1,
                socket_timeout=7,  # beyond the server's --patience (5 s), after which it answers TRYAGAIN
                retry=Retry(NoBackoff(), 0),
            )
            for url in urls
        ]

    def next(self, name):
        """One id."""
        return self._ask(lambda server: server.incr(name))

    def many(self, name, n):
        """Ids in one round trip, growing. For more than some hundred, `take` is the better way."""

        def ask(server):
            pipeline = server.pipeline(transaction=False)
            for _ in range(n):
                pipeline.incr(name)
            # Raises the first error; what the other commands drew is a gap then.
            return pipeline.execute()

        return self._ask(ask)

    def block(self, name, n):
        """`n` ids in a row, as a range: the answer to INCRBY is the last of them."""
        last = self._ask(lambda server: server.incrby(name, n))
        return range(last - n + 1, last + 1)

    def take(self, name, n):
        """`n` ids in as few ranges as possible. Unlike `block`, this skips nothing."""
        ends = self._ask(lambda server: server.execute_command("IDMILL.TAKE", name, n))
        return [range(first, last + 1) for first, last in zip(ends[::2], ends[1::2])]

    @property
    def server(self):
        """Which server answers, by its place in the list."""
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
            # The next server, unless another thread has gone on already.
            if self._at == at:
                self._at = (at + 1) % len(self._servers)
            self.retries += 1
            # Not all clients at the same time, when a server is back.
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self):
        for server in self._servers:
            server.close()


class Block:
    """Ids for bulk inserts: drawn a block at a time, handed out from memory. Threads may share one.

    What is left in memory when the process ends is a gap, and is smaller than what others draw meanwhile: so
    take no larger blocks than are used within a second or so.
    """

    def __init__(self, ids, name, size=100):
        self._ids, self._name, self._size = ids, name, size
        self._left = iter(())
        self._lock = threading.Lock()

    def next(self):
        with self._lock:
            for id in self._left:
                return id
            self._left = iter(self._ids.block(self._name, self._size))
            return next(self._left)
