"""Tries what a reader of the namespace `shop` may not do. THEIRS is where a table of another
namespace has its metadata. Prints what came of it that should not have, as JSON."""

import http.client
import json
import os

from pyiceberg.catalog import load_catalog

wrong = []
catalog = load_catalog()
table = catalog.load_table("shop.visits")
rows = table.scan().to_arrow()


def refused(name, act):
    try:
        wrong.append(f"{name}: {act()!r}")
    except Exception:
        pass


refused("append", lambda: table.append(rows))
refused("drop", lambda: catalog.drop_table("shop.visits"))
refused("purge", lambda: catalog.purge_table("shop.visits"))
refused("create", lambda: catalog.create_table("shop.new", rows.schema))
refused("namespace", lambda: catalog.create_namespace("new"))
refused("theirs", lambda: catalog.load_table("theirs.t"))
refused("their names", lambda: catalog.list_tables("theirs"))
refused("their file", lambda: table.io.new_input(os.environ["THEIRS"]).open().read())


def ask(method, target, body=None, headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", 8181, timeout=30)
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read()


own = table.metadata_location.removeprefix("s3:/")
folder = own[: own.index("/metadata/")]
theirs = os.environ["THEIRS"].removeprefix("s3:/")
bucket = "/" + own.split("/")[1]
status, content = ask("GET", own)
assert status == 200 and json.loads(content)["location"] == table.location(), (status, own)
targets = [
    ("GET", theirs),
    ("HEAD", theirs),
    ("GET", f"{folder}/..{theirs.removeprefix(bucket)}"),
    ("GET", f"{folder}/../../theirs/t/metadata"),
    ("GET", f"{folder}/%2e%2e/%2e%2e/theirs"),
    ("GET", f"{folder}/%2E%2E%2F%2E%2E%2Ftheirs"),
    ("GET", bucket),
    ("GET", f"{bucket}?list-type=2"),
    ("GET", f"{bucket}?list-type=2&prefix="),
    ("GET", f"{bucket}?list-type=2&prefix=w/"),
    ("GET", f"{bucket}?list-type=2&prefix={theirs.removeprefix(bucket + '/')}"),
    ("GET", f"{bucket}?versions"),
    ("GET", f"{bucket}?policy"),
    ("GET", f"{bucket}?uploads"),
    ("GET", "/"),
    ("GET", f"{own}?acl"),
    ("GET", f"http://127.0.0.1:1{theirs}"),
    ("DELETE", own),
    ("POST", f"{bucket}?delete"),
    ("PUT", f"{folder}/data/new.parquet"),
    ("POST", f"{folder}/data/new.parquet?uploads"),
    ("GET", "/v1/other/namespaces"),
    ("GET", "/v1/lake/namespaces/theirs/tables/t"),
    ("GET", "/v1/lake/namespaces/shop%1Ftheirs/tables/t"),
    ("POST", "/v1/oauth/tokens"),
    ("GET", "/v1/sessions"),
    ("GET", "/api/management/v1/principals"),
]
for method, target in targets:
    status, content = ask(method, target, b"x" if method in ("PUT", "POST") else None)
    # A list of nothing but what was granted is none that tells of others.
    if status < 400 and (b"theirs" in content or method not in ("GET", "HEAD")):
        wrong.append(f"{method} {target}: {status} {content[:200]!r}")
for headers in ({"x-amz-copy-source": theirs}, {"x-amz-copy-source": own}):
    status, content = ask("PUT", f"{folder}/data/copy.parquet", b"", headers)
    if status < 400:
        wrong.append(f"{headers}: {status} {content[:200]!r}")
print(json.dumps(wrong))
