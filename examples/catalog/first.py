"""Makes a table in the catalog of a server, writes rows and reads some of them back, with PyIceberg.

COVE_TOKEN is a token of the server (`cove token`), COVE_URL its address where that is another one.
The program opens the table's files itself: it needs access to the warehouse's directory or bucket.
"""

import os

import pyarrow as pa
from pyiceberg.catalog import load_catalog

server = os.environ.get("COVE_URL", "http://127.0.0.1:4100")
catalog = load_catalog("cove", type="rest", uri=f"{server}/catalog", token=os.environ["COVE_TOKEN"])
catalog.create_namespace_if_not_exists("shop")
rows = pa.table({"id": [1, 2, 3], "name": ["tea", "salt", "rice"]})
table = catalog.create_table("shop.goods", schema=rows.schema)
table.append(rows)
print(table.scan(row_filter="id > 1").to_arrow().to_pylist())
