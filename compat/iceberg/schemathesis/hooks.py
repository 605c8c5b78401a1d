"""Leads requests that Schemathesis makes up to what is there: names that it invents name nothing.

BASE is the server's address with `/catalog`, TOKEN an operator's.
"""

import json
import os
import urllib.error
import urllib.request

import schemathesis

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
# Of each kind one name in so many stays as it was made up.
MADE_UP = 5
NAMES = {"prefix": "main", "namespace": "n", "table": "t", "view": "v", "function": "f"}
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
TABLE = {"name": "t", "schema": SCHEMA}
VIEW = {
    "name": "v",
    "schema": SCHEMA,
    "properties": {},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        "default-namespace": ["n"],
    },
}


def make(path, body):
    request = urllib.request.Request(f"{BASE}/v1/main/{path}", json.dumps(body).encode())
    request.add_header("authorization", f"Bearer {TOKEN}")
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        error.close()
        assert error.code == 409, (path, error.code)


def make_all():
    make("namespaces", {"namespace": ["n"]})
    make("namespaces/n/tables", TABLE)
    make("namespaces/n/views", VIEW)


@schemathesis.hook
def before_call(context, case, kwargs):
    for name, known in NAMES.items():
        value = (case.path_parameters or {}).get(name)
        # Which ones depends on nothing but what was made up, so that every run asks the same.
        if value is not None and sum(str(value).encode(errors="replace")) % MADE_UP:
            case.path_parameters[name] = known


@schemathesis.hook
def after_call(context, case, response):
    """What a request took away is there again for the next one."""
    taken = case.method == "DELETE" or case.operation.path.endswith(("rename", "unregister"))
    if taken and response.status_code < 300:
        make_all()


make_all()
