"""Makes the tables that statements of the tests are about: one of every type, in three files."""

import datetime
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog import load_catalog

UTC = datetime.timezone.utc
orders = pa.schema([
    ("id", pa.int64()),
    ("total", pa.decimal128(10, 2)),
    ("at", pa.timestamp("us", "UTC")),
    ("day", pa.date32()),
    ("tags", pa.list_(pa.string())),
    ("who", pa.struct([("name", pa.string()), ("score", pa.float64())])),
    ("raw", pa.binary()),
    ("ok", pa.bool_()),
    ("f", pa.float64()),
    ("name", pa.string()),
])
when = datetime.datetime(2026, 11, 28, 12, 0, 0, 500_000, UTC)
rows = [
    [
        (1, Decimal("1.10"), when, when.date(), ["a", None], {"name": "x", "score": 1.5},
         b"\x00\xff", True, 0.1, "kettle"),
        (9007199254740993, None, None, None, None, None, None, None, float("nan"), None),
    ],
    [(200, Decimal("20.00"), when, datetime.date(2020, 1, 1), [], None, b"", False, -1.0, 'a "b"')],
    [(300, Decimal("-3.33"), when, datetime.date(2030, 1, 1), ["z"], None, b"z", False, 2.0, "cup")],
]

catalog = load_catalog()
for namespace in [("shop",), ("a",), ("a", "b"), ("v1.2",), ("v1",), ("v1", "2")]:
    catalog.create_namespace(namespace)
table = catalog.create_table(("shop", "orders"), orders)
for part in rows:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*part), orders)]
    table.append(pa.table(columns, schema=orders))
people = pa.table({"id": [1, 300], "city": ["Oslo", "Lima"]})
catalog.create_table(("a", "b", "people"), people.schema).append(people)
for number, levels in enumerate([("v1.2",), ("v1", "2")]):
    one = pa.table({"number": [number]})
    catalog.create_table((*levels, "one"), one.schema).append(one)
print(table.refresh().snapshots()[0].snapshot_id)
