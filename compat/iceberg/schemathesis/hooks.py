"""Leads requests that Schemathesis makes up to what is there: names that it invents name nothing.

BASE is the server's address with `/catalog`, TOKEN an operator's.
"""

import itertools
import json
import os
import urllib.error
import urllib.request
import uuid

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


# Where the description says less than it means. Every other answer is as it is described.
ERROR = {"$ref": "#/components/schemas/IcebergErrorResponse"}
NOT_FOUND = {"description": "see below", "content": {"application/json": {"schema": ERROR}}}
OAUTH_ERROR = {"$ref": "#/components/schemas/OAuthError"}
TOO_MANY = {"description": "see below", "content": {"application/json": {"schema": OAUTH_ERROR}}}
UNSAID = {
    # A namespace is made in one that is not there. The operation speaks of namespaces of several
    # levels, and not of this; listing those of such a namespace is 404 by the description.
    ("/v1/{prefix}/namespaces", "post"): ("404", NOT_FOUND),
    # A table that is not there, as of all other operations of a table.
    ("/v1/{prefix}/namespaces/{namespace}/tables/{table}/sign", "post"): ("404", NOT_FOUND),
    # Many wrong secrets in a short time.
    ("/v1/oauth/tokens", "post"): ("429", TOO_MANY),
}
KEYS = itertools.count()


def mend(part):
    """Errors of views are described without the envelope that every error has, also by their examples."""
    if isinstance(part, list):
        return [mend(it) for it in part]
    if not isinstance(part, dict):
        return part
    if part.get("$ref") == "#/components/schemas/ErrorModel":
        return ERROR
    return {name: mend(it) for name, it in part.items()}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    for path, operations in raw_schema["paths"].items():
        raw_schema["paths"][path] = mend(operations)
    raw_schema["components"]["responses"] = mend(raw_schema["components"]["responses"])
    for (path, method), (status, answer) in UNSAID.items():
        answers = raw_schema["paths"][path][method]["responses"]
        assert status not in answers, f"{path} says it by now"
        answers[status] = answer


def is_uuid(text):
    try:
        return str(uuid.UUID(text)) == text.lower()
    except (AttributeError, TypeError, ValueError):
        return False


@schemathesis.hook
def before_call(context, case, kwargs):
    for name, known in NAMES.items():
        value = (case.path_parameters or {}).get(name)
        # Which ones depends on nothing but what was made up, so that every run asks the same.
        if value is not None and sum(str(value).encode(errors="replace")) % MADE_UP:
            case.path_parameters[name] = known
    # The description demands another key for another request, and its only example is one key.
    if is_uuid((case.headers or {}).get("Idempotency-Key")):
        case.headers["Idempotency-Key"] = str(uuid.UUID(int=next(KEYS), version=4))


@schemathesis.hook
def after_call(context, case, response):
    """What a request took away is there again for the next one."""
    taken = case.method == "DELETE" or case.operation.path.endswith(("rename", "unregister"))
    if taken and response.status_code < 300:
        make_all()


make_all()
