// pgjdbc: statements that the driver prepares after a few uses, batches, cursors by fetch size,
// COPY, notifications, cancelling. Run by `java -cp postgresql.jar Client.java`.
//
// The server is named by PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. A line of JSON for each
// check.

import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyIn;
import org.postgresql.copy.CopyManager;

public class Client {
    static final int CLIENTS = Integer.parseInt(System.getenv().getOrDefault("CLIENTS", "16"));
    static final long PATIENCE_S = 60;

    interface Check {
        void run() throws Exception;
    }

    static Connection connect(String... options) throws SQLException {
        Map<String, String> env = System.getenv();
        Properties properties = new Properties();
        properties.put("user", env.get("PGUSER"));
        properties.put("password", env.getOrDefault("PGPASSWORD", ""));
        properties.put("sslmode", "disable");
        properties.put("loginTimeout", "20");
        for (int at = 0; at < options.length; at += 2) properties.put(options[at], options[at + 1]);
        String url = "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE");
        return DriverManager.getConnection(url, properties);
    }

    static void equal(Object seen, Object expected) {
        if (!Objects.equals(seen, expected)) throw new AssertionError(seen + " is not " + expected);
    }

    static void run(Connection c, String sql) throws SQLException {
        try (Statement statement = c.createStatement()) {
            statement.execute(sql);
        }
    }

    static String value(Connection c, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = c.prepareStatement(sql)) {
            for (int at = 0; at < values.length; at++) statement.setObject(at + 1, values[at]);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    static void fails(String state, Check check) throws Exception {
        try {
            check.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), state);
            return;
        }
        throw new AssertionError("no " + state);
    }

    static void until(String what, Callable<Boolean> probe) throws Exception {
        for (long turn = 0; turn < PATIENCE_S * 100; turn++) {
            if (probe.call()) return;
            Thread.sleep(10);
        }
        throw new AssertionError("not in time: " + what);
    }

    /** The fifth use of a statement, by default, is the first one of a name on the server. */
    static void statementsBecomeNamed() throws Exception {
        try (Connection a = connect("prepareThreshold", "1"); Connection b = connect()) {
            try (PreparedStatement one = a.prepareStatement("SELECT ?::int + 1");
                 PreparedStatement two = b.prepareStatement("SELECT ?::int + 2")) {
                for (int turn = 0; turn < 50; turn++) {
                    one.setInt(1, turn);
                    two.setInt(1, turn);
                    try (ResultSet x = one.executeQuery(); ResultSet y = two.executeQuery()) {
                        x.next();
                        y.next();
                        equal(List.of(x.getInt(1), y.getInt(1)), List.of(turn + 1, turn + 2));
                    }
                }
            }
            for (int number = 0; number < 600; number++) {
                equal(value(a, "SELECT ?::int + " + number % 300, 1), String.valueOf(1 + number % 300));
            }
        }
    }

    static void aStatementLivesThroughChangesOfItsTable() throws Exception {
        try (Connection a = connect("prepareThreshold", "1"); Connection b = connect("prepareThreshold", "1")) {
            run(a, "DROP TABLE IF EXISTS jdbc_changed");
            run(a, "CREATE TABLE jdbc_changed AS SELECT 1 AS x");
            try (PreparedStatement one = a.prepareStatement("SELECT * FROM jdbc_changed");
                 PreparedStatement two = b.prepareStatement("SELECT * FROM jdbc_changed")) {
                for (PreparedStatement it : List.of(one, two, one, two)) {
                    try (ResultSet rows = it.executeQuery()) {
                        equal(rows.getMetaData().getColumnCount(), 1);
                    }
                }
                run(a, "ALTER TABLE jdbc_changed ADD y int DEFAULT 2");
                for (PreparedStatement it : List.of(one, two)) {
                    // PostgreSQL tells it once; the driver drops the statement then.
                    try {
                        it.executeQuery().close();
                    } catch (SQLException error) {
                        equal(error.getSQLState(), "0A000");
                    }
                    try (ResultSet rows = it.executeQuery()) {
                        equal(rows.getMetaData().getColumnCount(), 2);
                    }
                }
            }
            try (Connection late = connect("prepareThreshold", "1")) {
                late.setAutoCommit(false);
                try (PreparedStatement it = late.prepareStatement("SELECT * FROM jdbc_changed");
                     ResultSet rows = it.executeQuery()) {
                    equal(rows.getMetaData().getColumnCount(), 2);
                }
                late.commit();
            }
            run(a, "DROP TABLE jdbc_changed");
        }
    }

    static void transactionsAndSavepoints() throws Exception {
        try (Connection a = connect(); Connection b = connect()) {
            run(a, "DROP TABLE IF EXISTS jdbc_rows");
            run(a, "CREATE TABLE jdbc_rows (x int PRIMARY KEY)");
            a.setAutoCommit(false);
            run(a, "INSERT INTO jdbc_rows VALUES (1)");
            Savepoint savepoint = a.setSavepoint("inner");
            fails("23505", () -> run(a, "INSERT INTO jdbc_rows VALUES (1)"));
            a.rollback(savepoint);
            equal(value(b, "SELECT count(*) FROM jdbc_rows"), "0");
            a.commit();
            equal(value(b, "SELECT count(*) FROM jdbc_rows"), "1");
            fails("22012", () -> value(a, "SELECT 1 / ?::int", 0));
            fails("25P02", () -> value(a, "SELECT 1"));
            a.rollback();
            a.setReadOnly(true);
            fails("25006", () -> run(a, "INSERT INTO jdbc_rows VALUES (2)"));
            a.rollback();
            a.setReadOnly(false);
            a.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            equal(value(a, "SHOW transaction_isolation"), "serializable");
            a.commit();
            equal(value(b, "SHOW transaction_isolation"), "read committed");
            run(a, "DROP TABLE jdbc_rows");
            a.commit();
        }
    }

    static void batchesAndGeneratedKeys() throws Exception {
        try (Connection c = connect("reWriteBatchedInserts", "true")) {
            run(c, "DROP TABLE IF EXISTS jdbc_batch");
            run(c, "CREATE TABLE jdbc_batch (id serial, x int UNIQUE, y text)");
            try (PreparedStatement insert = c.prepareStatement("INSERT INTO jdbc_batch (x, y) VALUES (?, ?)")) {
                for (int x = 0; x < 5000; x++) {
                    insert.setInt(1, x);
                    insert.setString(2, "y" + x);
                    insert.addBatch();
                }
                equal(insert.executeBatch().length, 5000);
                insert.setInt(1, 7);
                insert.setString(2, "again");
                insert.addBatch();
                fails("23505", insert::executeBatch);
            }
            try (PreparedStatement insert =
                     c.prepareStatement("INSERT INTO jdbc_batch (x) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
                insert.setInt(1, -1);
                insert.executeUpdate();
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    equal(keys.next(), true);
                }
            }
            equal(value(c, "SELECT count(*) FROM jdbc_batch"), "5001");
            Array array = c.createArrayOf("int4", new Integer[] {1, 2, 3});
            equal(value(c, "SELECT count(*) FROM jdbc_batch WHERE x = ANY(?)", array), "3");
            run(c, "DROP TABLE jdbc_batch");
        }
    }

    static void rowsAreFetchedPieceByPiece() throws Exception {
        try (Connection c = connect()) {
            c.setAutoCommit(false);
            try (PreparedStatement select = c.prepareStatement("SELECT generate_series(1, ?)")) {
                for (int turn = 0; turn < 8; turn++) {
                    select.setInt(1, 1000);
                    select.setFetchSize(70);
                    long sum = 0;
                    try (ResultSet rows = select.executeQuery()) {
                        while (rows.next()) sum += rows.getLong(1);
                    }
                    equal(sum, 500500L);
                }
            }
            c.commit();
        }
    }

    static void copiesGoBothWays() throws Exception {
        try (Connection c = connect()) {
            run(c, "CREATE TEMP TABLE jdbc_copied (x int)");
            StringBuilder lines = new StringBuilder();
            for (int x = 0; x < 20000; x++) lines.append(x).append('\n');
            CopyManager copies = c.unwrap(PGConnection.class).getCopyAPI();
            equal(copies.copyIn("COPY jdbc_copied FROM STDIN", new StringReader(lines.toString())), 20000L);
            StringWriter out = new StringWriter();
            copies.copyOut("COPY (SELECT x FROM jdbc_copied ORDER BY x) TO STDOUT", out);
            equal(out.toString(), lines.toString());
            String nonsense = "nonsense\n".repeat(10000);
            fails("22P02", () -> copies.copyIn("COPY jdbc_copied FROM STDIN", new StringReader(nonsense)));
            CopyIn given = copies.copyIn("COPY jdbc_copied FROM STDIN");
            given.writeToCopy("1\n".getBytes(), 0, 2);
            given.cancelCopy();
            equal(value(c, "SELECT count(*) FROM jdbc_copied"), "20000");
        }
    }

    static void notificationsReachWhoeverListens() throws Exception {
        try (Connection a = connect(); Connection b = connect()) {
            run(a, "LISTEN jdbc_channel");
            for (int number = 0; number < 20; number++) value(b, "SELECT pg_notify('jdbc_channel', ?)", "" + number);
            List<String> came = new ArrayList<>();
            until("all notifications", () -> {
                PGNotification[] some = a.unwrap(PGConnection.class).getNotifications(100);
                if (some != null) for (PGNotification one : some) came.add(one.getParameter());
                return came.size() >= 20;
            });
            for (int number = 0; number < 20; number++) equal(came.get(number), "" + number);
        }
    }

    static void aStatementIsCancelledAndTimesOut() throws Exception {
        try (Connection c = connect(); Connection watch = connect()) {
            String sql = "SELECT pg_sleep(60) AS jdbc_cancelled";
            try (Statement sleep = c.createStatement()) {
                ExecutorService other = Executors.newSingleThreadExecutor();
                Future<?> cancelled = other.submit(() -> {
                    until("the statement to run", () -> !value(watch,
                        "SELECT count(*) FROM pg_stat_activity WHERE query = ? AND wait_event = 'PgSleep'"
                                + " AND datname = current_database()", sql)
                        .equals("0"));
                    sleep.cancel();
                    return null;
                });
                fails("57014", () -> sleep.executeQuery(sql));
                cancelled.get(PATIENCE_S, TimeUnit.SECONDS);
                other.shutdown();
                sleep.setQueryTimeout(1);
                fails("57014", () -> sleep.executeQuery(sql));
            }
            equal(value(c, "SELECT 1"), "1");
        }
    }

    static void stateOfTheSessionStays() throws Exception {
        try (Connection a = connect("currentSchema", "pg_catalog", "ApplicationName", "jdbc a"); Connection b = connect()) {
            run(b, "CREATE TEMP TABLE jdbc_temp AS SELECT 'b' AS who");
            run(a, "SET work_mem = '3MB'");
            a.setClientInfo("ApplicationName", "jdbc other");
            for (int turn = 0; turn < 10; turn++) {
                equal(value(a, "SHOW search_path"), "pg_catalog");
                equal(value(a, "SHOW work_mem"), "3MB");
                equal(value(a, "SHOW application_name"), "jdbc other");
                equal(value(b, "SELECT who FROM jdbc_temp"), "b");
                equal(value(b, "SHOW work_mem").equals("3MB"), false);
                fails("42P01", () -> value(a, "SELECT who FROM jdbc_temp"));
            }
        }
    }

    static void manyClientsShareFewConnections() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        List<Future<?>> all = new ArrayList<>();
        for (int client = 0; client < CLIENTS; client++) {
            String me = "" + client;
            all.add(threads.submit(() -> {
                try (Connection c = connect("prepareThreshold", "2")) {
                    value(c, "SELECT set_config('cove.who', ?, false)", me);
                    c.setAutoCommit(false);
                    for (int turn = 0; turn < 40; turn++) {
                        equal(value(c, "SELECT current_setting('cove.who')"), me);
                        equal(value(c, "SELECT ?::text || 'x'", me), me + "x");
                        c.commit();
                    }
                }
                return null;
            }));
        }
        for (Future<?> one : all) one.get(PATIENCE_S, TimeUnit.SECONDS);
        threads.shutdown();
    }

    public static void main(String[] wanted) {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("statements_become_named", Client::statementsBecomeNamed);
        checks.put("a_statement_lives_through_changes_of_its_table", Client::aStatementLivesThroughChangesOfItsTable);
        checks.put("transactions_and_savepoints", Client::transactionsAndSavepoints);
        checks.put("batches_and_generated_keys", Client::batchesAndGeneratedKeys);
        checks.put("rows_are_fetched_piece_by_piece", Client::rowsAreFetchedPieceByPiece);
        checks.put("copies_go_both_ways", Client::copiesGoBothWays);
        checks.put("notifications_reach_whoever_listens", Client::notificationsReachWhoeverListens);
        checks.put("a_statement_is_cancelled_and_times_out", Client::aStatementIsCancelledAndTimesOut);
        checks.put("state_of_the_session_stays", Client::stateOfTheSessionStays);
        checks.put("many_clients_share_few_connections", Client::manyClientsShareFewConnections);
        boolean failed = false;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            if (wanted.length > 0 && Arrays.stream(wanted).noneMatch(check.getKey()::contains)) continue;
            String error = "";
            try {
                check.getValue().run();
            } catch (Exception | AssertionError reason) {
                failed = true;
                StringBuilder text = new StringBuilder(reason.toString());
                for (StackTraceElement at : reason.getStackTrace()) {
                    if (at.getClassName().startsWith("Client")) text.append(" at line ").append(at.getLineNumber());
                }
                String escaped = text.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
                error = ", \"error\": \"" + escaped + "\"";
            }
            System.out.println("{\"check\": \"" + check.getKey() + "\", \"ok\": " + error.isEmpty() + error + "}");
        }
        System.exit(failed ? 1 : 0);
    }
}
