"""PyIceberg against the catalog of a server.

BASE is its address with `/catalog`, TOKEN an operator's. Ends with `ok`, or says what is wrong.
"""

import json
import multiprocessing
import os
import urllib.request

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
WRITERS, APPENDS = 3, 4

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "data", StringType(), required=False),
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("data", pa.string())])


def rows(*ids):
    return pa.Table.from_pylist([{"id": it, "data": f"row {it}"} for it in ids], schema=ARROW)


def refused(kind, act):
    try:
        act()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was to be raised")


def manage(path, body):
    request = urllib.request.Request(f"{BASE}/management/v1/{path}", json.dumps(body).encode())
    request.add_header("authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as response:
        text = response.read()
    return json.loads(text) if text else None


def namespaces(catalog):
    catalog.create_namespace("one", {"owner": "me"})
    catalog.create_namespace(("one", "two"))
    refused(NamespaceAlreadyExistsError, lambda: catalog.create_namespace("one"))
    refused(NamespaceNotEmptyError, lambda: catalog.drop_namespace("one"))
    assert catalog.list_namespaces() == [("one",)], catalog.list_namespaces()
    assert catalog.list_namespaces("one") == [("one", "two")], catalog.list_namespaces("one")
    changed = catalog.update_namespace_properties("one", {"owner"}, {"team": "a"})
    assert (changed.removed, changed.updated) == (["owner"], ["team"]), changed
    assert catalog.load_namespace_properties("one") == {"team": "a"}
    catalog.drop_namespace(("one", "two"))
    assert not catalog.namespace_exists(("one", "two"))


def table(catalog):
    made = catalog.create_table("one.t", SCHEMA)
    refused(TableAlreadyExistsError, lambda: catalog.create_table("one.t", SCHEMA))
    made.append(rows(1, 2))
    made.append(rows(3))
    assert sorted(catalog.load_table("one.t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    made.overwrite(rows(4))
    again = catalog.load_table("one.t")
    assert again.scan().to_arrow()["id"].to_pylist() == [4]
    first = again.snapshots()[0].snapshot_id
    assert sorted(again.scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == [1, 2]
    with again.update_schema() as update:
        update.add_column("more", LongType(), "a column that came later")
        update.rename_column("data", "text")
    again = catalog.load_table("one.t")
    assert again.schema().column_names == ["id", "text", "more"], again.schema()
    assert again.scan().to_arrow().to_pylist() == [{"id": 4, "text": "row 4", "more": None}]
    with again.transaction() as transaction:
        transaction.set_properties(colour="red")
    with again.manage_snapshots() as snapshots:
        snapshots.create_tag(first, "beginning").create_branch(first, "side")
    again = catalog.load_table("one.t")
    assert again.properties["colour"] == "red"
    assert {"main", "beginning", "side"} <= set(again.refs()), again.refs()
    catalog.rename_table("one.t", "one.u")
    refused(NoSuchTableError, lambda: catalog.load_table("one.t"))
    location = catalog.load_table("one.u").metadata_location
    catalog.drop_table("one.u")
    catalog.register_table("one.u", location)
    assert catalog.load_table("one.u").scan().to_arrow()["id"].to_pylist() == [4]
    catalog.purge_table("one.u")
    assert not catalog.table_exists("one.u")


def staged(catalog):
    with catalog.create_table_transaction("one.staged", SCHEMA) as transaction:
        assert not catalog.table_exists("one.staged")
        transaction.set_properties(made="at once")
    assert catalog.load_table("one.staged").properties["made"] == "at once"
    catalog.drop_table("one.staged")


def evolved(catalog):
    """A specification that changes, rows that are deleted and replaced by their key."""
    made = catalog.create_table("one.evolved", SCHEMA)
    made.append(rows(1, 2, 3))
    with made.update_spec() as update:
        update.add_field("id", IdentityTransform(), "shard")
    made.append(rows(4, 5))
    made = catalog.load_table("one.evolved")
    assert {it["spec_id"] for it in made.inspect.files().to_pylist()} == {0, 1}
    made.delete("id == 2")
    with made.update_schema() as update:
        update.set_identifier_fields("id")
    newer = pa.Table.from_pylist([{"id": 1, "data": "newer"}, {"id": 9, "data": "row 9"}], schema=ARROW)
    done = made.upsert(newer)
    assert (done.rows_updated, done.rows_inserted) == (1, 1), done
    found = {it["id"]: it["data"] for it in catalog.load_table("one.evolved").scan().to_arrow().to_pylist()}
    assert found == {1: "newer", 3: "row 3", 4: "row 4", 5: "row 5", 9: "row 9"}, found
    made.manage_snapshots().create_tag(made.current_snapshot().snapshot_id, "last").commit()
    made.overwrite(rows(7), overwrite_filter="id >= 4")
    assert sorted(made.scan().to_arrow()["id"].to_pylist()) == [1, 3, 7]
    assert sorted(made.scan().use_ref("last").to_arrow()["id"].to_pylist()) == [1, 3, 4, 5, 9]
    with made.update_spec() as update:
        update.remove_field("shard")
    assert not catalog.load_table("one.evolved").spec().fields
    catalog.drop_table("one.evolved")


def write(writer):
    """What one of several processes does."""
    own = connect(token=TOKEN)
    for number in range(APPENDS):
        while True:
            try:
                own.load_table("one.shared").append(rows(writer * APPENDS + number))
                break
            except CommitFailedException:
                # Somebody else was faster: from what there is now on.
                continue


def writers(catalog):
    """Each append of each process is there in the end, and once."""
    catalog.create_table("one.shared", SCHEMA)
    # Not forked: libraries have threads.
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(it,)) for it in range(WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [it.exitcode for it in processes] == [0] * WRITERS, processes
    shared = catalog.load_table("one.shared")
    found = sorted(shared.scan().to_arrow()["id"].to_pylist())
    assert found == list(range(WRITERS * APPENDS)), found
    assert len(shared.snapshots()) == WRITERS * APPENDS, len(shared.snapshots())


def rights(catalog):
    """A client of the catalog's own sees what it was given, and nothing else."""
    made = manage("clients", {"name": "reader"})
    credential = f"{made['client-id']}:{made['client-secret']}"
    own = connect(credential=credential)
    refused(ForbiddenError, lambda: own.load_table("one.shared"))
    grant = {"principal": made["principal"], "namespace": ["one"], "rights": ["read"]}
    manage("main/grants", grant)
    assert own.load_table("one.shared").scan().to_arrow().num_rows == WRITERS * APPENDS
    refused(ForbiddenError, lambda: own.load_table("one.shared").append(rows(100)))
    refused(ForbiddenError, lambda: own.create_namespace("other"))
    refused(ForbiddenError, lambda: own.drop_table("one.shared"))


def connect(**properties):
    return load_catalog("cove", type="rest", uri=BASE, warehouse="main", **properties)


def main():
    catalog = connect(token=TOKEN)
    for step in (namespaces, table, staged, evolved, writers, rights):
        step(catalog)
        print(step.__name__)
    print("ok")


if __name__ == "__main__":
    main()
