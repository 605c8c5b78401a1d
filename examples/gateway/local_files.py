"""Reads tables of a warehouse that is a directory of the server, with PyIceberg, in a sandbox with a
grant of the kind `catalog`. Tables name their files as `file:///…`; the grant has them at `/files` and
their path, by S3's protocol.

    python3 local_files.py demo.orders
"""

import sys

from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO


class GrantFileIO(PyArrowFileIO):
    """Asks the grant for the files of a directory."""

    def new_input(self, location):
        return super().new_input("s3://files/" + location.removeprefix("file:").lstrip("/"))


def load_table(name):
    table = load_catalog("default").load_table(name)
    table.io = GrantFileIO(table.io.properties)
    return table


if __name__ == "__main__":
    for row in load_table(sys.argv[1]).scan(limit=10).to_arrow().to_pylist():
        print(row)
