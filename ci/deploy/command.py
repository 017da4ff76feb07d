"""Checks that the command accepts the settings in a copy of deploy/. `command.py CHECK COPY IDMILL`"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

import yaml

CHECK, HOME, IDMILL = sys.argv[1:]
WITHOUT = {name: value for name, value in os.environ.items() if name != "IDMILL_STORE"}


def text(name):
    with open(f"{HOME}/{name}") as file:
        return file.read()


def every():
    """Yields the text of each file."""
    for folder, _, names in os.walk(HOME):
        yield from (text(os.path.relpath(os.path.join(folder, name), HOME)) for name in names)


def run(args, env={}):
    args = [*args, *(["--check"] if args[0] == "serve" else [])]
    ran = subprocess.run([IDMILL, *args], cwd=HOME, env={**WITHOUT, **env}, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{args} {env}: {ran.stderr}")


def defaults(value):
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


def kubernetes():
    kinds = {each["kind"]: each for each in yaml.safe_load_all(text("kubernetes/idmill.yaml"))}
    with open(f"{HOME}/map.toml", "w") as file:
        file.write(kinds["ConfigMap"]["data"]["idmill.toml"])
    return kinds


def settings():
    run(["serve", "--config", "idmill.toml"])


def config_map():
    """The command accepts the settings in the ConfigMap."""
    kubernetes()
    run(["serve", "--store", "memory:", "--config", "map.toml"])


def variables():
    """The command has each environment variable in the files: the command would ignore an unknown variable."""
    help = [[IDMILL, "serve", "--help"], [IDMILL, "--help"]]  # the second has the global options
    known = "".join(subprocess.run(each, capture_output=True, text=True).stdout for each in help)
    for name in sorted({name for each in every() for name in re.findall("IDMILL_[A-Z_]+", each)}):
        if not re.search(rf"env: {name}(=|\])|\${name}\b", known):
            sys.exit(f"no variable {name}")


def metrics():
    """The rules and the dashboard use only metrics that docs/guide/metrics.md lists. Tests check that page, except the server's metrics."""
    with open("docs/guide/metrics.md") as page:
        listed = set(re.findall(r"^\| `(idmill_\w+)`", page.read(), re.M))
    listed |= {f"{name}_bucket" for name in listed}
    for name in ("prometheus/idmill.rules.yaml", "prometheus/idmill.test.yaml", "grafana/idmill.json"):
        if unknown := set(re.findall(r"idmill_\w+", text(name))) - listed:
            sys.exit(f"{name}: no metrics {unknown}")


def dashboard():
    """Prints the queries of the dashboard as rules, for the parser of Prometheus."""
    queries = [target["expr"] for panel in json.loads(text("grafana/idmill.json"))["panels"] for target in panel["targets"]]
    # `idmill serve` exports quantiles, and other exporters have buckets.
    for form in ("idmill_reserve_seconds{", "idmill_reserve_seconds_bucket{"):
        assert any(form in query for query in queries), f"no query for {form}"
    rules = [{"record": "query", "expr": query.replace("$__rate_interval", "1m"), "labels": {"number": str(number)}}
             for number, query in enumerate(queries)]
    yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)


def urls():
    """The command parses each store URL in these files, comments included."""
    for url in sorted({url for each in every() for url in re.findall(r"\b[a-z]+://[^ \n\"']+", each)}):
        if not url.startswith(("http:", "https:")):
            run(["serve"], {"IDMILL_STORE": defaults(url)})


def commands():
    """Each command line runs with its environment: `serve` with --check, other commands over a new store."""
    for service in yaml.safe_load(text("compose.yaml"))["services"].values():
        if service["image"] == "idmill":
            env = {name: defaults(value) for name, value in service["environment"].items()}
            run(["serve"], env)
            command = service.get("command", ["serve"])
            run(command, env if command[0] == "serve" else {"IDMILL_STORE": "sqlite:new.db"})
    kinds = kubernetes()
    for container in kinds["Deployment"]["spec"]["template"]["spec"]["containers"]:
        secrets = kinds["Secret"]["stringData"]
        env = {each["name"]: secrets[each["valueFrom"]["secretKeyRef"]["key"]] for each in container["env"]}
        run(["map.toml" if arg == "/etc/idmill/idmill.toml" else arg for arg in container["args"]], env)
    started = re.search(r"^ExecStart=\S+ (.*)$", text("systemd/idmill.service"), re.M)[1]
    run(started.replace("/etc/idmill/", "").split())
    tried = re.search(r"^#   docker run .*?IDMILL_STORE=(\S+) idmill \\\n#\s+(.*)$", text("Dockerfile"), re.M)
    run(tried[2].split(), {"IDMILL_STORE": tried[1]})


def probes():
    """The probes and health checks succeed on a real server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([IDMILL, "serve", "--store", "sqlite:probed.db", "--resp=none", f"--http=127.0.0.1:{port}"],
                              cwd=HOME, env=WITHOUT, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        for container in kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"]:
            paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
            for path in paths:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
        for service in yaml.safe_load(text("compose.yaml"))["services"].values():
            if service["image"] == "idmill" and "test" in (check := service["healthcheck"]):
                command = [part.replace("$$", "$").replace("7381", str(port)) for part in check["test"][1:]]
                subprocess.run(command, check=True, timeout=5)
    finally:
        server.terminate()
        server.wait()


def wait_for(port):
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit("the server does not start within 10 s")


globals()[CHECK]()
