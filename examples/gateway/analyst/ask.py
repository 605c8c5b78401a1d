#!/usr/bin/python3
"""Asks PostgreSQL and an Iceberg table, from inside a sandbox with grants for both.

    ask.py sql STATEMENT       rows of PostgreSQL
    ask.py visits [FILTER]     rows of the Iceberg table `shop.visits`
    ask.py conversion          visits and orders of each product, from both

Rows are lines with tabs; the first line has the names of the columns. There is nothing to configure:
the server has put into the environment where both are, and the sockets say who asks. The packages
`psycopg2` and, for the table, `pyiceberg` with `pyarrow` have to be the host's (see ../README.md).
"""

import sys

TABLE = "shop.visits"


def sql(statement):
    """Names and rows of a statement."""
    import psycopg2

    with psycopg2.connect("") as database, database.cursor() as cursor:
        cursor.execute(statement)
        if cursor.description is None:
            return [], []
        return [column.name for column in cursor.description], cursor.fetchall()


def visits(row_filter=None):
    """Names and rows of the table."""
    from pyiceberg.catalog import load_catalog

    table = load_catalog().load_table(TABLE)
    found = (table.scan(row_filter=row_filter) if row_filter else table.scan()).to_arrow()
    return found.column_names, [tuple(row.values()) for row in found.to_pylist()]


def conversion():
    """Visits and orders of each product."""
    names, rows = visits()
    seen = {}
    for row in rows:
        row = dict(zip(names, row))
        seen[row["product"]] = seen.get(row["product"], 0) + row["visits"]
    _, orders = sql(
        "SELECT p.id, p.name, count(o.id) FROM products p LEFT JOIN orders o ON o.product = p.id"
        " GROUP BY p.id, p.name ORDER BY p.id"
    )
    rows = []
    for product, name, count in orders:
        all_visits = seen.get(product, 0)
        share = f"{100 * count / all_visits:.1f} %" if all_visits else "-"
        rows.append((name, all_visits, count, share))
    return ["product", "visits", "orders", "conversion"], rows


def main(arguments):
    match arguments:
        case ["sql", statement]:
            names, rows = sql(statement)
        case ["visits"]:
            names, rows = visits()
        case ["visits", row_filter]:
            names, rows = visits(row_filter)
        case ["conversion"]:
            names, rows = conversion()
        case _:
            sys.exit(__doc__.strip())
    for row in [names, *rows]:
        print(*row, sep="\t")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:  # One line for whoever reads it, be it a person or a model.
        sys.exit(f"ask.py: {type(error).__name__}: {str(error).strip()[:500]}")
