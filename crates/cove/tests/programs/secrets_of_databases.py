"""Asks databases for passwords, their hashes and the statements of others; prints what was told."""
import sys

import psycopg2
import pymysql
from pymysql.constants import CLIENT

PROCEDURE = "CREATE PROCEDURE p() BEGIN DECLARE a TEXT DEFAULT 'SHOW GR'; PREPARE s FROM CONCAT(a, 'ANTS'); EXECUTE s; END"

OF_POSTGRES = [
    "SELECT * FROM pg_user_mappings",
    "SELECT umoptions FROM pg_catalog.\"pg_user_mappings\"",
    "SELECT * FROM information_schema.user_mapping_options",
    "SELECT * FROM pg_shadow",
    "TABLE pg_authid",
    "SELECT query FROM pg_stat_activity",
    "SELECT pg_stat_get_backend_activity(1)",
    "SELECT * FROM pg_prepared_statements",
    "SELECT * FROM pg_stat_statements",
    "SELECT * FROM pg_hba_file_rules",
    "SELECT table_to_xml('pg_user_mappings', true, true, '')",
    "SELECT query_to_xml('SELECT * FROM pg_user' || '_mappings', true, true, '')",
    "SELECT pg_read_file('pg_hba.conf')",
    "PREPARE a AS SELECT * FROM pg_user_mappings",
    "COPY (SELECT * FROM pg_user_mappings) TO STDOUT",
    "DECLARE c CURSOR FOR SELECT * FROM pg_user_mappings",
    "EXPLAIN ANALYZE SELECT * FROM pg_user_mappings",
    "SELECT * FROM U&\"pg\\005fuser_mappings\"",
    "SELECT '\\', * FROM pg_user_mappings --'",
    "ALTER ROLE clerk PASSWORD 'x'",
    "ALTER USER current_user WITH ENCRYPTED PASSWORD 'x'",
    "/*" + "x" * (1 << 20) + "*/ SELECT * FROM pg_user_mappings",
]
OF_MYSQL = [
    "SHOW GRANTS",
    "show/**/grants for current_user()",
    "/*!50000 SHOW GRANTS */",
    "/*M!100000 SHOW */ GRANTS",
    "SHOW CREATE USER CURRENT_USER()",
    "SHOW FULL PROCESSLIST",
    "SHOW ENGINE INNODB STATUS",
    "SHOW SLAVE STATUS",
    "SHOW MASTER STATUS",
    "SHOW CREATE SERVER s",
    "SELECT info FROM information_schema.processlist",
    "SELECT info FROM information_schema.`PROCESSLIST`",
    "SELECT * FROM mysql.user",
    "SELECT * FROM `mysql` . `global_priv`",
    "SELECT * FROM mysql.servers",
    "SELECT * FROM performance_schema.threads",
    "USE mysql",
    "PREPARE s FROM 'SHOW GRANTS'",
    "EXECUTE IMMEDIATE 'SHOW GRANTS'",
    "EXECUTE IMMEDIATE CONCAT('SHOW GR', 'ANTS')",
    "SET @a = 'SHOW GRANTS'; PREPARE s FROM @a",
    "SELECT 1; SHOW GRANTS",
    PROCEDURE,
    "CREATE PROCEDURE q() SHOW GRANTS",
    "SET PASSWORD = PASSWORD('x')",
    "ALTER USER CURRENT_USER() IDENTIFIED BY 'x'",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SHOW GRANTS /*" + "x" * (1 << 20) + "*/",
]

told = []
for statement in OF_POSTGRES:
    client = psycopg2.connect("")
    try:
        cursor = client.cursor()
        cursor.execute(statement)
        told.append((statement[:80], "done"))
    except psycopg2.Error as error:
        if error.pgcode != "42501" or "refused in sandboxes" not in str(error):
            told.append((statement[:80], error.pgcode, str(error)))
    client.close()
for statement in OF_MYSQL:
    client = pymysql.connect(client_flag=CLIENT.MULTI_STATEMENTS)
    try:
        cursor = client.cursor()
        cursor.execute(statement)
        while cursor.nextset():
            pass
        told.append((statement[:80], "done"))
    except pymysql.Error as error:
        if error.args[0] != 1227 or "refused in sandboxes" not in error.args[1]:
            told.append((statement[:80],) + error.args)
# The database that a client names is none of the server's own, and COM_PROCESS_INFO lists nobody.
client = pymysql.connect(database="mysql")
cursor = client.cursor()
cursor.execute("SELECT DATABASE()")
told += [row for row in cursor.fetchall() if row[0] == "mysql"]
for command, body in ((0x0A, b""), (0x02, b"mysql")):
    try:
        client._execute_command(command, body)
        client._read_ok_packet()
        told.append((command, "done"))
    except pymysql.Error as error:
        if error.args[0] != 1227:
            told.append((command,) + error.args)
# What is no secret is told.
cursor.execute("SELECT answer FROM answers")
assert cursor.fetchall() == (("forty-two",),)
cursor = psycopg2.connect("").cursor()
cursor.execute("SELECT count(*) FROM items")
assert cursor.fetchall() == [(100,)]
print(told, file=sys.stderr)
print(len(OF_POSTGRES) + len(OF_MYSQL), "asked,", len(told), "told")
