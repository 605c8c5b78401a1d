#!/usr/bin/env python3
"""Runs MariaDB's own tests against a server, and against the same server through Cove.

    compat/mariadb/run.py COVE [--suite DIR] [--jobs N] [--out FILE] [TEST...]

COVE is the binary. DIR is `mysql-test` of the Debian packages `mariadb-test` and
`mariadb-test-data`, of the same version as the server; without it, it is taken from
/usr/share/mysql, or the packages (32 MB) are downloaded and unpacked below target/tmp, not
installed. TEST is a name, or a pattern such as `ps_*` or `handler.*`; without one, the parts in
`suite.toml` are run, which takes about an hour.

A test is a script for `mariadb-test` with the text that it shall give. Each runs directly, as the
test suite's external mode would, and if it passes, through Cove in session mode and in transaction
mode; what fails there is tried once more with servers that have just been started. The exit code
tells whether anything failed that `suite.toml` has no reason for.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import queue
import re
import shlex
import shutil
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ["mariadb-test", "mariadb-test-data", "libpcre2-posix3"]
INSTALLED = Path("/usr/share/mysql/mysql-test")
SHARE = Path("/usr/share/mysql")
MODES = ["session", "transaction"]
# What a test of the parts that are run needs at most, with room for a busy machine.
SECONDS = 150
START_SECONDS = 60
PASSED, SKIPPED = 0, 62
# Who may run servers that refuse to run as root.
NOBODY = "nobody"

# What the test suite starts its server with, as far as results depend on it; it says so in
# include/default_mysqld.cnf, which is read.
SETTINGS = [
    "skip-name-resolve",
    "skip-ssl",
    "innodb-use-native-aio=0",
    "innodb-flush-log-at-trx-commit=0",
    "innodb-doublewrite=0",
    "sync-frm=0",
    "max-connections=151",
]

# How a script connects without a password: `connect (con1,localhost,user,,db)`.
NAME = r"""['"]?(\w+)['"]?"""
HOST = r"""['"]?[\w.$]*['"]?"""
CONNECT = re.compile(
    rf"connect\s*\(?\s*[\w$]+\s*,\s*{HOST}\s*,\s*{NAME}\s*(?:[,);]\s*(?:[,);]|$)|$)", re.M
)
CHANGE = re.compile(r"""change_user\s+['"]?(\w+)['"]?\s*(?:;|,\s*[,;])""")

# Everything that a test may leave behind and the next one would see.
STATE = """
SELECT GROUP_CONCAT(schema_name ORDER BY 1) FROM information_schema.schemata;
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ('test', 'mysql');
SELECT COUNT(*) FROM mysql.proc;
SELECT COUNT(*) FROM mysql.event;
SELECT COUNT(*) FROM mysql.servers;
SELECT COUNT(*) FROM mysql.plugin;
SELECT GROUP_CONCAT(user, '@', host ORDER BY 1) FROM mysql.global_priv;
SELECT COUNT(*) FROM mysql.db;
SELECT COUNT(*) FROM mysql.innodb_table_stats WHERE database_name = 'test';
SELECT COUNT(*) FROM mysql.table_stats;
SHOW CREATE DATABASE test;
SELECT variable_name, variable_value FROM information_schema.global_variables
  WHERE variable_name NOT LIKE 'gtid%'
  AND variable_name NOT IN ('TIMESTAMP', 'INNODB_BUFFER_POOL_LOAD_NOW');
"""


def free_port():
    """A port of loopback that nobody has now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, ready, process):
    """Waits for a server's state."""
    end = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{what} does not come up")
        time.sleep(0.05)


def stop(process):
    """Ends a server that owes nobody anything."""
    if process is not None:
        process.kill()
        process.wait()


class Suite:
    """Where the tests are, and what they are run with."""

    def __init__(self, directory):
        self.directory = directory
        self.program = shutil.which("mariadb-test")
        unpacked = directory.parents[2] / "bin" / "mariadb-test"
        if unpacked.is_file():
            self.program = str(unpacked)
        self.libraries = sorted(directory.parents[2].glob("lib/*-linux-gnu"))
        if self.program is None:
            sys.exit("there is no mariadb-test")

    def names(self):
        """Every test, as `suite.name`; those of `main` by their names alone."""
        for test in sorted(self.directory.glob("main/*.test")):
            yield test.stem
        for test in sorted(self.directory.glob("suite/*/t/*.test")):
            yield f"{test.parents[1].name}.{test.stem}"
        for test in sorted(self.directory.glob("suite/*/*.test")):
            yield f"{test.parent.name}.{test.stem}"
        for test in sorted(self.directory.glob("suite/*/*/t/*.test")):
            yield f"{test.parents[2].name}/{test.parents[1].name}.{test.stem}"

    def files(self, name):
        """The script of a test and its result."""
        suite, _, stem = name.rpartition(".")
        if not suite:
            base = self.directory / "main"
            return base / f"{stem}.test", base / f"{stem}.result"
        base = self.directory / "suite" / suite
        if (base / "t").is_dir():
            return base / "t" / f"{stem}.test", base / "r" / f"{stem}.result"
        return base / f"{stem}.test", base / f"{stem}.result"

    def options(self, name):
        """What a test wants its server started with; nothing to be had where it wants more."""
        script, _ = self.files(name)
        if any(script.with_name(script.stem + end).exists() for end in [".cnf", "-master.sh"]):
            return None
        options = []
        for end in [".opt", "-master.opt"]:
            path = script.with_name(script.stem + end)
            options += shlex.split(path.read_text(errors="replace")) if path.exists() else []
        return tuple(options)


    def users(self, name):
        """Whom a test connects as without a password. Cove lets nobody in by `auth_query` who has
        none, so its configuration says that they are to be trusted."""
        text = self.files(name)[0].read_text(errors="replace")
        return frozenset(["root", *CONNECT.findall(text), *CHANGE.findall(text)])


def unpacked_suite():
    """The suite of the packages, which are kept unpacked beside what is built."""
    if INSTALLED.is_dir() and shutil.which("mariadb-test"):
        return INSTALLED
    home = HERE.parents[1] / "target" / "tmp" / "mariadb-test"
    made = home / "root"
    if not made.is_dir():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=home, check=True)
        half = home / "half"
        for package in home.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, half], check=True)
            package.unlink()
        half.rename(made)
    return made / "usr/share/mysql/mysql-test"


class Place:
    """A MariaDB server, and a Cove in front of it, for one test at a time."""

    def __init__(self, suite, cove, seed, home):
        self.suite, self.cove, self.seed, self.home = suite, cove, seed, home
        self.maria = self.bouncer = None
        self.clean = None
        self.options, self.users = (), frozenset()
        self.ports = {}

    def start(self):
        """Both, from the beginning."""
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)
        for name in ["var/tmp", "var/log", "var/run", "var/mysqld.1", "sockets"]:
            (self.home / name).mkdir(parents=True)
        copy = ["cp", "-r", "--preserve=mode,ownership", "--reflink=auto"]
        for path in [self.home, *self.home.rglob("*")]:
            path.chmod(0o777)
        subprocess.run([*copy, self.seed, self.data()], check=True)
        self.ports = {mode: free_port() for mode in ["direct", *MODES]}
        self.start_maria()
        self.start_cove()
        self.clean = self.state()

    def data(self):
        return self.home / "var/mysqld.1/data"

    def sockets(self, mode):
        return self.home / "sockets" / f"{mode}.sock"

    def start_maria(self):
        """The server, with the settings that results depend on."""
        settings = self.home / "my.cnf"
        defaults = self.suite.directory / "include/default_mysqld.cnf"
        text = defaults.read_text().replace("@ENV.MYSQLTEST_VARDIR", str(self.home / "var"))
        text = text.replace("@ENV.MYSQL_TEST_DIR", str(self.suite.directory))
        lines = [*SETTINGS, f"datadir={self.data()}", f"socket={self.sockets('direct')}"]
        lines += [f"port={self.ports['direct']}", "bind-address=127.0.0.1", "basedir=/usr"]
        lines += [f"tmpdir={self.home}/var/tmp", f"pid-file={self.home}/var/run/pid", "server-id=1"]
        lines += [f"plugin-dir={self.plugins()}"] if self.plugins() else []
        settings.write_text(text + "\n[mysqld]\n" + "\n".join(lines) + "\n")
        command = [mariadbd(), f"--defaults-file={settings}"]
        command += [f"--user={NOBODY}"] if os.geteuid() == 0 else []
        names = {"MYSQLTEST_VARDIR": self.home / "var", "MYSQL_TEST_DIR": self.suite.directory}
        command += [string.Template(it).safe_substitute(names) for it in self.options]
        with open(self.home / "var/log/mariadbd.log", "wb") as log:
            self.maria = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.home)
        until("MariaDB", lambda: self.sql("SELECT 1") is not None, self.maria)

    def plugins(self):
        found = self.suite.directory.parents[2] / "lib/mysql/plugin"
        return None if found == Path("/usr/lib/mysql/plugin") else None

    def start_cove(self):
        """One tenant for each mode, at a socket and a port of its own."""
        for mode in MODES:
            self.sockets(mode).unlink(missing_ok=True)
        lines = ["[bouncer]", 'listen = ""', f'mysql.listen = "127.0.0.1:{free_port()}"']
        lines += ["threads = 1", "health.interval_s = 0"]
        for mode in MODES:
            for listen in [self.sockets(mode), f"127.0.0.1:{self.ports[mode]}"]:
                lines += ["[[bouncer.bound]]", f'listen = "{listen}"']
                lines += [f'tenant = "{mode}"', 'engine = "mysql"']
        users = ", ".join(f'{{ name = "{user}", auth = "trust" }}' for user in sorted(self.users))
        for mode in MODES:
            lines += [
                "[[bouncer.tenants]]",
                f'name = "{mode}"',
                'engine = "mysql"',
                f'server = "{self.sockets("direct")}"',
                'database = "information_schema"',
                f'pool_mode = "{mode}"',
                f"users = [{users}]",
                'auth_query = { user = "inspector", password = "inspector" }',
                "local_infile = true",
                "limits.server_connections_max = 60",
                # Scripts wait until the server has as many connections as before.
                "limits.server_idle_s = 0.5",
            ]
        path = self.home / "cove.toml"
        path.write_text("\n".join(lines) + "\n")
        command = [self.cove, "bouncer", "--config", path]
        with open(self.home / "var/log/cove.log", "wb") as log:
            self.bouncer = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.home)
        sockets = [self.sockets(mode) for mode in MODES]
        until("Cove", lambda: all(path.exists() for path in sockets), self.bouncer)

    def sql(self, text):
        """What the server answers directly, or nothing where it does not."""
        command = ["mariadb", "--no-defaults", "-uroot", "-N", "-B"]
        command.append(f"--socket={self.sockets('direct')}")
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        self.said = done.stderr
        return done.stdout if done.returncode == 0 else None

    def state(self):
        return self.sql(STATE)

    def environment(self, mode):
        """What scripts ask of the test suite's own environment."""
        var, test = self.home / "var", self.suite.directory
        client = f"--no-defaults --user=root --socket={self.sockets(mode)}"
        more = {
            "MYSQL_TEST_DIR": test,
            "MYSQLTEST_VARDIR": var,
            "MYSQLTEST_REAL_VARDIR": var,
            "MYSQL_TMP_DIR": var / "tmp",
            "MYSQL_BINDIR": "/usr",
            "MYSQL_SHAREDIR": SHARE / "english",
            "MYSQL_CHARSETSDIR": SHARE / "charsets",
            "SECURE_LOAD_PATH": test / "std_data",
            "MYSQL_TEST_LOGIN_FILE": var / "tmp/.mylogin.cnf",
            "MASTER_MYPORT": self.ports[mode],
            "MASTER_MYSOCK": self.sockets(mode),
            "SLAVE_MYPORT": self.ports[mode],
            "SLAVE_MYSOCK": self.sockets(mode),
            "DEFAULT_MASTER_PORT": 3306,
            "USE_RUNNING_SERVER": 1,
            "MYSQL": f"mariadb {client}",
            "MYSQL_DUMP": f"mariadb-dump {client}",
            "MYSQL_CHECK": f"mariadb-check {client}",
            "MYSQL_SHOW": f"mariadb-show {client}",
            "MYSQL_IMPORT": f"mariadb-import {client}",
            "MYSQLADMIN": f"mariadb-admin {client}",
            "MYSQL_TEST": f"{self.suite.program} {client}",
            "EXE_MYSQL": shutil.which("mariadb"),
            # Where a package that is not installed has its libraries.
            "LD_LIBRARY_PATH": ":".join(map(str, self.suite.libraries)),
            "LC_ALL": "C",
            "TZ": "GMT-3",
        }
        return {**os.environ, **{name: str(value) for name, value in more.items()}}

    def run(self, name, mode, protocol):
        """One test in one way: whether it passed, and what was said."""
        script, result = self.suite.files(name)
        var = self.home / "var"
        settings = self.home / "client.cnf"
        settings.write_text(
            f"[client]\nsocket={self.sockets(mode)}\nport={self.ports[mode]}\nuser=root\n"
            f"character-sets-dir={SHARE}/charsets\n"
        )
        command = [self.suite.program, f"--defaults-file={settings}", "--silent", "--database=test"]
        command += [f"--tmpdir={var}/tmp", f"--logdir={var}/log", f"--timer-file={var}/log/timer"]
        command += [f"--test-file={script}", f"--character-sets-dir={SHARE}/charsets"]
        command += [f"--{protocol}-protocol"] if protocol else []
        command += [f"--result-file={result}"] if result.exists() else []
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.suite.directory,
            env=self.environment(mode),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=SECONDS)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            code = 1
            said += b"\ntimeout"
        verdict = {PASSED: "passed", SKIPPED: "skipped"}.get(code, "failed")
        text = said.decode("utf-8", "replace")
        seconds = round(time.monotonic() - began, 2)
        return {"verdict": verdict, "seconds": seconds, "said": text[-20000:]}

    def fresh(self, options, users):
        """Makes sure that nothing is left of the test before, and that it has what it needs."""
        is_other = options != self.options
        is_clean = self.clean is not None and not is_other and self.state() == self.clean
        self.options = options
        if not is_clean or self.bouncer.poll() is not None:
            self.users = users
            self.start()
        elif users != self.users:
            self.users = users
            stop(self.bouncer)
            self.start_cove()

    def stop(self):
        stop(self.bouncer)
        stop(self.maria)
        self.bouncer = self.maria = None


def mariadbd():
    return shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")


def routines(script):
    """The test suite's own routines, in the dialect of the command line."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    text = "\n".join(lines).replace("delimiter ||;", "delimiter ||")
    return text.replace("delimiter ;||", "delimiter ;")


def make_seed(suite, home):
    """A data directory with what the test suite's own has."""
    data = home / "seed"
    home.chmod(0o755)
    command = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
    command += ["--skip-test-db", "--skip-name-resolve", f"--datadir={data}", "--basedir=/usr"]
    command += ["--innodb-use-native-aio=0", "--innodb-log-file-size=10M"]
    command += ["--innodb-data-file-path=ibdata1:12M:autoextend"]
    command += [f"--user={NOBODY}"] if os.geteuid() == 0 else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    include = suite.directory / "include"
    sql = [
        "CREATE DATABASE test CHARACTER SET latin1 COLLATE latin1_swedish_ci;",
        "DELETE FROM mysql.global_priv WHERE user = '';",
        "ALTER TABLE mysql.gtid_slave_pos ENGINE=Aria transactional=0;",
        "CREATE DATABASE mtr CHARACTER SET latin1 COLLATE latin1_swedish_ci; USE mysql;",
        (SHARE / "mysql_test_data_timezone.sql").read_text(),
        "CREATE USER inspector@localhost IDENTIFIED BY 'inspector';",
        "GRANT SELECT ON mysql.* TO inspector@localhost;",
    ]
    first = Place(suite, None, data, home / "first")
    for name in ["var/tmp", "var/log", "var/run", "sockets"]:
        (first.home / name).mkdir(parents=True)
    for path in [first.home, *first.home.rglob("*")]:
        path.chmod(0o777)
    (first.home / "var/mysqld.1").mkdir()
    data.rename(first.data())
    first.ports = {"direct": free_port()}
    first.start_maria()
    scripts = [(include / name).read_text() for name in ["mtr_warnings.sql", "mtr_check.sql"]]
    for text in ["\n".join(sql), *map(routines, scripts)]:
        if first.sql(text) is None:
            first.stop()
            sys.exit(f"no seed of the data directory: {first.said.decode()}")
    first.maria.terminate()
    first.maria.wait()
    first.data().rename(data)
    shutil.rmtree(first.home)
    return data


def run_test(place, name, protocol, modes):
    """A test in all its ways."""
    ways = {}
    needs = place.suite.options(name), place.suite.users(name)
    place.fresh(*needs)
    ways["direct"] = place.run(name, "direct", protocol)
    if ways["direct"]["verdict"] == "passed" and ways["direct"]["seconds"] < SECONDS / 6:
        for mode in modes:
            place.fresh(*needs)
            ways[mode] = place.run(name, mode, protocol)
            if ways[mode]["verdict"] != "passed":
                ways[mode]["cove_log"] = (place.home / "var/log/cove.log").read_text()[-3000:]
                place.start()
                if place.run(name, mode, protocol)["verdict"] == "passed":
                    ways[mode]["verdict"] = "flaky"
                place.clean = None
    if ways["direct"]["verdict"] == "failed":
        place.clean = None
    return {"test": name, "ways": ways}


def chosen(suite, wanted):
    """Names of tests, in their order."""
    names = list(suite.names())
    main = [it for it in wanted if "." not in it]
    others = [it for it in wanted if "." in it]
    found = [name for it in main for name in fnmatch.filter(names, it) if "." not in name]
    found += [name for it in others for name in fnmatch.filter(names, it)]
    return list(dict.fromkeys(found))


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("cove", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--protocol", choices=["ps", "cursor", "sp", "view"])
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_intermixed_args()
    suite = Suite((options.suite or unpacked_suite()).resolve())
    known = tomllib.loads((HERE / "suite.toml").read_text())
    names = chosen(suite, options.tests or known["parts"])
    names = [name for name in names if suite.options(name) is not None]
    reasons = {name: reason for reason, names in known["reasons"].items() for name in names}
    results = {}
    home = Path(tempfile.mkdtemp(prefix="cove-mariadb-"))
    places = queue.Queue()
    out = open(options.out, "a", encoding="utf-8") if options.out else None
    try:
        seed = make_seed(suite, home)
        for job in range(options.jobs):
            places.put(Place(suite, options.cove, seed, home / str(job)))

        def one(name):
            place = places.get()
            try:
                return run_test(place, name, options.protocol, options.mode or MODES)
            except Exception as error:
                place.stop()
                place.clean = None
                return {"test": name, "ways": {}, "error": repr(error)}
            finally:
                places.put(place)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            futures = [pool.submit(one, name) for name in names]
            for future in concurrent.futures.as_completed(futures):
                done = future.result()
                ways = done["ways"].items()
                words = [f"{way}: {it['verdict']} {it['seconds']}" for way, it in ways]
                print(done["test"], *words, done.get("error", ""), flush=True)
                results[done["test"]] = done
                if out:
                    print(json.dumps(done), file=out, flush=True)
    finally:
        while not places.empty():
            places.get().stop()
        shutil.rmtree(home, ignore_errors=True)
    sys.exit(0 if told(results, reasons, options.mode or MODES) else 1)


def told(results, reasons, modes):
    """Counts what passed, and names what did not; whether each of those has a reason."""
    passed = [it["ways"] for it in results.values() if set(modes) <= set(it["ways"])]
    print(f"\n{len(results)} tests, of which {len(passed)} pass directly")
    for mode in modes:
        count = sum(ways[mode]["verdict"] in ("passed", "flaky") for ways in passed)
        print(f"{count} of them pass in {mode} mode")
    is_known = True
    for name, done in sorted(results.items()):
        bad = [mode for mode in modes if done["ways"].get(mode, {}).get("verdict") == "failed"]
        if bad:
            is_known &= name in reasons
            reason = reasons.get(name, "for no known reason")
            print(f"{name}: not in {' and '.join(bad)} mode: {reason}")
    return is_known


if __name__ == "__main__":
    main()
