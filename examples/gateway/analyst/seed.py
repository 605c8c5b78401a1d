#!/usr/bin/python3
"""Makes the Iceberg table that the agent reads, from inside a sandbox that may write to it: neither
this program nor whoever runs it has a key of the bucket. See ../README.md."""

from datetime import date, timedelta

import pyarrow
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

NAME = "shop.visits"

catalog = load_catalog()
try:
    catalog.create_namespace("shop")
except NamespaceAlreadyExistsError:
    pass
days = [date(2026, 11, 1) + timedelta(days=n) for n in range(14)]
rows = [
    {"day": day, "product": product, "visits": 20 * product + day.day}
    for day in days
    for product in (1, 2, 3)
]
data = pyarrow.Table.from_pylist(rows)
try:
    table = catalog.load_table(NAME)
except NoSuchTableError:
    table = catalog.create_table(NAME, schema=data.schema)
table.overwrite(data)
print(f"{NAME}: {len(rows)} rows")
