"""PyIceberg with an address and nothing else, where a guest of the catalog comes in.

READER and WRITER are the addresses of two guests that were let in to the namespace `n`; the one
reads, the other one writes. SECRET may be nowhere. Ends with `ok`, or says what is wrong.
"""

import json
import os
import urllib.request

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from pyiceberg.expressions import GreaterThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

READER, WRITER, SECRET = os.environ["READER"], os.environ["WRITER"], os.environ["SECRET"]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "data", StringType(), required=False),
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("data", pa.string())])


def rows(*ids):
    return pa.Table.from_pylist([{"id": it, "data": f"row/{it} ä"} for it in ids], schema=ARROW)


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def refused(kind, act):
    try:
        act()
    except kind as error:
        assert SECRET not in str(error)
        return
    raise AssertionError(f"{kind} was to be raised")


def main():
    reader = load_catalog("cove", uri=READER)
    writer = load_catalog("other", uri=WRITER, type="rest")
    assert writer.list_namespaces() == [("n",)], writer.list_namespaces()

    table = writer.create_table("n.t", SCHEMA)
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    assert ids(reader.load_table("n.t")) == [1, 2, 3, 4]
    found = reader.load_table("n.t").scan(row_filter=GreaterThan("id", 2)).to_arrow()
    assert sorted(found["data"].to_pylist()) == ["row/3 ä", "row/4 ä"], found
    table.overwrite(rows(7), overwrite_filter="id >= 3")
    table.delete("id = 1")
    assert ids(reader.load_table("n.t")) == [2, 7]

    # Values that have to be escaped in names of files, and more than one part of an upload.
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "data"))
    parted = writer.create_table("n.parted", SCHEMA, partition_spec=spec)
    parted.append(rows(*range(5)))
    assert ids(reader.load_table("n.parted")) == [0, 1, 2, 3, 4]
    big = writer.create_table("n.big", SCHEMA)
    text = [os.urandom(500).hex() for _ in range(30_000)]
    big.append(pa.table({"id": pa.array(range(len(text)), pa.int64()), "data": text}, ARROW))
    back = reader.load_table("n.big").scan(selected_fields=("data",)).to_arrow()["data"]
    assert sorted(back.to_pylist()) == sorted(text)

    # A table that is staged, filled and only then made.
    with writer.create_table_transaction("n.staged", SCHEMA) as transaction:
        transaction.append(rows(9))
    assert ids(reader.load_table("n.staged")) == [9]
    writer.rename_table("n.staged", "n.named")
    assert ids(reader.load_table("n.named")) == [9]

    # What was not granted.
    seen = reader.load_table("n.t")
    refused(ForbiddenError, lambda: commit(seen))
    refused(OSError, lambda: seen.append(rows(8)))
    refused(ForbiddenError, lambda: reader.drop_table("n.t"))
    refused(ForbiddenError, lambda: reader.create_table("n.x", SCHEMA))
    refused(ForbiddenError, lambda: writer.create_namespace("m"))
    refused(ForbiddenError, lambda: writer.load_table("other.t"))
    refused(ForbiddenError, lambda: writer.list_tables("other"))
    theirs = os.environ["THEIRS"]
    refused(OSError, lambda: writer.load_table("n.t").io.new_input(theirs).open().read())
    refused(OSError, lambda: put(writer.load_table("n.t").io, f"{theirs}.new"))

    # With the other file system that there is, which some prefer.
    other = load_catalog("fs", uri=WRITER, **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
    if has_s3fs():
        again = other.load_table("n.t")
        again.append(rows(10))
        assert ids(again) == [2, 7, 10]
        big = other.create_table("n.more", SCHEMA)
        big.append(pa.table({"id": pa.array(range(len(text)), pa.int64()), "data": text}, ARROW))
        assert len(ids(other.load_table("n.more"))) == len(text)
        refused((OSError, PermissionError), lambda: again.io.new_input(theirs).open().read())

    writer.purge_table("n.big")
    refused(NoSuchTableError, lambda: reader.load_table("n.big"))
    with urllib.request.urlopen(f"{WRITER}/v1/config") as response:
        told = response.read().decode()
    with urllib.request.urlopen(f"{WRITER}/v1/{json.loads(told)['overrides']['prefix']}"
                                "/namespaces/n/tables/t") as response:
        told += response.read().decode()
    assert SECRET not in told
    print("ok")


def commit(table):
    with table.transaction() as transaction:
        transaction.set_properties(key="value")


def put(io, location):
    with io.new_output(location).create() as file:
        file.write(b"x")


def has_s3fs():
    try:
        import s3fs  # noqa: F401
    except ImportError:
        return False
    return True


main()
