"""Scans planned by a server, beside PyIceberg's own planning of the same tables.

BASE is the server's address with `/catalog`, TOKEN an operator's. Many random filters: what the
server plans has to be what PyIceberg plans itself, and to read the same rows. Ends with `ok`, or
says what is wrong.
"""

import datetime as dt
import json
import os
import random
import urllib.request
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
FILTERS, READ_EVERY = int(os.environ.get("FILTERS", "120")), 20
RANDOM = random.Random(7)

# How manifests are packed; `gzip` is what Avro calls `deflate`.
CODECS = ["gzip", "zstd", "snappy", "null"]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "kind", StringType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "price", DecimalType(9, 2)),
    NestedField(7, "ratio", DoubleType()),
    NestedField(8, "good", BooleanType()),
    NestedField(9, "zoned", TimestamptzType()),
)
START = dt.datetime(2023, 11, 5)
# Tables whose partitions have no nulls.
WITHOUT_NULLS = {"whole", "buckets", "heads"}
NAMES = ["al", "alpha", "alpine", "be", "beta", "bravo", "ce", "", "zulu", "ähre"]


def value(column):
    number = RANDOM.randrange(40)
    return {
        "id": number,
        "name": RANDOM.choice(NAMES),
        "kind": RANDOM.choice("abcd"),
        "at": START + dt.timedelta(hours=7 * number, microseconds=number),
        "day": START.date() + dt.timedelta(days=13 * number),
        "price": Decimal(number * 25 - 300).scaleb(-2),
        "ratio": number / 8 - 2,
        "good": number % 2 == 0,
        "zoned": (START + dt.timedelta(days=number)).replace(tzinfo=dt.timezone.utc),
    }[column]


def rows(count, nulls):
    columns = [field.name for field in SCHEMA.fields]
    made = [{name: value(name) for name in columns} for _ in range(count)]
    for row in made:
        for name in nulls:
            if RANDOM.random() < 0.15:
                row[name] = None
        if RANDOM.random() < 0.1:
            row["ratio"] = float("nan")
    return pa.Table.from_pylist(made, schema=SCHEMA.as_arrow())


def nulls_of(name, fields):
    """The columns of a table that have nulls."""
    kept = {field.source_id for field in fields} if name in WITHOUT_NULLS else set()
    return [field.name for field in SCHEMA.fields[1:] if field.field_id not in kept]


def leaf():
    column = RANDOM.choice([field.name for field in SCHEMA.fields])
    plain = [EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    choice = RANDOM.random()
    if choice < 0.1:
        return RANDOM.choice([IsNull, NotNull])(column)
    if column == "ratio" and choice < 0.3:
        return RANDOM.choice([IsNaN, NotNaN])(column)
    if column == "name" and choice < 0.4:
        return RANDOM.choice([StartsWith, NotStartsWith])(column, RANDOM.choice(["a", "al", "alp", "b", "x"]))
    if choice < 0.55:
        return RANDOM.choice([In, NotIn])(column, {value(column) for _ in range(RANDOM.randrange(1, 4))})
    if column == "good":
        return RANDOM.choice([EqualTo, NotEqualTo])(column, value(column))
    return RANDOM.choice(plain)(column, value(column))


def condition(depth=3):
    choice = RANDOM.random()
    if depth == 0 or choice < 0.3:
        return leaf()
    if choice < 0.45:
        return Not(condition(depth - 1))
    return RANDOM.choice([And, Or])(condition(depth - 1), condition(depth - 1))


def planned(table, row_filter, snapshot=None):
    tasks = table.scan(row_filter, snapshot_id=snapshot).plan_files()
    return {(it.file.file_path, tuple(sorted(d.file_path for d in it.delete_files))) for it in tasks}


def ask(path, body):
    request = urllib.request.Request(f"{BASE}/v1/main/namespaces/plans/tables/{path}", body.encode())
    request.add_header("authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def planned_there(name, row_filter, snapshot=None):
    """As PyIceberg asks for it; it cannot read the answer when a value of a partition is null."""
    request = PlanTableScanRequest(filter=row_filter, snapshot_id=snapshot)
    answers = [ask(f"{name}/plan", request.model_dump_json(by_alias=True, exclude_none=True))]
    assert answers[0]["status"] == "completed", answers[0]
    waiting = list(answers[0].get("plan-tasks", []))
    while waiting:
        answers.append(ask(f"{name}/tasks", json.dumps({"plan-task": waiting.pop()})))
        waiting.extend(answers[-1].get("plan-tasks", []))
    return {
        (
            task["data-file"]["file-path"],
            tuple(sorted(answer["delete-files"][n]["file-path"] for n in task.get("delete-file-references", []))),
        )
        for answer in answers
        for task in answer["file-scan-tasks"]
    }


def rows_of(table, row_filter, snapshot, paths):
    scan = table.scan(row_filter, snapshot_id=snapshot)
    tasks = [task for task in scan.plan_files() if task.file.file_path in paths]
    reader = ArrowScan(table.metadata, table.io, table.schema(), scan.row_filter)
    return len(reader.to_table(tasks))


def ids(table, row_filter):
    return sorted(table.scan(row_filter).to_arrow()["id"].to_pylist())


def compare(own, server, name, snapshot=None):
    fewer = compared = 0
    for turn in range(FILTERS):
        row_filter = condition()
        try:
            expected = planned(own.load_table(f"plans.{name}"), row_filter, snapshot)
        except TypeError:
            # PyIceberg compares the null of a partition with a value. The server may not fail.
            planned_there(name, row_filter, snapshot)
            continue
        compared += 1
        found = planned_there(name, row_filter, snapshot)
        about = f"{name} {row_filter}"
        assert found <= expected, f"{about}: {found - expected} is planned in vain"
        # The server may leave out more, such as by all of what a text begins with. It may not leave
        # out rows.
        if found != expected:
            fewer += 1
            missing = {path for path, _ in expected - found}
            assert missing.isdisjoint(path for path, _ in found), f"{about}: other deletes"
            left_out = rows_of(own.load_table(f"plans.{name}"), row_filter, snapshot, missing)
            assert left_out == 0, f"{about}: {left_out} rows of {missing} are left out"
        if name in WITHOUT_NULLS and snapshot is None and turn % READ_EVERY == 0:
            there = server.load_table(f"plans.{name}")
            assert planned(there, row_filter) == found, about
            assert ids(there, row_filter) == ids(own.load_table(f"plans.{name}"), row_filter), about
    assert fewer < FILTERS // 4 and compared > FILTERS // 4, (name, fewer, compared)


def check_health(catalog, name):
    """The server's figures on a table are those of PyIceberg's own reading of its manifests."""
    request = urllib.request.Request(f"{BASE}/management/v1/main/tables/plans/{name}/stats")
    request.add_header("authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as response:
        health = json.load(response)
    table = catalog.load_table(f"plans.{name}")
    files = table.inspect.files().to_pylist()

    def totals(content):
        of = [it for it in files if it["content"] == content]
        rows, size = (sum(it[key] for it in of) for key in ("record_count", "file_size_in_bytes"))
        return {"files": len(of), "rows": rows, "bytes": size}

    assert health["data"] == totals(0), (name, health["data"])
    assert health["deletes"]["position"] == totals(1), (name, health["deletes"])
    assert sum(it["files"] for it in health["histogram"]) == health["data"]["files"], name
    assert health["snapshots"]["count"] == len(table.snapshots()), name
    manifests = table.current_snapshot().manifests(table.io)
    assert health["manifests"]["count"] == len(manifests), (name, health["manifests"])
    assert health["manifests"]["bytes"] == sum(it.manifest_length for it in manifests), name
    partitions = {(it["spec_id"], str(it["partition"])) for it in files}
    assert health["partitions"]["count"] == len(partitions), (name, health["partitions"])


class DeleteWriter(ManifestWriterV2):
    """Manifests of delete files, which PyIceberg reads but does not write."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def delete_rows(catalog, name):
    """Deletes the first row of each data file of a table by its position."""
    table = catalog.load_table(name)
    io, location = table.io, table.location()
    snapshot = table.current_snapshot()
    path_field = pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"})
    pos_field = pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"})
    new_id = RANDOM.getrandbits(62)
    manifests = snapshot.manifests(io)
    by_partition = {}
    for task in table.scan().plan_files():
        by_partition.setdefault(task.file.partition, []).append(task.file.file_path)
    manifest = io.new_output(f"{location}/metadata/{uuid.uuid4()}-d0.avro")
    with DeleteWriter(table.spec(), table.schema(), manifest, new_id, "deflate") as writer:
        for partition, paths in by_partition.items():
            file = f"{location}/data/{uuid.uuid4()}-deletes.parquet"
            content = pa.table(
                {"file_path": sorted(paths), "pos": [0] * len(paths)}, schema=pa.schema([path_field, pos_field])
            )
            pq.write_table(content, file.removeprefix("file://"))
            deleted = DataFile.from_args(
                content=DataFileContent.POSITION_DELETES,
                file_path=file,
                file_format=FileFormat.PARQUET,
                partition=partition,
                record_count=len(paths),
                file_size_in_bytes=os.path.getsize(file.removeprefix("file://")),
                lower_bounds={2147483546: min(paths).encode()},
                upper_bounds={2147483546: max(paths).encode()},
            )
            deleted.spec_id = table.spec().spec_id
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=new_id, data_file=deleted
            )
            writer.add_entry(entry)
    manifest_file = writer.to_manifest_file()
    sequence = table.metadata.last_sequence_number + 1
    listed = io.new_output(f"{location}/metadata/snap-{new_id}.avro")
    with write_manifest_list(2, listed, new_id, snapshot.snapshot_id, sequence, "deflate") as writer:
        writer.add_manifests([manifest_file] + manifests)
    made = Snapshot(
        snapshot_id=new_id,
        parent_snapshot_id=snapshot.snapshot_id,
        sequence_number=sequence,
        timestamp_ms=int(dt.datetime.now().timestamp() * 1000),
        manifest_list=listed.location,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=snapshot.snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=made),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=new_id),
        ),
    )


def codec_of(table, manifest):
    """What the header of a manifest says that it is packed with."""
    with table.io.new_input(manifest.manifest_path).open() as file:
        header = file.read(64 << 10)
    # A key and its value, each behind its length; short lengths are twice themselves.
    at = header.index(b"avro.codec") + len(b"avro.codec")
    return header[at + 1 : at + 1 + header[at] // 2].decode()


def main():
    own = load_catalog("own", type="rest", uri=BASE, token=TOKEN)
    server = load_catalog("server", type="rest", uri=BASE, token=TOKEN, **{"scan-planning-mode": "server"})
    assert server.supports_server_side_planning() and not own.supports_server_side_planning()
    own.create_namespace("plans")
    specs = {
        "whole": [],
        "kinds": [(3, IdentityTransform()), (8, IdentityTransform())],
        "buckets": [(1, BucketTransform(4)), (2, BucketTransform(3))],
        "heads": [(2, TruncateTransform(2)), (1, TruncateTransform(10)), (6, TruncateTransform(100))],
        "days": [(4, DayTransform()), (5, MonthTransform())],
        "years": [(9, YearTransform()), (4, HourTransform())],
    }
    for name, fields in specs.items():
        fields = [PartitionField(it, 1000 + n, how, f"p{n}") for n, (it, how) in enumerate(fields)]
        table = own.create_table(f"plans.{name}", SCHEMA, partition_spec=PartitionSpec(*fields))
        for codec in CODECS:
            with table.transaction() as change:
                change.set_properties({"write.avro.compression-codec": codec})
            table.append(rows(6, nulls_of(name, fields)))
        written = {codec_of(table, manifest) for manifest in table.current_snapshot().manifests(table.io)}
        assert written == {"deflate", "null", "snappy", "zstandard"}, f"{name}: {written}"
        compare(own, server, name)
    # Another specification from now on, a column that came later, and one that has another name.
    table = own.load_table("plans.kinds")
    with table.update_spec() as update:
        update.remove_field("p0").add_field("day", MonthTransform(), "months")
    table.append(rows(6, ["kind", "day", "price"]))
    compare(own, server, "kinds")
    first = own.load_table("plans.kinds").snapshots()[1].snapshot_id
    compare(own, server, "kinds", first)
    for name in ["whole", "heads"]:
        before = ids(own.load_table(f"plans.{name}"), "id >= 0")
        delete_rows(own, f"plans.{name}")
        assert len(ids(own.load_table(f"plans.{name}"), "id >= 0")) < len(before)
        compare(own, server, name)
    for name in specs:
        check_health(own, name)
    print("ok")


main()
