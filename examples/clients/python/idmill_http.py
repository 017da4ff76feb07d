"""Ids from idmill over HTTP, with the standard library: copy this file into a service."""

import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request

TRIES = 10
PAUSE, LONGEST_PAUSE = 0.02, 2.0  # seconds


class Problem(Exception):
    """An error of the server, in the format of RFC 9457.

    `kind` is the kind of error (`not_found`, `exhausted`, `denied`, …). `outcome` decides whether to retry: you may
    retry `transient` and `unknown`, which costs a gap at most; `permanent` errors stay until their cause is removed.
    """

    def __init__(self, error):
        try:
            said = json.load(error)
        except ValueError:  # perhaps from a proxy
            said = {}
        self.status = error.code
        self.kind = said.get("kind", "unknown")
        self.outcome = said.get("outcome", "transient" if error.code in (429, 502, 503, 504) else "permanent")
        self.retry_after = float(error.headers.get("Retry-After") or 0)
        super().__init__(f"{self.kind}: {said.get('detail', error.reason)}")


def draw(servers, name, n=1, token=None):
    """Draws `n` ids from the first of these servers (`http://…` or `https://…`) that answers."""
    path = f"/v1/sequences/{urllib.parse.quote(name, safe='')}/ids?n={n}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    pause = PAUSE
    for attempt in range(TRIES):
        server = servers[attempt % len(servers)]
        request = urllib.request.Request(server + path, method="POST", headers=headers)
        try:
            # Longer than the server's --timeout (5 s), after which it returns 503.
            with urllib.request.urlopen(request, timeout=7) as answer:
                # Ids beyond 2^53 are strings, since some programs would round numbers.
                return [int(id) for id in json.load(answer)["ids"]]
        except urllib.error.HTTPError as error:
            problem = Problem(error)
            if problem.outcome == "permanent" or attempt == TRIES - 1:
                raise problem from None
            # Retry-After applies only after a round: another server may have ids in memory.
            wait = problem.retry_after if (attempt + 1) % len(servers) == 0 else 0
        except (OSError, http.client.HTTPException):
            if attempt == TRIES - 1:
                raise
            wait = 0
        # Random, so that clients do not all retry at the same time when a server is reachable again.
        time.sleep(wait + pause * random.uniform(0.5, 1))
        pause = min(2 * pause, LONGEST_PAUSE)
