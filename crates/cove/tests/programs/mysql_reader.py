"""Tries to write over a grant that is for reading."""
import pymysql
from pymysql.constants import CLIENT

open("rows", "w").write("2,stolen")
WRITE = "UPDATE answers SET answer = 'stolen'"


def attempt(*statements):
    client = pymysql.connect(local_infile=True, client_flag=CLIENT.MULTI_STATEMENTS)
    cursor = client.cursor()
    for statement in statements:
        try:
            cursor.execute(statement)
            cursor.fetchall()
        except pymysql.Error:
            pass
    try:
        client.commit()
    except pymysql.Error:
        pass


for before in (
    [],
    ["SET SESSION TRANSACTION READ WRITE"],
    ["START TRANSACTION READ WRITE"],
    ["SET transaction_read_only = 0"],
    ["SET @@tx_read_only = 0"],
    ["SET ROLE NONE"],
    ["SET STATEMENT tx_read_only = 0 FOR SELECT 1"],
    ["/*!50000 SET tx_read_only = 0 */"],
    ['PREPARE p FROM "SET tx_read_only = 0"', "EXECUTE p"],
    ["EXECUTE IMMEDIATE 'SET tx_read_only = 0'"],
    ["FLUSH TABLES"],
):
    attempt(*before, WRITE)
    attempt("; ".join(before + [WRITE]))
attempt("LOAD DATA LOCAL INFILE 'rows' INTO TABLE answers FIELDS TERMINATED BY ','")
attempt("LOAD DATA INFILE '/etc/passwd' INTO TABLE answers")
attempt("SELECT 'x' INTO OUTFILE '/tmp/stolen'", "CREATE TABLE mine (x int)")
cursor = pymysql.connect().cursor()
cursor.execute("SELECT * FROM answers")
print(cursor.fetchall())
