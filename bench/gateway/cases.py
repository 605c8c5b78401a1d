"""The cases: what one operation is, what is timed of it, and what must be true of its outcome.

A case gets what runs (`Running`), the number of the round, and `add(key, rival, turn, figures)` for
its rows. The client checks each answer; what is wrong is a failure, and in no latency.
"""

import base64
import contextlib
import json
import threading
import time

from bouncer.wire import Client
from gateway.servers import CLIENT, DATABASE, PASSWORD, USER, arguments, outside, postgres
from sessions.servers import until
from sessions.wire import Refused

INSIDE, OUTSIDE, DIRECT = "inside", "outside, through the bouncer", "outside, direct"
# Who is without grants, and with which.
PLAIN, ONE, THREE = "without", "postgres", "postgres, mysql, http"
SHOP = {"kind": "postgres", "tenant": "shop"}
JUDGE = {"kind": "mysql", "tenant": "judge"}
SERVERS_OUTSIDE = {"kind": "http", "rules": [{"hosts": ["api.example.com"]}]}
NAMES = {"postgres": "PostgreSQL", "mysql": "MariaDB"}
POSTGRES_INSIDE, MYSQL_INSIDE = "127.0.0.1:5432", "127.0.0.1:3306"

# Batches of each rival in a round, which follow each other closely: what else the machine does
# meets all of them.
TURNS, TURNS_QUICK = 10, 3
TRIPS, TRIPS_QUICK = 3000, 500
CREATES, CREATES_QUICK = 40, 5
POOLED, READY = "pooled", 1

SANDBOXES, CONNECTIONS = 200, 5
# To start all clients and to connect them, before they begin together.
START_SECONDS = 10
THINK_MS = 500
SLEEP = "SELECT ? FROM pg_sleep(0.005)"
SAMPLE_SECONDS = 0.05
# A hundredth quantile of each sandbox wants some seconds.
FAIR_SECONDS_FACTOR, FAIR_SECONDS_FACTOR_QUICK = 10, 6
CALLS = {
    # What each connection does, and what the first sandbox does beside it.
    "select, no pause": ({}, {}),
    "5 ms in the server, no pause": ({"statement": SLEEP}, {}),
    "select, 500 ms between": ({"think_ms": THINK_MS}, {"think_ms": THINK_MS}),
    "the same beside a flood": ({"think_ms": THINK_MS}, {"churners": 1}),
}
FLOODED, CALM = "the same beside a flood", "select, 500 ms between"


# --- a round trip


def select(running, number, options, add):
    """`SELECT 1` over one connection: in a sandbox, outside, and without Cove in between."""
    trips = TRIPS_QUICK if options.quick else TRIPS
    for turn in range(TURNS_QUICK if options.quick else TURNS):
        for database in running.databases():
            ways = trip_ways(running, database, trips)
            running.order.shuffle(ways)
            for rival, ask in ways:
                figures = metered(running, database, ask)
                add(NAMES[database.name], rival, (number, turn), figures)


def trip_ways(running, database, trips):
    """The three ways of the same client to a database."""
    server, protocol = running.server(), database.name
    is_postgres = protocol == "postgres"
    port = server.port if is_postgres else server.mysql_port
    tenant = "shop" if is_postgres else "judge"

    def words(address, **more):
        return arguments(protocol, address, trips=trips, **more)

    bouncer = words(f"127.0.0.1:{port}", password=PASSWORD, database=tenant)
    direct = words(f"127.0.0.1:{database.port}", password=PASSWORD)
    inside = words(POSTGRES_INSIDE if is_postgres else MYSQL_INSIDE)
    session = running.session(SHOP if is_postgres else JUDGE)
    return [
        (INSIDE, lambda: asked_inside(server, [(session, inside)])[0]),
        (OUTSIDE, lambda: asked_outside(running.client, [bouncer])[0]),
        (DIRECT, lambda: asked_outside(running.client, [direct])[0]),
    ]


def metered(running, database, ask):
    """What a client says of itself, and the CPU time of servers for each answer."""
    server = running.server()
    before = server.cpu_us(), database.cpu_us()
    figures = ask()
    after = server.cpu_us(), database.cpu_us()
    answers = max(figures["answers"], 1)
    cove, theirs = ((b - a) / answers for a, b in zip(before, after, strict=True))
    cpu = {"cove_cpu_us": cove, "database_cpu_us": theirs}
    return {**figures, **cpu, "client_cpu_us": figures["cpu_us"] / answers}


def asked_inside(server, clients):
    """What the clients of sandboxes say, all at the same time."""
    requests = [
        server.wire.bytes_of(*server.exec_request(session, [f"./{CLIENT}", *words]))
        for session, words in clients
    ]
    answers = server.wire.all_at_once(requests)
    return [said(answer) for answer in answers]


def said(answer):
    if isinstance(answer, Exception):
        raise answer
    done = answer.json()
    if done["exit_code"] != 0:
        raise Refused(f"the client ended with {done}"[:400])
    return complete(json.loads(done["stdout"]))


def asked_outside(client, clients):
    """What clients outside of sandboxes say, all at the same time."""
    processes = [outside(client, words) for words in clients]
    texts = [process.communicate() for process in processes]
    for process, (_, error) in zip(processes, texts, strict=True):
        if process.returncode != 0:
            raise Refused(f"the client ended with {process.returncode}: {error.decode()}"[:400])
    return [complete(json.loads(out)) for out, _ in texts]


def complete(figures):
    """A client's figures, with what follows from them."""
    seconds, answers = figures["seconds"], figures["answers"]
    return {**figures, "per_second": answers / seconds if seconds else None}


# --- what a grant costs


def create(running, number, options, add):
    """Sessions and executions with and without grants, one at a time and in turns."""
    server, n = running.server(), CREATES_QUICK if options.quick else CREATES
    grants = {PLAIN: [], ONE: [SHOP], THREE: [SHOP, JUDGE, SERVERS_OUTSIDE]}
    if not running.has_mariadb():
        del grants[THREE]
    check_execution(running)
    for key, one in (
        ("session", one_session),
        ("session, its sandbox ready", one_ready_session),
        ("execution", one_execution),
    ):
        rows = {rival: {"times_us": [], "answered_us": [], "cpu_us": []} for rival in grants}
        # The first of each has what is made once.
        for turn in range(-1, n):
            rivals = list(grants)
            running.order.shuffle(rivals)
            for rival in rivals:
                before = server.cpu_us()
                took, answered = one(running, grants[rival], turn % 10 == 0)
                if turn >= 0:
                    row = rows[rival]
                    row["times_us"].append(took)
                    row["answered_us"].append(answered)
                    row["cpu_us"].append(server.cpu_us() - before)
        for rival, row in rows.items():
            add(key, rival, (number, 0), {**row, "wrong": 0})


def one_session(running, grants, is_checked, **more):
    """Microseconds of making a session, and until its first program has answered."""
    server = running.server()
    created = server.wire.call("POST", "/v1/sessions", {"grants": grants, **more})
    session = server.created(created)
    try:
        # Nothing that would take time of its own.
        first = server.wire.call(*server.exec_request(session, ["/bin/true"]))
        if first.json()["exit_code"] != 0:
            raise Refused(f"{session} does not work: {first.body!r}")
        if is_checked:
            server.upload(session, CLIENT, running.content)
            for words in checks(grants):
                check(asked_inside(server, [(session, words)])[0])
    finally:
        server.end(session)
    return created.microseconds, created.microseconds + first.microseconds


def one_ready_session(running, grants, is_checked):
    """The same where a sandbox waits for it."""
    server = running.server()
    until(lambda: server.is_ready(READY), "a full pool")
    return one_session(running, grants, is_checked, agent=POOLED)


def one_execution(running, grants, _is_checked):
    """Microseconds of an execution of a program that does nothing."""
    server = running.server()
    body = {"argv": ["/bin/true"], "grants": grants}
    answer = server.wire.call("POST", "/v1/executions?wait=true", body)
    if answer.json()["verdict"] != "OK":
        raise Refused(f"an execution ended with {answer.body!r}"[:400])
    return answer.microseconds, answer.microseconds


def checks(grants):
    """What clients ask for to see that a grant of a database leads there."""
    places = {"postgres": POSTGRES_INSIDE, "mysql": MYSQL_INSIDE}
    kinds = [grant["kind"] for grant in grants if grant["kind"] in places]
    return [arguments(kind, places[kind], trips=1, value=4711) for kind in kinds]


def check(figures):
    if figures["answers"] != 1 or figures["wrong"] or figures["refused"]:
        raise Refused(f"a grant leads nowhere: {figures}"[:400])


def check_execution(running):
    """An execution with a grant reaches its database."""
    content = base64.b64encode(running.content).decode()
    file = {"name": CLIENT, "content": content, "encoding": "base64", "executable": True}
    [words] = checks([SHOP])
    body = {"argv": [f"./{CLIENT}", *words], "files": [file], "grants": [SHOP]}
    result = running.server().call("POST", "/v1/executions?wait=true", body)
    check(json.loads(result["stdout"]))


# --- two hundred sandboxes


def fair(running, number, options, add):
    """Sandboxes with five connections each, on a tenant with twenty to its server."""
    with sandboxes(running) as sessions:
        for key, (others, first) in CALLS.items():
            add(key, INSIDE, (number, 0), shared(running, options, sessions, others, first))
    with postgres(running.scratch) as alone:
        address, at = f"127.0.0.1:{alone.port}", starting()
        words = clients_words(options, address, {}, {}, at=at, password=PASSWORD)
        told = asked_outside(running.client, words)
        add(next(iter(CALLS)), DIRECT, (number, 0), together(told, told))


@contextlib.contextmanager
def sandboxes(running):
    """As many sessions as there are to be, each with the client in its workspace."""
    server, made = running.server(), []
    try:
        for _ in range(SANDBOXES):
            made.append(server.session([SHOP]))
            server.upload(made[-1], CLIENT, running.content)
        yield made
    finally:
        for session in made:
            server.end(session)


def shared(running, options, sessions, others, first):
    """One load of all sandboxes, of which the first one may do something else."""
    server, database = running.server(), running.postgres()
    words = clients_words(options, POSTGRES_INSIDE, others, first, at=starting())
    before = server.cpu_us(), database.cpu_us()
    with peak(database) as connections:
        told = asked_inside(server, list(zip(sessions, words, strict=True)))
    after = server.cpu_us(), database.cpu_us()
    answers = max(sum(one["answers"] for one in told), 1)
    cove, theirs = ((b - a) / answers for a, b in zip(before, after, strict=True))
    figures = {"cove_cpu_us": cove, "database_cpu_us": theirs, **connections()}
    # One that may do something else is not among those that are looked at.
    return {**figures, **together(told, told[bool(first) :])}


def clients_words(options, address, others, first, at, **more):
    """The arguments of each sandbox's client. Its answers are numbers that no other has."""
    factor = FAIR_SECONDS_FACTOR_QUICK if options.quick else FAIR_SECONDS_FACTOR
    seconds = options.seconds * factor
    words = {"connections": CONNECTIONS, "seconds": seconds, "at_ms": at, **more}
    each = [first or others, *[others] * (SANDBOXES - 1)]
    return [
        arguments("postgres", address, value=100_000 + 100 * position, **words, **does)
        for position, does in enumerate(each)
    ]


def starting():
    """The hour at which all begin, as the client takes it."""
    return int((time.time() + START_SECONDS) * 1000)


def together(told, counted):
    """Figures of many sandboxes as those of one load, and how unlike they are."""
    p99s = sorted(one["p99_us"] for one in counted if one["p99_us"] is not None)
    figures = {
        "sandboxes": len(counted),
        "served": sum(one["answers"] > 0 for one in counted),
        "answers": sum(one["answers"] for one in told),
        "wrong": sum(one["wrong"] for one in told),
        "refused": sum(one["refused"] for one in told),
        "late": sum(one["is_late"] for one in told),
        "connects": sum(one["connects"] for one in told),
        "examples": sorted({text for one in told for text in one["examples"]})[:3],
        "per_second": sum(one["per_second"] or 0 for one in told),
        "client_cpu_us": sum(one["cpu_us"] for one in told)
        / max(sum(one["answers"] for one in told), 1),
    }
    if p99s:
        middle = p99s[len(p99s) // 2]
        figures |= {
            "p99_least_us": p99s[0],
            "p99_middle_us": middle,
            "p99_most_us": p99s[-1],
            "spread": p99s[-1] / p99s[0],
            "spread_to_middle": p99s[-1] / middle,
            "connect_most_us": max(one["connect_max_us"] or 0 for one in counted),
        }
    middles = sorted(one["p50_us"] for one in counted if one["p50_us"] is not None)
    if middles:
        figures["p50_us"] = middles[len(middles) // 2]
    return figures


@contextlib.contextmanager
def peak(database):
    """Counts the connections of the tenant's role on its server, again and again."""
    stopped, counts = threading.Event(), []
    text = (
        "SELECT count(*) FROM pg_stat_activity"
        f" WHERE usename = '{USER}' AND datname = '{DATABASE}'"
    )

    def look():
        with Client(database, unix=True, database="postgres") as client:
            while not stopped.wait(SAMPLE_SECONDS):
                counts.append(int(client.query(text)[0][0]))

    def figures():
        return {"server_connections": max(counts), "looks": len(counts)}

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield figures
    finally:
        stopped.set()
        thread.join()
