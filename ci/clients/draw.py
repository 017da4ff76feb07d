"""Runs the programs in examples/clients while servers are killed, and checks for duplicate ids. `draw.py IDMILL LANGUAGE…`

The programs are built in WORK. Downloads are cached in PACKAGES; Go and Maven use their own caches.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

IDMILL, *LANGUAGES = sys.argv[1:]
CLIENTS = Path("examples/clients").resolve()
TUTORIAL = Path("docs/guide/start/languages.md")
CACHE = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
PACKAGES = Path(os.environ.get("IDMILL_PACKAGES") or f"{CACHE}/idmill/clients")
WORK = Path(tempfile.mkdtemp())
# The timeout is short, so that a locked store is reported soon.
STORE = f"sqlite:{WORK}/ids.db?busy_timeout=200ms"
# Clients connect from 127.0.0.1, so their outgoing ports cannot block the restart of a killed server.
HOST = "127.0.0.2"
# All faults take less time.
SECONDS_OF_RECORDS = 12


def report(kind, what):
    with open(os.environ.get("IDMILL_CI_REPORT", os.devnull), "a") as file:
        print(kind, what, file=file)


def demand(holds, text):
    if not holds:
        raise AssertionError(text)


def call(*command, **options):
    """Returns the output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    demand(done.returncode == 0, f"{command[0]} {command[-1]}: {done.stdout}{done.stderr}")
    return done.stdout


def at_once(most, function, values):
    with ThreadPoolExecutor(most) as pool:
        list(pool.map(function, values))


# How to build and run the clients of each language.


def packages(language, lock, install):
    """Returns the directory with the packages of this lock file. The directory is renamed at the end, so that it is never incomplete."""
    kept = PACKAGES / f"{language}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not kept.is_dir():
        new = kept.with_suffix(f".{os.getpid()}")
        new.mkdir(parents=True)
        install(new)
        new.rename(kept)
    return kept


def prepare_python():
    lock = CLIENTS / "python/requirements.txt"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action", "ignore"]
    kept = packages("python", lock, lambda new: call(*pip, "--require-hashes", "--requirement", lock, "--target", new))
    (WORK / "python").symlink_to(kept)
    cached = {**os.environ, "PYTHONPYCACHEPREFIX": f"{WORK}/pycache"}
    call(sys.executable, "-m", "py_compile", *(CLIENTS / "python").glob("*.py"), env=cached)


def prepare_node():
    def install(new):
        for file in (CLIENTS / "node").glob("package*.json"):
            shutil.copy(file, new)
        call("npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", new)

    # Copy the sources: Node searches for packages next to them.
    shutil.copytree(CLIENTS / "node", WORK / "node", ignore=shutil.ignore_patterns("node_modules"))
    kept = packages("node", CLIENTS / "node/package-lock.json", install)
    (WORK / "node/node_modules").symlink_to(kept / "node_modules")
    for file in (WORK / "node").glob("*.js"):
        call("node", "--check", file)


def prepare_java():
    shutil.copytree(CLIENTS / "java", WORK / "java", ignore=shutil.ignore_patterns("target"))
    maven = ["mvn", "--quiet", "-Dstyle.color=never", "--batch-mode", "--file", WORK / "java/pom.xml"]
    call(*maven, "compile", "dependency:copy-dependencies")


def prepare_go():
    demand(not call("gofmt", "-l", CLIENTS / "go"), "gofmt would change examples/clients/go")
    call("go", "vet", "./...", cwd=CLIENTS / "go")
    call("go", "build", "-mod=readonly", "-o", WORK / "go", ".", cwd=CLIENTS / "go")


def prepare_shell():
    call("bash", "-n", CLIENTS / "shell/idmill.sh")


def command(language):
    trust = os.environ.get("IDS_TRUST")
    store = ["trustStore=" + trust, "trustStorePassword=changeit"] if trust else []
    java = ["java", "-XX:TieredStopAtLevel=1", *(f"-Djavax.net.ssl.{each}" for each in store)]
    return {
        "python": [sys.executable, CLIENTS / "python/main.py"],
        "node": ["node", WORK / "node/main.js"],
        "java": [*java, "-cp", f"{WORK}/java/target/classes:{WORK}/java/target/dependency/*", "Main"],
        "go": [WORK / "go"],
        "shell": [CLIENTS / "shell/main.sh"],
    }[language]


def start(language, *arguments, env, **options):
    python = {"PYTHONPATH": f"{WORK}/python", "PYTHONDONTWRITEBYTECODE": "1"}
    env = {**os.environ, **python, **env}
    return subprocess.run([*command(language), *arguments], env=env, timeout=120, text=True, **options)


class Server:
    """A server over the store. After a restart, the server has the same addresses."""

    all = []

    def __init__(self, name, *options, host=HOST):
        self.log, self.options = WORK / f"{name}.log", options
        self.resp = self.http = f"{host}:0"
        Server.all.append(self)
        self.start()

    def start(self):
        listen = ["--resp", self.resp, "--http", self.http]
        serve = [IDMILL, "serve", "--json", "--store", STORE, "--create=false", "--timeout", "500ms", *listen, *self.options]
        with open(self.log, "a") as log:
            begin = log.tell()
            self.process = subprocess.Popen(serve, stderr=log)
        self.resp = self.address(begin, "Redis protocol is served")
        self.http = self.address(begin, "HTTP is served")

    def address(self, begin, what):
        for _ in range(600):
            said = self.log.read_text()[begin:]
            if found := re.search(f'"{what}".*"address":"([^"]*)"', said):
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"a server did not start: {said}")

    def kill(self):
        """Ends the server with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def env(self, *others):
        servers = [self, *others]
        secure = "s" if "--tls-cert" in self.options else ""
        return {
            "IDMILL_SERVERS": ",".join(f"redis{secure}://{each.resp}" for each in servers),
            "IDMILL_HTTP": ",".join(f"http{secure}://{each.http}" for each in servers),
        }


def draw_through_faults(a, b):
    """All clients draw while servers are killed and the store is locked. Each client starts with one of the servers."""

    def record(language):
        env = (b if language in ("node", "go") else a).env(a, b)
        with open(WORK / f"{language}.ids", "w") as ids, open(WORK / f"{language}.said", "w") as said:
            done = start(language, "record", "orders", str(SECONDS_OF_RECORDS), env=env, stdout=ids, stderr=said)
        demand(done.returncode == 0, f"{language} did not recover: {(WORK / f'{language}.said').read_text()[-900:]}")

    def drawn(language):
        file = WORK / f"{language}.ids"
        return file.exists() and file.stat().st_size > 0

    with ThreadPoolExecutor(len(LANGUAGES)) as pool:
        records = [pool.submit(record, language) for language in LANGUAGES]
        deadline = time.monotonic() + 30
        while not all(map(drawn, LANGUAGES)):
            demand(time.monotonic() < deadline, f"these clients do not draw: {[each for each in LANGUAGES if not drawn(each)]}")
            time.sleep(0.1)
        for server in a, b:
            server.kill()
            time.sleep(1)
            server.start()
        # The lock keeps the servers from writing to the store.
        with closing(sqlite3.connect(WORK / "ids.db", timeout=10, isolation_level=None)) as store:
            store.execute("begin exclusive")
            time.sleep(3)
            store.execute("rollback")
        for each in records:
            each.result()


def compare():
    """Checks the recorded ranges: none overlap, and ranges that name a server increase for each client and server."""
    drawn = []
    for language in LANGUAGES:
        last = {}
        lines = (WORK / f"{language}.ids").read_text().splitlines()
        for line in lines:
            server, low, high = line.split()
            low, high = int(low), int(high)
            if server.isdigit():
                demand(low > last.get(server, 0), f"{language}: ids do not increase: {line} after {last.get(server)}")
                last[server] = high
            drawn.append((low, high, language))
        said = (WORK / f"{language}.said").read_text().strip().split("\n")[-1]
        count = sum(high - low + 1 for low, high, who in drawn if who == language)
        print(f"{count} ids in {language}: {said}")
        demand(language == "shell" or re.fullmatch("[1-9][0-9]* retries", said), f"{language} reports no retry")
        demand(len(lines) >= 20, f"{language} drew only {len(lines)} times")
    drawn.sort()
    for one, other in zip(drawn, drawn[1:]):
        demand(other[0] > one[1], f"duplicate ids: {one} and {other}")
    report("passed", 2)


def ends(language, status, words, *arguments, env):
    """Runs a client, which must end with this status and print a line that matches `words`. Returns the ids."""
    done = start(language, *arguments, env=env, capture_output=True)
    said = f"{language} {' '.join(arguments)}: exit status {done.returncode}: {done.stdout[-300:]}{done.stderr[-600:]}"
    met = re.search(words, done.stdout, re.M) or re.search(words, done.stderr, re.M)
    demand(done.returncode == status and met, f"{said}, expected status {status} and {words}")
    report("passed", 1)
    return [int(id) for id in done.stdout.split()] if status == 0 else []


BIG = []


def check(language, env):
    """Each way of drawing returns the expected ids. `next` and `http` return the expected permanent errors."""
    for way in "many", "block", "take", "http":
        ids = ends(language, 0, "^[0-9]+$", way, "orders", "20", env=env)
        demand(len(ids) == 20 and sorted(set(ids)) == ids, f"{language} {way}: expected 20 increasing ids: {ids}")
        BIG.extend(ends(language, 0, "^90071992547[0-9]+$", way, "big", "2", env=env))
    for name, words in ("nothing", "NOTFOUND"), ("small", "EXHAUSTED"):
        ends(language, 1, words, "next", name, env=env)
        ends(language, 1, words.replace("NOTF", "NOT_F").lower(), "http", name, env=env)


def check_nobody(language):
    """Unreachable servers are retried, until a limit."""
    for way, variable, scheme in ("next", "IDMILL_SERVERS", "redis"), ("http", "IDMILL_HTTP", "http"):
        ends(language, 75, ".", way, "orders", env={variable: f"{scheme}://{HOST}:1,{scheme}://{HOST}:2"})


def check_end():
    """A client that is closed while it connects does not keep its process running."""
    if "node" in LANGUAGES:
        shutil.copy("ci/clients/ends.mjs", WORK / "node")
        for when in "now", "turn", "later":
            call("node", WORK / "node/ends.mjs", when, timeout=60)
            report("passed", 1)


def certificate():
    """Creates a certificate for HOST, and makes the clients trust it."""
    key, cert, trust = (str(WORK / name) for name in ("key.pem", "cert.pem", "trust.p12"))
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    call("openssl", "req", "-x509", *made, "-addext", f"subjectAltName=IP:{HOST}", "-keyout", key, "-out", cert)
    if "java" in LANGUAGES:
        store = ["-storepass", "changeit", "-keystore", trust]
        call("keytool", "-importcert", "-noprompt", "-alias", "idmill", "-file", cert, *store)
        os.environ["IDS_TRUST"] = trust
    os.environ.update(SSL_CERT_FILE=cert, NODE_EXTRA_CA_CERTS=cert, CURL_CA_BUNDLE=cert)
    return ["--tls-cert", cert, "--tls-key", key]


def token(name, sequence):
    """Creates a token and adds it to the servers' file of tokens."""
    made = json.loads(call(IDMILL, "--json", "token", name, "--right", "draw", "--sequence", sequence))
    with open(WORK / "tokens.toml", "a") as file:
        file.write(made["entry"])
    return made["token"]


def check_access():
    """Checks TLS and tokens."""
    good, other = token("good", "ord*"), token("other", "users")
    env = Server("secure", *certificate(), "--tokens", str(WORK / "tokens.toml")).env()

    def each(language):
        for secret, status, resp, http in (
            (good, 0, "^[0-9]+$", "^[0-9]+$"),
            (other, 1, "NOPERM", "denied"),
            ("wrong", 1, "WRONGPASS", "denied"),
        ):
            ends(language, status, resp, "next", "orders", env={**env, "IDMILL_TOKEN": secret})
            ends(language, status, http, "http", "orders", env={**env, "IDMILL_TOKEN": secret})
        ends(language, 1, "NOAUTH", "next", "orders", env=env)

    at_once(2, each, LANGUAGES)


GO = 'package main\nimport ("context"; "fmt"; "github.com/redis/go-redis/v9")\nfunc main() {{\nctx := context.Background()\n{}\n}}\n'


def check_tutorial():
    """Runs the programs of the tutorial. Only the port is replaced, and Go's example is put into a main function."""
    # The examples connect to localhost, not to HOST.
    port = Server("local", host="127.0.0.1").resp.split(":")[1]
    page = TUTORIAL.read_text()

    def snippet(fence):
        language = fence.replace("javascript", "node")
        text = "".join(re.findall(rf"(?ms)^```{fence}\n(.*?)^```", page)).replace("7380", port)
        env = {**os.environ, "PYTHONPATH": f"{WORK}/python", "PYTHONDONTWRITEBYTECODE": "1"}
        if language == "python":
            answer = call(sys.executable, "-", input=text, env=env)
        elif language == "node":
            (WORK / "node/snippet.js").write_text(text)
            answer = call("node", WORK / "node/snippet.js")
        elif language == "java":
            jars = ":".join(map(str, (WORK / "java/target/dependency").glob("*.jar")))
            answer = call("jshell", "--class-path", jars, "-", input=text)
        else:
            shutil.copytree(CLIENTS / "go", WORK / "snippet", ignore=shutil.ignore_patterns("*.go", "idmill"))
            (WORK / "snippet/main.go").write_text(GO.format(text))
            answer = call("go", "run", "-mod=readonly", ".", cwd=WORK / "snippet")
        demand(re.fullmatch(r"[0-9]+( <nil>)?\s*", answer), f"{TUTORIAL}: {fence} prints no id: {answer}")
        report("passed", 1)

    at_once(2, snippet, [each for each in ("python", "javascript", "java", "go") if each.replace("javascript", "node") in LANGUAGES])


def main():
    at_once(2, lambda language: globals()[f"prepare_{language}"](), LANGUAGES)
    for sequence in ["orders"], ["small", "--max", "1"], ["big", "--start", str(2**53 + 1)]:
        call(IDMILL, "create", "--store", STORE, *sequence)
    call(IDMILL, "next", "--store", STORE, "small")
    a, b = Server("a"), Server("b")
    draw_through_faults(a, b)
    compare()
    at_once(2, lambda language: check(language, a.env()), LANGUAGES)
    at_once(9, check_nobody, LANGUAGES)
    demand(len(set(BIG)) == len(BIG), "duplicate ids beyond 2^53")
    check_end()
    check_access()
    check_tutorial()


try:
    main()
except AssertionError as error:
    report("failure", str(error).replace("\n", " "))
    sys.exit(f"FAILED: {error}")
finally:
    for server in Server.all:
        server.process.kill()
    shutil.rmtree(WORK)
