#!/usr/bin/python3
"""Times of templates: packages beside `uv` alone, a build whose layers are there, a run over one.

    bench/templates.py --binary target/release/cove --uv uv --wheels DIRECTORY --out FILE

Serves the wheels of a directory as a package index on the loopback (made by `pip download numpy
pandas uv -d DIRECTORY`) and has everybody install `numpy` and `pandas` from it: `uv` alone on the
host, into a directory beside the server's; a build with `pip`; a build over a template that
brings `uv`. Round after round in turns, every cache cold, every step run. Then the build with uv
again, whose layers are all there, and executions of `/bin/true` over that template and without one.
Prints medians in milliseconds; exits with 1 when an answer was wrong.

Debian's Python, with pip; root, for sandboxes.
"""

import argparse
import html
import http.server
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import machine
import rivals
from sessions.servers import Cove

HOST = "127.0.0.2"
PACKAGES = ["numpy", "pandas"]
PYTHON = "/usr/bin/python3"
CACHED_BUILDS = 30
RUNS = 200
TABLE = """\
[sessions.templates]
pip_index = "{index}"
internal = ["{host}"]
"""


def pin(wheels):
    """Has everybody install what is there, whatever the host's Python has already."""
    for place, name in enumerate(PACKAGES):
        wheel = next(wheels.glob(f"{name}-*.whl")).name
        PACKAGES[place] = f"{name}=={wheel.split('-')[1]}"


def mirror(wheels):
    """Serves an index (PEP 503) of the wheels of a directory; its address."""
    projects = {}
    for wheel in sorted(wheels.glob("*.whl")):
        projects.setdefault(wheel.name.split("-")[0].replace("_", "-").lower(), []).append(wheel.name)
    missing = {*PACKAGES, "uv"} - set(projects)
    if missing:
        raise SystemExit(f"{wheels} has no wheel of {', '.join(sorted(missing))}")

    class Index(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *arguments):
            super().__init__(*arguments, directory=wheels)

        def do_GET(self):
            project = self.path.removeprefix("/simple/").strip("/")
            if not self.path.startswith("/simple/"):
                super().do_GET()
                return
            links = (f'<a href="/{html.escape(name)}">{html.escape(name)}</a>'
                     for name in projects.get(project, ()))
            page = f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>".encode()
            self.send_response(200 if project in projects else 404)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://{HOST}:{server.server_port}/simple/"


def uv_alone(uv, index, place, compile_bytecode):
    """Milliseconds of `uv` on the host, with nothing in its cache."""
    target, cache = place / "target", place / "cache"
    command = [uv, "pip", "install", "--quiet", "--cache-dir", cache, "--default-index", index,
               "--python", PYTHON, "--prefix", target, "--no-config", *PACKAGES]
    command += ["--compile-bytecode"] if compile_bytecode else []
    began = time.perf_counter()
    subprocess.run(command, check=True)
    took = (time.perf_counter() - began) * 1000
    for made in (target, cache):
        shutil.rmtree(made)
    return took


class Builder:
    """Builds of one server."""

    def __init__(self, server):
        self.server = server

    def build(self, name, packages, **more):
        """Milliseconds of a build of one step, until it is answered."""
        step = {"type": "pip_install", "packages": list(packages)}
        body = {"name": name, "steps": [step], **more}
        began = time.perf_counter()
        build = self.server.call("POST", "/v1/templates?wait=true", body)
        took = (time.perf_counter() - began) * 1000
        if build["status"] != "ready":
            raise SystemExit(f"{name}: {build.get('failure')}")
        return took, [step["cached"] for step in build["steps"]]

    def made(self, name, **more):
        """The same where every step must have run."""
        took, cached = self.build(name, PACKAGES, force=True, **more)
        if any(cached):
            raise SystemExit(f"{name}: {cached}")
        return took

    def cached(self, name, **more):
        """The same where no step may have run."""
        took, cached = self.build(name, PACKAGES, **more)
        if not all(cached):
            raise SystemExit(f"{name}: {cached}")
        return took

    def run(self, argv, **more):
        """Milliseconds of an execution that must end well, and what it wrote."""
        began = time.perf_counter()
        answer = self.server.call("POST", "/v1/executions?wait=true", {"argv": argv, **more})
        took = (time.perf_counter() - began) * 1000
        if answer["verdict"] != "OK":
            raise SystemExit(f"{argv}: {answer}")
        return took, answer["stdout"]


def measure(builder, arguments, index, place):
    """Times of everybody, in turns."""
    _, cached = builder.build("tools", ["uv"])
    times = {name: [] for name in ("uv", "uv-bytecode", "build-pip", "build-uv")}
    for _ in range(arguments.rounds):
        times["uv"].append(uv_alone(arguments.uv, index, place, False))
        times["uv-bytecode"].append(uv_alone(arguments.uv, index, place, True))
        times["build-uv"].append(builder.made("with-uv", **{"from": "tools"}))
        times["build-pip"].append(builder.made("with-pip"))
    times["cached-build"] = [
        builder.cached("with-uv", **{"from": "tools"}) for _ in range(CACHED_BUILDS)
    ]
    imports = "import numpy, pandas; print(pandas.Series(numpy.arange(4)).sum())"
    limits = {"memory_bytes": 1 << 30}
    for template in ("with-uv", "with-pip"):
        _, said = builder.run([PYTHON, "-c", imports], template=template, limits=limits)
        if said != "6\n":
            raise SystemExit(f"{template}: {said!r}")
    for name in ("run-over-template", "run-plain"):
        times[name] = []
    for _ in range(RUNS):
        times["run-over-template"].append(builder.run(["/bin/true"], template="with-uv")[0])
        times["run-plain"].append(builder.run(["/bin/true"])[0])
    return times


def summary(times):
    """Medians and 95th percentiles."""
    def of(values):
        values = sorted(values)
        return {"p50": round(statistics.median(values), 1),
                "p95": round(values[int(len(values) * 0.95)], 1), "count": len(values)}

    return {name: of(values) for name, values in times.items()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--wheels", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main():
    arguments = parse()
    index = mirror(arguments.wheels.resolve())
    pin(arguments.wheels)
    with tempfile.TemporaryDirectory(prefix="cove-bench-") as scratch:
        table = TABLE.format(index=index, host=HOST)
        settings = {"memory_bytes": 1 << 30}
        server = Cove(arguments.binary, scratch, settings, bottom=table)
        try:
            server.start()
            # On the same file system as the server's disks.
            times = measure(Builder(server), arguments, index, server.data.parent)
        finally:
            server.remove()
    figures = {"machine": machine.describe(), "load": machine.load_average(),
               "rounds": arguments.rounds, "ms": summary(times)}
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
