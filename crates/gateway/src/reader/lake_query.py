"""Runs one SQL statement over tables of an Iceberg catalog, to read.

The server starts this in a session's sandbox. DuckDB computes, over Arrow data that PyIceberg
reads: columns and filters that DuckDB pushes down decide what is read. DuckDB itself opens no
file and no connection, and its settings are locked before it sees the statement. The request is
JSON on standard input; the answer is lines of JSON on standard output: `{"columns": …}`, a list of
texts for each row, and `{"end": …}` or `{"error": …}` last.
"""

import json
import os
import re
import sys

# What packages print is not part of the answer.
ANSWER = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
os.dup2(2, 1)

# Tables that one statement may name.
TABLES_MAX = 100
# Tables that `SHOW TABLES` lists.
LISTED_MAX = 10_000
# Rows that are taken from DuckDB at a time.
FETCH_ROWS = 256
# Semicolons at the end of a text among which the end of the statement is looked for.
SEMICOLONS_MAX = 16
# Schemas that are DuckDB's own and not the catalog's.
OWN_SCHEMAS = {"information_schema", "pg_catalog"}
# Types whose values have parts.
NESTED = ("STRUCT", "MAP", "UNION", "JSON", "VARIANT")

# One condition of a filter as Arrow prints it. Anything else prunes nothing.
CONDITION = re.compile(
    r"\((?P<field>\w+) (?P<op>==|>=|<=|>|<) (?P<value>\"[^\"\\]*\"|[^()\"]+)\)"
    r"|is_valid\((?P<valid>\w+)\)"
)
# A sign of a namespace's name as it is written: `\.` is a dot within a level, `\\` a backslash.
LEVEL_SIGN = re.compile(r"\\[.\\]|.", re.DOTALL)
# Values of a condition, by the Iceberg type of its column. Floating-point columns are left out:
# statistics do not count NaN, which DuckDB sorts above all numbers.
VALUES = {
    "int": re.compile(r"-?\d+"),
    "long": re.compile(r"-?\d+"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "string": re.compile(r"\"[^\"\\]*\""),
}


class Failure(Exception):
    """Why there is no result, with its kind: `refused` is for what is never run, `statement` and
    `parameters` for what the caller can mend, `missing` for packages, `catalog` for all else."""

    def __init__(self, kind, message, code=None):
        super().__init__(message)
        self.kind, self.code = kind, code


def as_line(document):
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def answer(document):
    ANSWER.write(as_line(document))


def packages():
    """Imports what the session has to bring."""
    for name in ("duckdb", "pyarrow", "pyiceberg"):
        try:
            __import__(name)
        except ImportError as error:
            raise Failure("missing", f"{name}: {error}", name) from error


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def levels_of(name):
    """Levels of a namespace: dots divide them, but for those behind a backslash."""
    levels = [""]
    for sign in LEVEL_SIGN.findall(name):
        if sign == ".":
            levels.append("")
        else:
            levels[-1] += sign[-1]
    return tuple(levels)


def namespace_name(levels):
    """The name of a namespace that [`levels_of`] divides again."""
    signs = {".": "\\.", "\\": "\\\\"}
    return ".".join("".join(signs.get(sign, sign) for sign in level) for level in levels)


def nodes(tree):
    """Yields every object of a parsed statement."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def constant(node):
    """Value of a literal: DuckDB 2 and DuckDB 1 write it in different ways."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    if literal is not None:
        text = literal.get("text")
        return int(text) if literal.get("kind") == "INTEGER" else text
    value = node.get("value") or {}
    return None if value.get("is_null") else value.get("value")


def parts(reference):
    """Parts of a table's name as it was written."""
    path = (reference.get("qualified_name") or {}).get("path")
    if path:
        return [str(part) for part in path]
    fields = ("catalog_name", "schema_name", "table_name")
    return [reference[field] for field in fields if reference.get(field)]


def page_rows(node):
    """Rows that a statement reads at most which only shows a page of one table; else none."""
    node = node.get("node", {})
    source = node.get("from_table") or {}
    plain = (
        node.get("type") == "SELECT_NODE"
        and source.get("type") == "BASE_TABLE"
        and not source.get("sample")
        and not (node.get("cte_map") or {}).get("map")
        and not any(node.get(part) for part in ("where_clause", "having", "qualify", "sample"))
        and not any(node.get(part) for part in ("group_expressions", "group_sets"))
        and all(
            one.get("class") in ("COLUMN_REF", "STAR", "CONSTANT") and not one.get("expr")
            for one in node.get("select_list", [])
        )
    )
    if not plain:
        return None
    limit, offset = sys.maxsize, 0
    for modifier in node.get("modifiers", []):
        if modifier.get("type") != "LIMIT_MODIFIER":
            return None
        if modifier.get("limit") is not None:
            limit = constant(modifier["limit"])
        if modifier.get("offset") is not None:
            offset = constant(modifier["offset"])
    if not isinstance(limit, int) or not isinstance(offset, int):
        return None
    return limit, offset


def snapshot_of(table, at):
    """Snapshot that `AT (VERSION => …)` or `AT (TIMESTAMP => …)` names."""
    from datetime import datetime, timezone

    unit, expression = str(at.get("unit", "")).upper(), at.get("expr")
    # `TIMESTAMP '…'` is a cast of a literal.
    while isinstance(expression, dict) and expression.get("class") == "CAST":
        expression = expression.get("child")
    value = constant(expression)
    if unit == "VERSION" and value is not None:
        if isinstance(value, int) or str(value).isdigit():
            found = table.snapshot_by_id(int(value))
        else:
            found = table.snapshot_by_name(str(value))
        if found is not None:
            return found.snapshot_id
        raise Failure("statement", f"there is no snapshot, branch or tag {value!r}")
    if unit == "TIMESTAMP" and isinstance(value, str):
        try:
            when = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError as error:
            raise Failure("statement", f"AT (TIMESTAMP …): {error}") from error
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        found = table.snapshot_as_of_timestamp(int(when.timestamp() * 1000))
        if found is not None:
            return found.snapshot_id
        raise Failure("statement", f"the table has no snapshot of {value}")
    raise Failure("statement", "AT takes a literal: VERSION => 123, TIMESTAMP => '2026-11-28'")


def pruning(condition, schema):
    """What of DuckDB's filter Iceberg's statistics can decide. DuckDB's own filter is applied in
    any case, so that this may keep too much and never too little."""
    from pyiceberg import expressions
    from pyiceberg.types import PrimitiveType

    operators = {
        "==": expressions.EqualTo,
        ">": expressions.GreaterThan,
        ">=": expressions.GreaterThanOrEqual,
        "<": expressions.LessThan,
        "<=": expressions.LessThanOrEqual,
    }
    text, found = str(condition), []
    # Only a conjunction may be taken apart: what is left without its conditions shows it.
    rest = CONDITION.sub("C", text)
    while rest != (rest := rest.replace("(C and C)", "C")):
        pass
    if rest != "C":
        return None
    types = {
        field.name: str(field.field_type)
        for field in schema.fields
        if isinstance(field.field_type, PrimitiveType)
    }
    for match in CONDITION.finditer(text):
        if match["valid"] is not None:
            if match["valid"] in types:
                found.append(expressions.NotNull(match["valid"]))
            continue
        kind, value = types.get(match["field"]), match["value"]
        if kind not in VALUES or not VALUES[kind].fullmatch(value):
            continue
        literal = int(value) if kind in ("int", "long") else value.strip('"')
        found.append(operators[match["op"]](match["field"], literal))
    return expressions.And(*found) if len(found) > 1 else found[0] if found else None


def lake_dataset(table, snapshot, rows_max):
    """A table as a dataset of Arrow, which DuckDB asks for columns and rows when it runs."""
    import pyarrow
    import pyarrow.dataset
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    schema = table.scan(snapshot_id=snapshot).projection()

    def batches(columns, condition):
        # Columns of the condition need not be among those that are wanted.
        text = "" if condition is None else str(condition)
        used = [field.name for field in schema.fields if field.name in text]
        scan = table.scan(snapshot_id=snapshot, selected_fields=(*columns, *used))
        filtered = None if condition is None else pruning(condition, schema)
        if filtered is not None:
            scan = scan.filter(filtered)
        arrow, left = schema_to_pyarrow(scan.projection()), rows_max
        # One file at a time, and only when DuckDB asks for more.
        for task in scan.plan_files():
            if left is not None and left <= 0:
                return
            reading = ArrowScan(
                scan.table_metadata, scan.io, scan.projection(), scan.row_filter, True, left
            )
            for batch in reading.to_record_batches([task]):
                left = None if left is None else left - len(batch)
                batch = pyarrow.Table.from_batches([batch]).cast(arrow)
                if condition is not None:
                    batch = batch.filter(condition)
                yield from batch.select(columns).to_batches()

    class Scanner:
        def __init__(self, columns, condition):
            self.columns, self.condition = columns, condition

        def to_reader(self):
            arrow = schema_to_pyarrow(schema)
            arrow = pyarrow.schema([arrow.field(name) for name in self.columns])
            found = batches(self.columns, self.condition)
            return pyarrow.RecordBatchReader.from_batches(arrow, found)

    class LakeDataset(pyarrow.dataset.Dataset):
        def __init__(self):
            pass

        @property
        def schema(self):
            return schema_to_pyarrow(schema)

        def scanner(self, columns=None, filter=None, **_options):
            names = [field.name for field in schema.fields]
            return Scanner(names if columns is None else list(columns), filter)

    return LakeDataset()


def granted_files(properties):
    """Reads files of a directory of the server through the grant, which has them at `/files` and
    their path. Their names stay as tables and manifests have them: deletes are matched by name."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if "s3.endpoint" not in properties:
        message = "the grant reaches none of the table's files: a policy shows only a part of it"
        raise Failure("statement", message, "table")

    class GrantFileIO(PyArrowFileIO):
        def new_input(self, location):
            return super().new_input("s3://files/" + location.removeprefix("file:").lstrip("/"))

    return GrantFileIO(properties)


class Statement:
    """The statement of a request, over a connection of DuckDB that reaches nothing."""

    def __init__(self, request):
        import duckdb

        self.request, self.views = request, {}
        self.connection = duckdb.connect(
            ":memory:",
            config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"},
        )
        self.text = request["sql"]
        self.check_alone()
        parsed = self.parsed(self.text)
        if parsed.get("error") or len(parsed.get("statements", [])) != 1:
            raise self.refused(parsed.get("error_message", "it cannot be read"))
        self.tree = parsed["statements"][0]
        # It is put in parentheses below, where it may not end with a semicolon. What is behind
        # the one that ends it is comments, since the statement is the same without.
        ends = [at for at, sign in enumerate(self.text) if sign == ";"]
        for end in ends[-SEMICOLONS_MAX:]:
            if self.parsed(self.text[:end]) == parsed:
                self.text = self.text[:end]
                break

    def refused(self, what):
        return Failure(
            "refused",
            f"only one SELECT, WITH, VALUES, FROM, DESCRIBE, SUMMARIZE or SHOW TABLES is run: {what}",
        )

    def parsed(self, text):
        """The statements of a text, as DuckDB's parser has them."""
        found = self.connection.execute(
            "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [text]
        ).fetchall()
        return json.loads(found[0][0])

    def check_alone(self):
        """Refuses what is more than one statement, or does not read."""
        import duckdb

        try:
            found = self.connection.extract_statements(self.text)
        except duckdb.Error as error:
            raise of_duckdb(error) from error
        if len(found) != 1:
            raise self.refused(f"there are {len(found)} statements")
        if found[0].type != duckdb.StatementType.SELECT:
            kind = str(found[0].type).rsplit(".", 1)[-1]
            raise self.refused(f"this is {kind}")

    def prepare(self):
        """Binds tables, then takes away everything else that DuckDB could reach."""
        from pyiceberg.catalog.rest import RestCatalog

        self.catalog = RestCatalog(
            "cove", uri=self.request["uri"], warehouse=self.request["warehouse"]
        )
        for node in nodes(self.tree):
            if node.get("type") == "SHOW_REF" and not node.get("query"):
                self.text = self.show(node)
                break
        else:
            self.bind()
        for setting in (
            "SET TimeZone = 'UTC'",
            "SET python_enable_replacements = false",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self.connection.execute(setting)

    def show(self, node):
        """`SHOW TABLES`: the catalog's, since DuckDB has none."""
        import pyarrow

        if node.get("show_type") not in ("SHOW_SPECIAL", "SHOW_FROM", "SHOW_UNQUALIFIED"):
            raise self.refused("this form of SHOW is not there")
        if node is not (self.tree["node"].get("from_table") or {}):
            raise self.refused("SHOW stands alone")
        if node.get("table_name", "").strip('"') not in ("", "tables", "__show_tables_expanded"):
            raise self.refused("of SHOW there is SHOW TABLES and SHOW ALL TABLES")
        inside = node.get("schema_name")
        spaces = [levels_of(inside)] if inside else self.namespaces()
        names = []
        for space in spaces:
            names += [(namespace_name(one[:-1]), one[-1]) for one in self.catalog.list_tables(space)]
        names = sorted(names)[:LISTED_MAX]
        columns = {"namespace": [one[0] for one in names], "name": [one[1] for one in names]}
        kinds = pyarrow.schema([("namespace", pyarrow.string()), ("name", pyarrow.string())])
        self.connection.register("lake_tables", pyarrow.table(columns, schema=kinds))
        return "SELECT * FROM lake_tables"

    def namespaces(self):
        found, waiting = [], [()]
        while waiting and len(found) < LISTED_MAX:
            below = self.catalog.list_namespaces(waiting.pop())
            found += below
            waiting += below
        return found

    def bind(self):
        """Makes a view of each table that the statement names, by the name that it has there."""
        references = [
            (parts(node), node)
            for node in nodes(self.tree)
            if node.get("type") == "BASE_TABLE" and len(parts(node)) > 1
        ]
        references = [one for one in references if one[0][0].lower() not in OWN_SCHEMAS]
        self.check_unqualified()
        if len({tuple(one[0]) for one in references}) > TABLES_MAX:
            raise self.refused(f"it names more than {TABLES_MAX} tables")
        attached = {path[0].lower() for path, _ in references if len(path) == 3}
        for name in sorted({path[0] for path, _ in references if len(path) == 3}):
            self.connection.execute(f"ATTACH ':memory:' AS {quoted(name)}")
        page = page_rows(self.tree) if len(references) == 1 else None
        rows_max = None
        if page is not None:
            limit, offset = page
            rows_max = min(limit, self.request["max_rows"] + 1) + offset
        changes = []
        for path, node in references:
            if len(path) > 3:
                better = f'{quoted(".".join(path[:-1]))}.{quoted(path[-1])}'
                raise Failure("statement", f"quote the levels of the namespace as one: {better}")
            if node.get("at_clause"):
                changes.append(self.bind_version(path, node, rows_max))
            else:
                home = path[:-1]
                if len(home) == 1 and home[0].lower() in attached:
                    home = [home[0], "main"]
                self.view(home, path, None, rows_max)
        text = self.text.encode()
        for start, end, new in sorted(changes, reverse=True):
            text = text[:start] + new.encode() + text[end:]
        self.text = text.decode()

    def check_unqualified(self):
        """Refuses names without a namespace that are not those of a WITH."""
        maps = [(node.get("cte_map") or {}).get("map") or [] for node in nodes(self.tree)]
        known = {str(one.get("key")).lower() for found in maps for one in found}
        for node in nodes(self.tree):
            if node.get("type") == "BASE_TABLE" and len(parts(node)) == 1:
                name = parts(node)[0]
                if name.lower() not in known:
                    message = f"there is no table {name}: a table is named namespace.table"
                    raise Failure("statement", message, "table")

    def bind_version(self, path, node, rows_max):
        """Binds a table at a snapshot; what its reference in the text is to be replaced by."""
        start, length = node.get("query_location"), node.get("query_location_length")
        if not isinstance(start, int) or not length:
            raise Failure("statement", "AT (…) needs duckdb 2.0 or later in the session")
        table = self.load(path)
        snapshot = snapshot_of(table, node["at_clause"])
        home = [".".join(path[:-1]) + f" at {snapshot}"]
        self.view(home, path, snapshot, rows_max)
        new = f"{quoted(home[0])}.{quoted(path[-1])}"
        if node.get("alias"):
            new += f" AS {quoted(node['alias'])}"
        if node.get("column_name_alias"):
            new += "(" + ", ".join(quoted(one) for one in node["column_name_alias"]) + ")"
        return start, start + length, new

    def load(self, path):
        from pyiceberg import exceptions

        levels = levels_of(".".join(path[:-1]))
        try:
            table = self.catalog.load_table((*levels, path[-1]))
        except (exceptions.NoSuchTableError, exceptions.ForbiddenError) as error:
            name = f"{namespace_name(levels)}.{path[-1]}"
            message = f"there is no table {name} that the grant may read"
            raise Failure("statement", message, "table") from error
        if table.location().startswith(("file:", "/")):
            table.io = granted_files(table.io.properties)
        return table

    def view(self, home, path, snapshot, rows_max):
        key = (tuple(part.lower() for part in home), path[-1].lower())
        if key in self.views:
            return
        dataset = lake_dataset(self.load(path), snapshot, rows_max)
        name = f"lake_{len(self.views)}"
        self.views[key] = dataset
        self.connection.register(name, dataset)
        schema = ".".join(quoted(part) for part in home)
        self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self.connection.execute(
            f"CREATE VIEW {schema}.{quoted(path[-1])} AS FROM temp.main.{name}"
        )

    def run(self):
        """Writes the columns, then rows up to a limit."""
        values = self.request["parameters"] or None
        wanted = len(self.tree.get("named_param_map") or [])
        if wanted != len(values or []):
            message = f"the statement has {wanted} parameters, {len(values or [])} were given"
            raise Failure("parameters", message)
        whole = f"SELECT * FROM (\n{self.text}\n)"
        found = self.connection.execute(f"{whole} LIMIT 0", values)
        columns = [(name, str(kind)) for name, kind, *_ in found.description]
        found.fetchall()
        answer({"columns": columns})
        texts = ", ".join(as_text(f"#{at}", kind) for at, (_, kind) in enumerate(columns, 1))
        rows = self.connection.execute(f"SELECT {texts} FROM (\n{self.text}\n)", values)
        left, room = self.request["max_rows"], self.request["max_bytes"]
        while batch := rows.fetchmany(min(FETCH_ROWS, left + 1)):
            for row in batch:
                line = as_line(row)
                room -= len(line.encode(errors="replace"))
                if left == 0 or room < 0:
                    return answer({"end": "rows" if left == 0 else "bytes"})
                left -= 1
                ANSWER.write(line)
        return answer({"end": None})


def as_text(column, kind):
    """A value as a text: what has parts as JSON, bytes in hexadecimal."""
    if kind == "BLOB":
        return f"'\\x' || hex({column})"
    if kind.endswith("]") or kind.startswith(NESTED):
        return f"CAST(to_json({column}) AS VARCHAR)"
    return f"CAST({column} AS VARCHAR)"


def of_duckdb(error):
    """A refusal from an error of DuckDB: without the place, which is in a longer text."""
    code, _, message = str(error).split("\n\nLINE ", 1)[0].partition(": ")
    return Failure("statement", message or code, code)


def main():
    request = json.load(sys.stdin)
    try:
        packages()
        import duckdb

        try:
            statement = Statement(request)
            statement.prepare()
            statement.run()
        except duckdb.Error as error:
            raise of_duckdb(error) from error
    except Failure as failure:
        answer({"error": {"kind": failure.kind, "code": failure.code, "message": str(failure)}})
    except Exception as error:
        # Whatever a library raises is an answer, too: the catalog's refusals, files that are gone.
        message = f"{type(error).__name__}: {error}"
        answer({"error": {"kind": "catalog", "code": None, "message": message}})
    ANSWER.flush()
    # Threads of a scan that nobody waits for any more do not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
