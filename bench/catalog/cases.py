"""The cases that run whole servers: what is asked of one, and what is seen of it."""

import gzip
import http.client
import json
import subprocess
import time

import machine
import rivals
from catalog import servers
from catalog.servers import BARE, COVE, DISK

CONNECTIONS, WRITERS = 16, 16
LISTED, COLUMNS, SNAPSHOTS = 100, 20, 1_000
APPENDS = 200
# A batch of appends may take so many times as long as others: it ends by their number.
APPEND_FACTOR = 5
# Before each batch, and for a server that compiles itself.
SHORT_SECONDS, WARM_SECONDS = 0.3, 4.0
# Of a rival's answers; more than that is no figure.
WRONG_PART_MAX = 0.01
MANY, MANY_QUICK = 100_000, 5_000
MARGIN_SECONDS, MANY_SECONDS_MAX = 120, 240
SETTLE_SECONDS = 1.0
START_SECONDS_MAX = 60
FIRST_ID = 7_000_000_000_000_000_000
FIRST_MS = 1_703_376_000_000
GZIP = {"accept-encoding": "gzip"}


class Failed(Exception):
    """A server gave a wrong answer."""


# --- what there is to read


def schema(columns):
    fields = [
        {"id": i + 1, "name": f"column_{i}", "required": False, "type": "string"}
        for i in range(columns)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def snapshot(index):
    summary = {
        "operation": "append", "spark.app.id": "local-1717171717171", "added-data-files": "1",
        "added-records": "1000", "added-files-size": "48213", "changed-partition-count": "1",
        "total-records": str(index * 1000), "total-files-size": "123456789",
        "total-data-files": str(index), "total-delete-files": "0", "total-position-deletes": "0",
        "total-equality-deletes": "0", "engine-name": "spark", "engine-version": "4.0.1",
    }  # fmt: skip
    found = {
        "sequence-number": index, "snapshot-id": FIRST_ID + index, "schema-id": 0,
        "timestamp-ms": FIRST_MS + index * 1000, "summary": summary,
        "manifest-list": f"s3://warehouse/default/test/metadata/s{FIRST_ID + index}.avro",
    }  # fmt: skip
    if index > 1:
        found["parent-snapshot-id"] = FIRST_ID + index - 1
    return found


def document(location, snapshots):
    """A table of as many snapshots as engines write them."""
    last = FIRST_ID + snapshots
    entry = [
        {"timestamp-ms": FIRST_MS + i * 1000, "snapshot-id": FIRST_ID + i}
        for i in range(1, snapshots + 1)
    ]
    return {
        "format-version": 2, "table-uuid": "550e8400-e29b-41d4-a716-446655440000",
        "location": location, "last-sequence-number": snapshots,
        "last-updated-ms": FIRST_MS + snapshots * 1000, "last-column-id": COLUMNS,
        "current-schema-id": 0, "schemas": [schema(COLUMNS)], "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999,
        "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"owner": "bench"}, "current-snapshot-id": last,
        "refs": {"main": {"snapshot-id": last, "type": "branch"}},
        "snapshots": [snapshot(i) for i in range(1, snapshots + 1)], "snapshot-log": entry,
        "statistics": [], "partition-statistics": [], "metadata-log": [],
    }  # fmt: skip


def register(server, name):
    """Makes a table of a metadata file with many snapshots."""
    place = server.root / "bench" / name
    (place / "metadata").mkdir(parents=True)
    file = place / "metadata" / "00000-550e8400-e29b-41d4-a716-446655440000.metadata.json"
    text = json.dumps(document(f"file://{place}", SNAPSHOTS), separators=(",", ":"))
    file.write_text(text, encoding="utf-8")
    body = {"name": name, "metadata-location": f"file://{file}"}
    server.ask("POST", server.path("namespaces/bench/register"), body)


def fill(server):
    """What all cases read."""
    for name in ("bench", "listed", "made"):
        body = {"namespace": [name], "properties": {"owner": "bench"}}
        server.ask("POST", server.path("namespaces"), body)
    tables = server.path("namespaces/bench/tables")
    server.ask("POST", tables, {"name": "small", "schema": schema(COLUMNS)})
    for number in range(LISTED):
        body = {"name": f"table_{number:03}", "schema": schema(2)}
        server.ask("POST", server.path("namespaces/listed/tables"), body)
    register(server, "thousand")


READS = {
    "load": ("namespaces/bench/tables/small", None),
    "load-gzip": ("namespaces/bench/tables/small", GZIP),
    "thousand": ("namespaces/bench/tables/thousand", None),
    "thousand-gzip": ("namespaces/bench/tables/thousand", GZIP),
    "list": ("namespaces/listed/tables", None),
    "namespace": ("namespaces/bench", None),
}


def bodies(server):
    """What a server answers to each case, for the bare one to answer."""
    found = {}
    for name, (rest, headers) in READS.items():
        body, encoding = server.answer("GET", server.path(rest), headers=headers)
        found[f"/{name}"] = (body, "application/json", encoding)
    return found


def warm(running, server):
    """For servers that compile themselves: in no figure."""
    for rest, headers in READS.values():
        spec = {"requests": [request(server, "GET", server.path(rest), headers=headers)]}
        loaded(running, server, {**spec, "differ": True}, WARM_SECONDS)


def is_right(case, answer):
    """Whether an answer says what it has to."""
    match case.removesuffix("-gzip"):
        case "load":
            return len(answer["metadata"]["schemas"][0]["fields"]) == COLUMNS
        case "thousand":
            found = [it["snapshot-id"] for it in answer["metadata"]["snapshots"]]
            # A server may sort them as it likes.
            return sorted(found) == [FIRST_ID + n for n in range(1, SNAPSHOTS + 1)]
        case "list":
            found = sorted(it["name"] for it in answer["identifiers"])
            return found == [f"table_{n:03}" for n in range(LISTED)]
        case "namespace":
            owner = answer["properties"].get("owner")
            return (answer["namespace"], owner) == (["bench"], "bench")
    return False


# --- load


def loaded(running, server, spec, seconds, connections=CONNECTIONS, limit=MARGIN_SECONDS):
    """Figures of the load generator, with the CPU time of the server."""
    whole = {
        "address": server.address, "connections": connections, "seconds": seconds, "status": 200,
        "first": getattr(server, "next", 1), **spec,
    }  # fmt: skip
    before = machine.tree_cpu_seconds(server.pid)
    done = subprocess.run(
        [running.tool, "load"], input=json.dumps(whole), capture_output=True, text=True,
        timeout=seconds + limit, check=False,
    )  # fmt: skip
    cpu = machine.tree_cpu_seconds(server.pid) - before
    if done.returncode != 0:
        raise Failed(done.stderr.strip()[-300:])
    figures = json.loads(done.stdout)
    server.next = figures["next"]
    wrong = figures["failures"]
    # What another one gets wrong now and then is told beside its figures; Cove must not.
    if wrong and (server.name in (COVE, BARE) or wrong > WRONG_PART_MAX * figures["requests"]):
        examples = figures["failure_examples"][0]
        raise Failed(f"{wrong} wrong beside {figures['requests']}: {examples}")
    if not figures["requests"]:
        raise Failed("no answer in time")
    names = ("requests", "per_second", "p50_us", "p95_us", "p99_us", "bytes")
    found = {name: float(figures[name]) for name in names if figures[name] is not None}
    return {**found, "wrong": wrong, "cpu_us": 1e6 * cpu / figures["requests"]}


def request(server, method, path, body=None, headers=None):
    all_headers = {**server.headers(), **(headers or {})}
    if body is not None:
        all_headers["content-type"] = "application/json"
        body = json.dumps(body, separators=(",", ":"))
    return {"method": method, "path": path, "headers": list(all_headers.items()), "body": body}


def read(running, name, options, add, case):
    """One of `READS`, whose answer is looked at before and after."""
    server = running.get(name)
    rest, headers = READS[case]
    path = f"/{case}" if name == BARE else server.path(rest)
    spec = {"requests": [request(server, "GET", path, headers=headers)]}
    # What another server packs may have another length each time.
    spec["differ"] = bool(headers) and name not in (COVE, BARE)
    is_packed = looked_at(server, path, headers, case)
    # Once before, which is in no figure.
    loaded(running, server, spec, min(options.seconds, SHORT_SECONDS))
    figures = loaded(running, server, spec, options.seconds)
    looked_at(server, path, headers, case)
    if headers and not is_packed:
        figures["note"] = "it packs nothing"
    add("", figures)


def looked_at(server, path, headers, case):
    """Whether an answer, which has to be right, is packed."""
    body, encoding = server.answer("GET", path, headers=headers)
    is_packed = encoding == "gzip"
    if not is_right(case, json.loads(gzip.decompress(body) if is_packed else body)):
        raise Failed(f"{path} is answered with something else")
    if is_packed != bool(headers) and server.name == COVE:
        raise Failed(f"{path} is answered with the encoding {encoding}")
    return is_packed


def load(running, name, options, add):
    """A table of twenty columns."""
    read(running, name, options, add, "load")


def load_gzip(running, name, options, add):
    read(running, name, options, add, "load-gzip")


def thousand(running, name, options, add):
    """A table with a thousand snapshots."""
    read(running, name, options, add, "thousand")


def thousand_gzip(running, name, options, add):
    read(running, name, options, add, "thousand-gzip")


def list_tables(running, name, options, add):
    """A hundred names."""
    read(running, name, options, add, "list")


def load_namespace(running, name, options, add):
    read(running, name, options, add, "namespace")


# --- changes


def sync(running, options, add):
    """How often the disk takes 4 KiB for good: what changes are compared with."""
    seconds = max(round(options.seconds), 1)
    with servers.disk_place() as place:
        done = rivals.run([running.tool, "sync", place, str(seconds)])
    add("", json.loads(done))


def create(running, name, options, add, writers=1):
    """A table of twenty columns that nobody has made."""
    if name == DISK:
        return sync(running, options, add)
    server = running.get(name)
    body = {"name": "t{n}", "schema": schema(COLUMNS)}
    path = server.path("namespaces/made/tables")
    first = getattr(server, "next", 1)
    spec = {"requests": [request(server, "POST", path, body)]}
    figures = loaded(running, server, spec, options.seconds, writers)
    made = json.loads(server.ask("GET", f"{path}/t{first}"))["metadata"]
    if len(made["schemas"][0]["fields"]) != COLUMNS:
        raise Failed("a table that was made is another one")
    return add("", figures)


def create_16(running, name, options, add):
    create(running, name, options, add, WRITERS)


def commit(running, name, options, add, writers=1):
    """A property that is set, each writer on a table of its own."""
    if name == DISK:
        return sync(running, options, add)
    server = running.get(name)
    updates = [{"action": "set-properties", "updates": {"bench": "{n}"}}]
    body = {"requirements": [], "updates": updates}
    paths = [server.path(f"namespaces/listed/tables/table_{n:03}") for n in range(writers)]
    requests = [request(server, "POST", path, body) for path in paths]
    first = getattr(server, "next", 1)
    spec = {"requests": requests, "stay": True}
    figures = loaded(running, server, spec, options.seconds, writers)
    for path in paths:
        seen = json.loads(server.ask("GET", path))["metadata"]["properties"].get("bench", "")
        if not (seen.isdigit() and first <= int(seen) < server.next):
            raise Failed(f"{path} has the property {seen!r}")
    return add("", figures)


def commit_16(running, name, options, add):
    commit(running, name, options, add, WRITERS)


def append(running, name, options, add):
    """A snapshot more for a table with a thousand."""
    server = running.get(name)
    # A table of its own each time, because it grows.
    table = f"grows{time.monotonic_ns()}"
    register(server, table)
    new = {
        "sequence-number": "{n}", "snapshot-id": "{n}", "schema-id": 0,
        "timestamp-ms": FIRST_MS + SNAPSHOTS * 1000 + 500,
        "summary": {"operation": "append"},
        # rustberg takes no file from outside the table's directory.
        "manifest-list": f"file://{server.root}/bench/{table}/metadata/next-" + "{n}.avro",
    }  # fmt: skip
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
    updates = [
        {"action": "add-snapshot", "snapshot": new}, {**ref, "snapshot-id": "{n}"},
    ]  # fmt: skip
    path = server.path(f"namespaces/bench/tables/{table}")
    asked = request(server, "POST", path, {"requirements": [], "updates": updates})
    # Numbers, which JSON has no place for before they are known; a manifest list is named by one.
    asked["body"] = asked["body"].replace('"{n}"', "{n}")
    before, server.next = getattr(server, "next", 1), SNAPSHOTS + 1
    spec = {"requests": [asked], "most": APPENDS}
    figures = loaded(running, server, spec, options.seconds * APPEND_FACTOR, 1)
    server.next = max(before, server.next)
    seen = len(json.loads(server.ask("GET", path))["metadata"]["snapshots"])
    # One may be under way when the time is over.
    if seen - SNAPSHOTS - figures["requests"] not in (0, 1):
        raise Failed(f"{seen} snapshots after {figures['requests']:.0f} appends")
    add("", figures)


# --- the server itself


def start(running, name, options, add):
    """From the start of a process that has been there before to its first answer."""
    with running.new(name) as server:
        rivals.stop(server.process, name)
        began = time.monotonic()
        process = subprocess.Popen(
            server.argv, env=server.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not answers(server):
                if process.poll() is not None or time.monotonic() - began > START_SECONDS_MAX:
                    raise Failed("it did not start again")
                time.sleep(0.001)
            took = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            memory = machine.memory_of(process.pid)
            add("", {"start_ms": 1e3 * took, "rss_mib": memory["rss_kib"] / 1024})
        finally:
            rivals.stop(process, name)


def answers(server):
    connection = http.client.HTTPConnection(server.address, timeout=1)
    try:
        connection.request("GET", f"{server.base}/v1/config", headers=server.headers())
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def memory(running, name, options, add):
    """Many more tables than fit in memory, and one that everybody wants."""
    count = MANY_QUICK if options.quick else MANY
    # Nobody asks what is there after a power cut, and to wait for the disk so often takes long.
    with servers.cove(running.scratch, options, durability="process") as server:
        fill(server)
        hot, headers = READS["load"]
        hot = {"requests": [request(server, "GET", server.path(hot), headers=headers)]}
        loaded(running, server, hot, options.seconds)
        alone = loaded(running, server, hot, options.seconds)
        path = server.path("namespaces/made/tables")
        body = {"name": "m{n}", "schema": schema(COLUMNS)}
        server.next = 0
        spec = {"requests": [request(server, "POST", path, body)], "most": count}
        made = loaded(running, server, spec, MANY_SECONDS_MAX, WRITERS)["requests"]
        if made < count:
            raise Failed(f"{made:.0f} of {count} tables after {MANY_SECONDS_MAX} s")
        each = [request(server, "GET", f"{path}/m{n}") for n in range(count)]
        spec = {"requests": each, "most": count, "stride": True}
        loaded(running, server, spec, MANY_SECONDS_MAX, WRITERS)
        # It may have gone meanwhile.
        loaded(running, server, hot, options.seconds)
        beside = loaded(running, server, hot, options.seconds)
        weight = machine.memory_of(server.pid)
        figures = {"alone_p50_us": alone["p50_us"], "beside_p50_us": beside["p50_us"]}
        add(str(count), {**figures, "rss_mib": weight["rss_kib"] / 1024})
