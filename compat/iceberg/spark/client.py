"""Spark, unmodified, with Iceberg's runtime, against the catalog of a server.

BASE is its address with `/catalog`, TOKEN an operator's, JARS a class path with the runtime, SCRATCH a directory for
what Spark leaves. Says on standard error where it is. Ends with `ok`, or with what is wrong.
"""

import os
import pathlib
import sys
import threading
import time
import traceback

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

BASE, TOKEN, JARS, SCRATCH = (os.environ[it] for it in ("BASE", "TOKEN", "JARS", "SCRATCH"))
WRITERS, INSERTS = 3, 3
# Iceberg refuses to remove orphans that are younger than a day.
OLD_SECONDS = 3 * 24 * 3600


def start():
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": SCRATCH,
        "spark.sql.warehouse.dir": SCRATCH,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": JARS.replace(":", ","),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.defaultCatalog": "cove",
        "spark.sql.catalog.cove": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.cove.type": "rest",
        "spark.sql.catalog.cove.uri": BASE,
        "spark.sql.catalog.cove.token": TOKEN,
        # The same catalog, whose server plans the scans.
        "spark.sql.catalog.planned": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.planned.type": "rest",
        "spark.sql.catalog.planned.uri": BASE,
        "spark.sql.catalog.planned.token": TOKEN,
        "spark.sql.catalog.planned.scan-planning-mode": "server",
    }
    builder = SparkSession.builder.appName("cove")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # What fails comes as an exception; what is to fail would be told at length before.
    spark.sparkContext.setLogLevel("OFF")
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    return spark


class Sql:
    """A session, with what most checks need."""

    def __init__(self, spark):
        self.spark = spark

    def __call__(self, text):
        return [tuple(it) for it in self.spark.sql(text).collect()]

    def one(self, text):
        found = self(text)
        assert len(found) == 1, (text, found)
        return found[0][0] if len(found[0]) == 1 else found[0]

    def call(self, text):
        """The one row that a procedure answers, by name."""
        found = self.spark.sql(f"CALL cove.system.{text}").collect()
        assert len(found) == 1, (text, found)
        return found[0].asDict()

    def is_(self, text, expected):
        found = sorted(self(text))
        assert found == sorted(expected), f"{text}\n  is {found}\n  not {sorted(expected)}"

    def refused(self, text, part):
        try:
            self(text)
        except Exception as error:  # noqa: BLE001 - Spark has an own type for each
            assert part in str(error), (text, str(error))
            return
        raise AssertionError(f"{text} was to be refused")

    def current(self, table):
        return self.one(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'")


def namespaces(sql):
    sql("CREATE NAMESPACE shop COMMENT 'what is sold'")
    sql("CREATE NAMESPACE shop.inner")
    sql.is_("SHOW NAMESPACES IN shop", [("shop.inner",)])
    sql("ALTER NAMESPACE shop SET PROPERTIES ('team' = 'sales')")
    described = dict(it[:2] for it in sql("DESCRIBE NAMESPACE EXTENDED shop"))
    assert described["Comment"] == "what is sold" and "sales" in str(described), described
    sql.refused("CREATE NAMESPACE shop", "already exists")
    sql("DROP NAMESPACE shop.inner")
    sql.is_("SHOW NAMESPACES IN shop", [])


def rows(version):
    """Inserts, merges, updates and deletes, with deletes in files of their own."""

    def step(sql):
        table = f"shop.rows{version}"
        modes = ", ".join(f"'write.{it}.mode' = 'merge-on-read'" for it in ("delete", "update", "merge"))
        sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING) USING iceberg PARTITIONED BY (bucket(2, id)) "
            f"TBLPROPERTIES ('format-version' = '{version}', {modes})")
        sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f')")
        before = dict(sql(f"SELECT id, _row_id FROM {table}")) if version == 3 else {}
        sql(f"DELETE FROM {table} WHERE id = 3")
        sql(f"UPDATE {table} SET name = 'changed' WHERE id = 2")
        sql(f"MERGE INTO {table} t USING (SELECT * FROM VALUES (1, 'merged'), (4, NULL), (9, 'new') AS s(id, name)) s "
            "ON t.id = s.id WHEN MATCHED AND s.name IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET t.name = s.name "
            "WHEN NOT MATCHED THEN INSERT *")
        expected = [(1, "merged"), (2, "changed"), (5, "e"), (6, "f"), (9, "new")]
        sql.is_(f"SELECT * FROM {table}", expected)
        formats = {it[0] for it in sql(f"SELECT file_format FROM {table}.delete_files")}
        assert formats == ({"PUFFIN"} if version == 3 else {"PARQUET"}), formats
        if version == 3:
            # A row keeps its id through updates and merges, and no two have the same.
            after = dict(sql(f"SELECT id, _row_id FROM {table}"))
            assert len(set(after.values())) == len(after), after
            assert {it: after[it] for it in (1, 2, 5, 6)} == {it: before[it] for it in (1, 2, 5, 6)}, (before, after)
        sql(f"INSERT OVERWRITE {table} VALUES (7, 'over')")
        assert (7, "over") in sql(f"SELECT * FROM {table}")
        operations = [it[0] for it in sql(f"SELECT operation FROM {table}.snapshots ORDER BY committed_at")]
        assert operations[0] == "append" and "overwrite" in operations, operations

    step.__name__ = f"rows{version}"
    return step


def planned(sql):
    """Rows are changed where the server plans the scans: Spark then asks for metadata columns."""
    for version in (2, 3):
        for mode in ("copy-on-write", "merge-on-read"):
            name = f"shop.planned{version}_{mode[:4]}"
            table = f"planned.{name}"
            modes = ", ".join(f"'write.{it}.mode' = '{mode}'" for it in ("delete", "update", "merge"))
            sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING) USING iceberg PARTITIONED BY (bucket(2, id)) "
                f"TBLPROPERTIES ('format-version' = '{version}', {modes})")
            sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f')")
            sql(f"DELETE FROM {table} WHERE id = 3")
            sql(f"UPDATE {table} SET name = 'changed' WHERE id = 2")
            sql(f"MERGE INTO {table} t USING (SELECT * FROM VALUES (1, 'merged'), (4, NULL), (9, 'new') AS s(id, name)) "
                "s ON t.id = s.id WHEN MATCHED AND s.name IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET "
                "t.name = s.name WHEN NOT MATCHED THEN INSERT *")
            expected = [(1, "merged"), (2, "changed"), (5, "e"), (6, "f"), (9, "new")]
            for there in (table, f"cove.{name}"):
                sql(f"REFRESH TABLE {there}")
                sql.is_(f"SELECT * FROM {there}", expected)
                sql.is_(f"SELECT id FROM {there} WHERE id > 4 AND name < 'f'", [(5,)])
                assert len(sql(f"SELECT DISTINCT _file, _pos, _spec_id, _partition FROM {there}")) == 5, there
            if version == 3:
                # Not `_last_updated_sequence_number`: Iceberg 1.11 does not read what the server says of it.
                ids = "SELECT id, _row_id FROM "
                sql.is_(ids + table, sql(f"{ids}cove.{name}"))


def upgrade(sql):
    """A table of version 2 with deletes becomes one of version 3."""
    sql("CREATE TABLE shop.up (id INT) USING iceberg TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read')")
    sql("INSERT INTO shop.up SELECT * FROM range(5)")
    sql("DELETE FROM shop.up WHERE id = 1")
    sql("ALTER TABLE shop.up SET TBLPROPERTIES ('format-version' = '3')")
    sql("DELETE FROM shop.up WHERE id = 2")
    sql("INSERT INTO shop.up VALUES (9)")
    sql.is_("SELECT id FROM shop.up", [(0,), (3,), (4,), (9,)])
    sql.refused("ALTER TABLE shop.up SET TBLPROPERTIES ('format-version' = '2')", "downgrade")


def alter(sql):
    table = "shop.alter"
    sql(f"CREATE TABLE {table} (id INT, name STRING, gone STRING, place STRUCT<x: FLOAT, y: INT>) USING iceberg")
    sql(f"INSERT INTO {table} VALUES (1, 'a', 'z', named_struct('x', 1.5F, 'y', 2))")
    for change in (
        "ADD COLUMN price DECIMAL(10, 2) COMMENT 'in euros' AFTER id",
        "ADD COLUMN place.z BIGINT",
        "RENAME COLUMN name TO title",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN place.x TYPE DOUBLE",
        "ALTER COLUMN price TYPE DECIMAL(12, 2)",
        "ALTER COLUMN title FIRST",
        "ALTER COLUMN title COMMENT 'how it is called'",
        "DROP COLUMN gone",
        "SET TBLPROPERTIES ('colour' = 'red', 'size' = 'big')",
        "UNSET TBLPROPERTIES ('size')",
        "WRITE ORDERED BY title DESC, id",
        "SET IDENTIFIER FIELDS id",
    ):
        if "IDENTIFIER" in change:
            # Only what cannot be null identifies, and no row can be made so later.
            sql.refused(f"ALTER TABLE {table} {change}", "not a required field")
            continue
        sql(f"ALTER TABLE {table} {change}")
    columns = [it[:2] for it in sql(f"DESCRIBE {table}")][:4]
    assert columns == [
        ("title", "string"),
        ("id", "bigint"),
        ("price", "decimal(12,2)"),
        ("place", "struct<x:double,y:int,z:bigint>"),
    ], columns
    sql(f"INSERT INTO {table} VALUES ('b', 5000000000, 3.25, named_struct('x', 0.1D, 'y', 1, 'z', 7L))")
    sql.is_(f"SELECT title, id, place.z FROM {table}", [("a", 1, None), ("b", 5000000000, 7)])
    properties = dict(sql(f"SHOW TBLPROPERTIES {table}"))
    assert properties["colour"] == "red" and "size" not in properties, properties
    sql.refused(f"ALTER TABLE {table} ALTER COLUMN id TYPE STRING", "")
    sql("ALTER TABLE shop.alter RENAME TO shop.renamed")
    assert not sql("SHOW TABLES IN shop LIKE 'alter'")
    assert sql.one("SELECT count(*) FROM shop.renamed") == 2


def partitions(sql):
    table = "shop.parts"
    sql(f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP, kind STRING) USING iceberg PARTITIONED BY (kind)")
    add = f"INSERT INTO {table} VALUES ({{0}}, TIMESTAMP '2026-01-0{{0}} 12:00:00', 'k{{0}}')"
    sql(add.format(1))
    for number, change in enumerate((
        "ADD PARTITION FIELD days(at)",
        "REPLACE PARTITION FIELD at_day WITH hours(at) AS hour",
        "ADD PARTITION FIELD bucket(4, id) AS shard",
        "DROP PARTITION FIELD kind",
        "ADD PARTITION FIELD truncate(1, kind)",
    )):
        sql(f"ALTER TABLE {table} {change}")
        sql(add.format(number + 2))
    assert sql.one(f"SELECT count(*), count(DISTINCT id) FROM {table}") == (6, 6)
    specs = {it[0] for it in sql(f"SELECT spec_id FROM {table}.files")}
    assert len(specs) == 6, specs
    sql.is_(f"SELECT id FROM {table} WHERE at < TIMESTAMP '2026-01-03 00:00:00'", [(1,), (2,)])
    assert sql.one(f"SELECT sum(record_count) FROM {table}.partitions") == 6


def branches(sql):
    table = "shop.refs"
    sql(f"CREATE TABLE {table} (id INT) USING iceberg")
    sql(f"INSERT INTO {table} VALUES (1)")
    first = sql.current(table)
    sql(f"ALTER TABLE {table} CREATE TAG beginning RETAIN 10 DAYS")
    sql(f"ALTER TABLE {table} CREATE BRANCH side WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    sql(f"INSERT INTO {table}.branch_side VALUES (2)")
    sql.is_(f"SELECT * FROM {table}", [(1,)])
    sql.is_(f"SELECT * FROM {table} VERSION AS OF 'side'", [(1,), (2,)])
    names = dict(sql(f"SELECT name, type FROM {table}.refs"))
    assert names == {"main": "BRANCH", "side": "BRANCH", "beginning": "TAG"}, names
    sql.call(f"fast_forward('{table}', 'main', 'side')")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,)])
    sql(f"INSERT INTO {table} VALUES (3)")
    sql.is_(f"SELECT * FROM {table} VERSION AS OF 'beginning'", [(1,)])
    sql(f"ALTER TABLE {table} REPLACE TAG beginning AS OF VERSION {sql.current(table)}")
    sql.is_(f"SELECT * FROM {table} VERSION AS OF 'beginning'", [(1,), (2,), (3,)])
    sql(f"ALTER TABLE {table} DROP TAG beginning")
    sql(f"ALTER TABLE {table} DROP BRANCH side")
    sql.is_(f"SELECT name FROM {table}.refs", [("main",)])
    assert first != sql.current(table)


def travel(sql):
    """Versions and moments; back and forth, and single snapshots picked."""
    table = "shop.travel"
    sql(f"CREATE TABLE {table} (id INT) USING iceberg")
    ids, moments = [], []
    for number in (1, 2, 3):
        sql(f"INSERT INTO {table} VALUES ({number})")
        ids.append(sql.current(table))
        moments.append(sql.one(f"SELECT max(committed_at) FROM {table}.snapshots"))
    for number, (snapshot, moment) in enumerate(zip(ids, moments), 1):
        expected = [(it,) for it in range(1, number + 1)]
        sql.is_(f"SELECT * FROM {table} VERSION AS OF {snapshot}", expected)
        sql.is_(f"SELECT * FROM {table} TIMESTAMP AS OF '{moment}'", expected)
    assert len(sql(f"CALL cove.system.ancestors_of('{table}')")) == 3
    sql.call(f"rollback_to_snapshot('{table}', {ids[0]})")
    sql.is_(f"SELECT * FROM {table}", [(1,)])
    sql.call(f"set_current_snapshot('{table}', {ids[2]})")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,), (3,)])
    after_second = sql.one(f"SELECT TIMESTAMP '{moments[1]}' + INTERVAL 1 MILLISECOND")
    sql.call(f"rollback_to_timestamp('{table}', TIMESTAMP '{after_second}')")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,)])
    sql.call(f"cherrypick_snapshot('{table}', {ids[2]})")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,), (3,)])
    # Written first, published when somebody has looked at it.
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    sql("SET spark.wap.id = audit")
    sql(f"INSERT INTO {table} VALUES (4)")
    sql("RESET spark.wap.id")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,), (3,)])
    sql.call(f"publish_changes('{table}', 'audit')")
    sql.is_(f"SELECT * FROM {table}", [(1,), (2,), (3,), (4,)])


def views(sql):
    sql("CREATE TABLE shop.base (id INT, name STRING) USING iceberg")
    sql("INSERT INTO shop.base VALUES (1, 'a'), (2, 'b')")
    sql("CREATE VIEW shop.seen (number COMMENT 'its id') COMMENT 'some' TBLPROPERTIES ('p' = 'q') "
        "AS SELECT id FROM shop.base WHERE id > 1")
    sql.is_("SELECT number FROM shop.seen", [(2,)])
    sql.refused("CREATE VIEW shop.seen AS SELECT 1 AS one", "already exists")
    sql.refused("CREATE VIEW shop.base AS SELECT 1 AS one", "already exists")
    sql("CREATE OR REPLACE VIEW shop.seen AS SELECT name, id FROM shop.base")
    sql.is_("SELECT * FROM shop.seen", [("a", 1), ("b", 2)])
    sql("ALTER VIEW shop.seen SET TBLPROPERTIES ('colour' = 'red')")
    sql("ALTER VIEW shop.seen UNSET TBLPROPERTIES IF EXISTS ('p')")
    properties = dict(sql("SHOW TBLPROPERTIES shop.seen"))
    assert properties["colour"] == "red" and "p" not in properties, properties
    sql("CREATE VIEW shop.above AS SELECT count(*) AS n FROM shop.seen")
    assert sql.one("SELECT n FROM shop.above") == 2
    assert {it[1] for it in sql("SHOW VIEWS IN shop")} == {"seen", "above"}, sql("SHOW VIEWS IN shop")
    sql("ALTER VIEW shop.seen RENAME TO shop.looked")
    sql.refused("SELECT n FROM shop.above", "shop")
    sql.is_("SELECT id FROM shop.looked", [(1,), (2,)])
    sql("DROP VIEW shop.looked")
    sql("DROP VIEW shop.above")
    assert not sql("SHOW VIEWS IN shop")


def location(sql, table):
    found = {it[0]: it[1] for it in sql(f"DESCRIBE TABLE EXTENDED {table}")}["Location"]
    return pathlib.Path(found.removeprefix("file://"))


def maintenance(sql):
    table = "shop.kept"
    sql(f"CREATE TABLE {table} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ("
        "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
        "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '3')")
    for number in range(6):
        sql(f"INSERT INTO {table} SELECT id, {number % 2} FROM range({number * 10}, {number * 10 + 10})")
    sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    everything = sql.one(f"SELECT count(*), sum(id) FROM {table}")
    assert everything[0] == 54, everything
    done = sql.call(f"rewrite_position_delete_files(table => '{table}', options => map('rewrite-all', 'true'))")
    assert done["rewritten_delete_files_count"] > 0, done
    done = sql.call(f"rewrite_data_files(table => '{table}', options => map('min-input-files', '2', "
                    "'rewrite-all', 'true'))")
    assert done["rewritten_data_files_count"] == 6 and done["added_data_files_count"] == 2, done
    done = sql.call(f"rewrite_manifests('{table}')")
    assert done["rewritten_manifests_count"] > 0, done
    assert sql.one(f"SELECT count(*), sum(id) FROM {table}") == everything
    done = sql.call(f"expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01 00:00:00', "
                    "retain_last => 1)")
    assert done["deleted_data_files_count"] > 0 and done["deleted_manifest_lists_count"] > 0, done
    assert sql.one(f"SELECT count(*) FROM {table}.snapshots") == 1
    assert sql.one(f"SELECT count(*), sum(id) FROM {table}") == everything
    # No more metadata files are left than were asked for: three before, and what is now.
    here = location(sql, table)
    assert len(list(here.glob("metadata/*.metadata.json"))) == 4, list(here.glob("metadata/*.metadata.json"))
    orphan = here / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody's")
    os.utime(orphan, (time.time() - OLD_SECONDS,) * 2)
    gone = sql(f"CALL cove.system.remove_orphan_files('{table}')")
    assert len(gone) == 1 and gone[0][0].endswith("orphan.parquet") and not orphan.exists(), gone
    assert sql.one(f"SELECT count(*), sum(id) FROM {table}") == everything
    assert sql.call(f"compute_table_stats('{table}')")["statistics_file"].endswith(".stats")
    assert sql.call(f"compute_partition_stats('{table}')")["partition_statistics_file"]
    assert sql.one(f"SELECT count(*), sum(id) FROM {table}") == everything


def registered(sql):
    """The same metadata under another name; what was dropped without its files comes back."""
    sql("CREATE TABLE shop.lost (id INT) USING iceberg")
    sql("INSERT INTO shop.lost VALUES (1), (2)")
    file = sql("SELECT file FROM shop.lost.metadata_log_entries ORDER BY timestamp")[-1][0]
    here = location(sql, "shop.lost")
    sql("DROP TABLE shop.lost")
    sql.refused("SELECT * FROM shop.lost", "shop")
    done = sql.call(f"register_table(table => 'shop.found', metadata_file => '{file}')")
    assert done["total_records_count"] == 2, done
    sql.is_("SELECT * FROM shop.found", [(1,), (2,)])
    sql("INSERT INTO shop.found VALUES (3)")
    sql.is_("SELECT * FROM shop.found", [(1,), (2,), (3,)])
    sql("DROP TABLE shop.found PURGE")
    assert not list(here.rglob("*.parquet")), list(here.rglob("*.parquet"))


def metadata_tables(sql):
    table = "shop.looked_at"
    sql(f"CREATE TABLE {table} (id INT, part STRING) USING iceberg PARTITIONED BY (part)")
    sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    sql(f"INSERT INTO {table} VALUES (3, 'a')")
    for name, count in (
        ("history", 2), ("snapshots", 2), ("files", 3), ("data_files", 3), ("all_data_files", 3), ("delete_files", 0),
        ("entries", 3), ("all_entries", 3), ("manifests", 2), ("all_manifests", 3), ("partitions", 2), ("refs", 1),
        ("metadata_log_entries", 3), ("position_deletes", 0),
    ):
        found = sql.one(f"SELECT count(*) FROM {table}.{name}")
        assert found == count, (name, found)
    assert sql.one(f"SELECT sum(record_count) FROM {table}.files") == 3
    files = {it[0] for it in sql(f"SELECT DISTINCT _file FROM {table}")}
    assert files == {it[0] for it in sql(f"SELECT file_path FROM {table}.files")}


def selected(sql):
    """Tables that are made, replaced and filled at once."""
    sql("CREATE TABLE shop.made USING iceberg TBLPROPERTIES ('a' = 'b') AS SELECT id FROM range(3)")
    assert sql.one("SELECT count(*) FROM shop.made") == 3
    before = sql.current("shop.made")
    sql("CREATE OR REPLACE TABLE shop.made USING iceberg PARTITIONED BY (part) AS "
        "SELECT id, id % 2 AS part, 'x' AS more FROM range(4)")
    assert sql.one("SELECT count(*) FROM shop.made WHERE more = 'x'") == 4
    # What it was is there still.
    sql.is_(f"SELECT * FROM shop.made VERSION AS OF {before}", [(0,), (1,), (2,)])
    sql.refused("CREATE TABLE shop.made USING iceberg AS SELECT 1 AS one", "already exists")
    sql.refused("CREATE TABLE shop.never USING iceberg AS SELECT id / (id - id) AS bad FROM range(2)", "DIVIDE_BY_ZERO")
    assert not sql("SHOW TABLES IN shop LIKE 'never'")


def types(sql):
    """What only version 3 has, and what is within something else."""
    sql("CREATE TABLE shop.types (id INT, doc VARIANT, at TIMESTAMP_NTZ, tags ARRAY<STRING>, counts "
        "MAP<STRING, STRUCT<n: INT, bytes: BINARY>>) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    sql("INSERT INTO shop.types SELECT 1, parse_json('{\"a\": {\"b\": 7}}'), TIMESTAMP_NTZ '2026-01-02 03:04:05', "
        "array('x', NULL), map('k', named_struct('n', 1, 'bytes', X'00FF'))")
    found = sql.one("SELECT variant_get(doc, '$.a.b', 'int'), at, tags, counts['k'].n FROM shop.types")
    assert (found[0], str(found[1]), found[2], found[3]) == (7, "2026-01-02 03:04:05", ["x", None], 1), found


def writers(sql):
    """Sessions that write at the same time lose nothing."""
    sql("CREATE TABLE shop.shared (id INT) USING iceberg TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    failed = []

    def write(writer):
        try:
            own = Sql(sql.spark.newSession())
            for number in range(INSERTS):
                own(f"INSERT INTO cove.shop.shared VALUES ({writer * INSERTS + number})")
        except Exception as error:  # noqa: BLE001 - told by the one who waits
            failed.append(repr(error))

    threads = [threading.Thread(target=write, args=(it,)) for it in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    sql("REFRESH TABLE shop.shared")
    sql.is_("SELECT id FROM shop.shared", [(it,) for it in range(WRITERS * INSERTS)])
    assert sql.one("SELECT count(*) FROM shop.shared.snapshots") == WRITERS * INSERTS


def main():
    spark = start()
    sql = Sql(spark)
    steps = (
        namespaces, rows(2), rows(3), planned, upgrade, alter, partitions, branches, travel, views, maintenance,
        registered, metadata_tables, selected, types, writers,
    )
    failed = []
    for number, step in enumerate(steps, 1):
        begun = time.monotonic()
        try:
            step(sql)
            state = f"{time.monotonic() - begun:.0f} s"
        except Exception:  # noqa: BLE001 - the others are tried as well
            traceback.print_exc(limit=3)
            failed.append(step.__name__)
            state = "failed"
        print(f"  spark {number}/{len(steps)} {step.__name__}: {state}", file=sys.stderr, flush=True)
    spark.stop()
    print(f"failed: {failed}" if failed else "ok")
    sys.exit(1 if failed else 0)


main()
