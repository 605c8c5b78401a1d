// MariaDB Connector/J: text and prepared statements, batches, fetch sizes, procedures, cancelling.
// Run by `java -cp mariadb-java-client.jar Client.java`.
//
// The server is named by MYSQL_HOST, MYSQL_PORT, MYSQL_DATABASE, MYSQL_USER and MYSQL_PASSWORD. A
// line of JSON for each check.

import java.io.ByteArrayInputStream;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLTimeoutException;
import java.sql.SQLWarning;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

public class Client {
    static final int CLIENTS = Integer.parseInt(System.getenv().getOrDefault("CLIENTS", "16"));
    static final long PATIENCE_S = 60;
    static final String[] PREPARED = {"useServerPrepStmts", "true"};

    interface Check {
        void run() throws Exception;
    }

    static Connection connect(String... options) throws SQLException {
        Map<String, String> env = System.getenv();
        Properties properties = new Properties();
        properties.put("user", env.get("MYSQL_USER"));
        properties.put("password", env.getOrDefault("MYSQL_PASSWORD", ""));
        properties.put("connectTimeout", "20000");
        for (int at = 0; at < options.length; at += 2) properties.put(options[at], options[at + 1]);
        String where = env.get("MYSQL_HOST") + ":" + env.get("MYSQL_PORT") + "/" + env.get("MYSQL_DATABASE");
        return DriverManager.getConnection("jdbc:mariadb://" + where, properties);
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

    static void fails(int code, Check check) throws Exception {
        try {
            check.run();
        } catch (SQLException error) {
            equal(error.getErrorCode(), code);
            return;
        }
        throw new AssertionError("no error " + code);
    }

    static void statementsArePreparedOnTheServer() throws Exception {
        try (Connection a = connect(PREPARED); Connection b = connect(PREPARED)) {
            try (PreparedStatement one = a.prepareStatement("SELECT ? + 1, ?");
                 PreparedStatement two = b.prepareStatement("SELECT ? + 2, ?")) {
                for (int turn = 0; turn < 50; turn++) {
                    one.setInt(1, turn);
                    one.setString(2, "é" + turn);
                    two.setInt(1, turn);
                    two.setNull(2, java.sql.Types.VARCHAR);
                    try (ResultSet x = one.executeQuery(); ResultSet y = two.executeQuery()) {
                        x.next();
                        y.next();
                        equal(List.of(x.getInt(1), y.getInt(1), x.getString(2)), List.of(turn + 1, turn + 2, "é" + turn));
                        equal(y.getString(2), null);
                    }
                }
            }
            // More than the driver keeps, and than a connection to the server may.
            for (int number = 0; number < 600; number++) {
                equal(value(a, "SELECT ? + " + number % 300, 1), String.valueOf(1 + number % 300));
            }
        }
    }

    static void aStatementLivesThroughChangesOfItsTable() throws Exception {
        try (Connection a = connect(PREPARED); Connection b = connect(PREPARED)) {
            run(a, "DROP TABLE IF EXISTS jdbc_changed");
            run(a, "CREATE TABLE jdbc_changed AS SELECT 1 AS x");
            try (PreparedStatement one = a.prepareStatement("SELECT x FROM jdbc_changed WHERE x = ?");
                 PreparedStatement two = b.prepareStatement("SELECT x FROM jdbc_changed WHERE x = ?")) {
                for (int turn = 0; turn < 3; turn++) {
                    for (PreparedStatement it : List.of(one, two)) {
                        it.setInt(1, 1);
                        try (ResultSet rows = it.executeQuery()) {
                            equal(rows.next(), true);
                        }
                    }
                    run(a, "ALTER TABLE jdbc_changed ADD y" + turn + " INT DEFAULT 2");
                }
            }
            run(a, "DROP TABLE jdbc_changed");
        }
    }

    static void transactionsAndSavepoints() throws Exception {
        for (String[] options : List.of(PREPARED, new String[0])) {
            try (Connection a = connect(options); Connection b = connect(options)) {
                run(a, "DROP TABLE IF EXISTS jdbc_rows");
                run(a, "CREATE TABLE jdbc_rows (x INT PRIMARY KEY)");
                a.setAutoCommit(false);
                run(a, "INSERT INTO jdbc_rows VALUES (1)");
                Savepoint savepoint = a.setSavepoint();
                run(a, "INSERT INTO jdbc_rows VALUES (2)");
                a.rollback(savepoint);
                fails(1062, () -> run(a, "INSERT INTO jdbc_rows VALUES (1)"));
                fails(1054, () -> value(a, "SELECT nothing + ?", 1));
                run(a, "INSERT INTO jdbc_rows VALUES (3)");
                equal(value(b, "SELECT COUNT(*) FROM jdbc_rows"), "0");
                a.commit();
                equal(value(b, "SELECT COUNT(*) FROM jdbc_rows"), "2");
                run(a, "DELETE FROM jdbc_rows");
                a.rollback();
                a.setAutoCommit(true);
                equal(value(a, "SELECT COUNT(*) FROM jdbc_rows"), "2");
                a.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                b.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
                for (int turn = 0; turn < 5; turn++) {
                    equal(value(a, "SELECT @@tx_isolation"), "SERIALIZABLE");
                    equal(value(b, "SELECT @@tx_isolation"), "READ-COMMITTED");
                }
                a.setReadOnly(true);
                a.setReadOnly(false);
                run(a, "DROP TABLE jdbc_rows");
            }
        }
    }

    static void batchesAndGeneratedKeys() throws Exception {
        for (String[] options : List.of(PREPARED, new String[] {"rewriteBatchedStatements", "true"}, new String[0])) {
            try (Connection a = connect(options)) {
                run(a, "DROP TABLE IF EXISTS jdbc_keys");
                run(a, "CREATE TABLE jdbc_keys (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30))");
                String sql = "INSERT INTO jdbc_keys (v) VALUES (?)";
                try (PreparedStatement insert = a.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
                    for (int turn = 0; turn < 500; turn++) {
                        insert.setString(1, "v" + turn);
                        insert.addBatch();
                    }
                    equal(insert.executeBatch().length, 500);
                    insert.setString(1, "last");
                    insert.executeUpdate();
                    try (ResultSet keys = insert.getGeneratedKeys()) {
                        keys.next();
                        equal(value(a, "SELECT v FROM jdbc_keys WHERE id = ?", keys.getInt(1)), "last");
                        equal(value(a, "SELECT LAST_INSERT_ID()"), keys.getString(1));
                    }
                }
                equal(value(a, "SELECT COUNT(*) FROM jdbc_keys"), "501");
                run(a, "DROP TABLE jdbc_keys");
            }
        }
    }

    static void rowsAreFetchedPieceByPiece() throws Exception {
        for (String[] options : List.of(PREPARED, new String[0])) {
            try (Connection a = connect(options)) {
                try (PreparedStatement all = a.prepareStatement("SELECT seq, REPEAT('x', 100) FROM seq_1_to_10000")) {
                    all.setFetchSize(37);
                    long total = 0;
                    try (ResultSet rows = all.executeQuery()) {
                        while (rows.next()) total += rows.getInt(1);
                    }
                    equal(total, 10_000L * 10_001 / 2);
                    // Whoever stops in the middle is not in the way of what comes next.
                    try (ResultSet rows = all.executeQuery()) {
                        rows.next();
                    }
                    equal(value(a, "SELECT 1"), "1");
                }
            }
        }
    }

    static void largeValues() throws Exception {
        for (String[] options : List.of(PREPARED, new String[0])) {
            try (Connection a = connect(options)) {
                byte[] large = new byte[(1 << 24) + 9];
                Arrays.fill(large, (byte) 'x');
                equal(value(a, "SELECT LENGTH(?)", (Object) large), String.valueOf(large.length));
                try (PreparedStatement it = a.prepareStatement("SELECT LENGTH(?), ?")) {
                    it.setBinaryStream(1, new ByteArrayInputStream(large), large.length);
                    it.setInt(2, 7);
                    try (ResultSet rows = it.executeQuery()) {
                        rows.next();
                        equal(List.of(rows.getInt(1), rows.getInt(2)), List.of(large.length, 7));
                    }
                }
                equal(value(a, "SELECT REPEAT('y', ?)", large.length).length(), large.length);
            }
        }
    }

    static void proceduresWithSeveralResults() throws Exception {
        for (String[] options : List.of(PREPARED, new String[0])) {
            try (Connection a = connect(options)) {
                run(a, "DROP PROCEDURE IF EXISTS jdbc_two");
                run(a, "CREATE PROCEDURE jdbc_two(n INT, OUT total INT) "
                    + "BEGIN SELECT n; SELECT '', n * 2; SET total = n * 3; END");
                for (int turn = 0; turn < 5; turn++) {
                    try (CallableStatement call = a.prepareCall("{call jdbc_two(?, ?)}")) {
                        call.setInt(1, turn);
                        call.registerOutParameter(2, java.sql.Types.INTEGER);
                        equal(call.execute(), true);
                        try (ResultSet rows = call.getResultSet()) {
                            rows.next();
                            equal(rows.getInt(1), turn);
                        }
                        equal(call.getMoreResults(), true);
                        try (ResultSet rows = call.getResultSet()) {
                            rows.next();
                            equal(List.of(rows.getString(1), rows.getInt(2)), List.of("", turn * 2));
                        }
                        equal(call.getInt(2), turn * 3);
                    }
                }
                run(a, "DROP PROCEDURE jdbc_two");
            }
        }
    }

    static void warningsAreTold() throws Exception {
        try (Connection a = connect()) {
            for (int turn = 0; turn < 3; turn++) {
                try (Statement statement = a.createStatement()) {
                    statement.execute("DROP TABLE IF EXISTS jdbc_nowhere_" + turn);
                    SQLWarning warning = statement.getWarnings();
                    equal(warning != null && warning.getMessage().contains("jdbc_nowhere_" + turn), true);
                    statement.execute("DO 1");
                    equal(statement.getWarnings(), null);
                }
            }
        }
    }

    static void aStatementIsCancelledAndTimesOut() throws Exception {
        try (Connection a = connect(); Statement slow = a.createStatement()) {
            slow.setQueryTimeout(1);
            try {
                slow.executeQuery("SELECT SLEEP(50), seq FROM seq_1_to_3");
                throw new AssertionError("it did not time out");
            } catch (SQLException error) {
                equal(error instanceof SQLTimeoutException || error.getErrorCode() == 1317
                    || error.getErrorCode() == 1969, true);
            }
            equal(value(a, "SELECT 1"), "1");
            try (Statement other = a.createStatement()) {
                AtomicBoolean isOver = new AtomicBoolean();
                Thread cancel = new Thread(() -> {
                    try {
                        // The driver knows nothing to cancel before the statement is sent, and the
                        // server nothing before it has come.
                        while (!isOver.get()) {
                            Thread.sleep(50);
                            other.cancel();
                        }
                    } catch (Exception error) {
                        // The statement ends by itself then, which is noticed.
                    }
                });
                cancel.start();
                try (ResultSet rows = other.executeQuery("SELECT SLEEP(50), seq FROM seq_1_to_3")) {
                    // A sleep that was interrupted says so by its value.
                    rows.next();
                    equal(rows.getInt(1), 1);
                } catch (SQLException error) {
                    equal(error.getErrorCode(), 1317);
                } finally {
                    isOver.set(true);
                    cancel.join();
                }
            }
        }
    }

    static void stateOfTheSessionStays() throws Exception {
        String[] more = {"sessionVariables", "sort_buffer_size=1048576", "useServerPrepStmts", "true"};
        try (Connection a = connect(more); Connection b = connect()) {
            run(b, "CREATE TEMPORARY TABLE jdbc_temp AS SELECT 'b' AS who");
            run(b, "SET @who = 'b'");
            a.setCatalog("information_schema");
            for (int turn = 0; turn < 10; turn++) {
                equal(value(a, "SELECT @@sort_buffer_size"), "1048576");
                equal(value(b, "SELECT @@sort_buffer_size").equals("1048576"), false);
                equal(value(b, "SELECT CONCAT(who, @who) FROM jdbc_temp"), "bb");
                equal(value(a, "SELECT @who"), null);
                equal(value(a, "SELECT DATABASE()"), "information_schema");
                equal(value(b, "SELECT DATABASE()"), System.getenv("MYSQL_DATABASE"));
                equal(a.isValid(5) && b.isValid(5), true);
            }
        }
    }

    static void manyClientsShareFewConnections() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        List<Future<?>> all = new ArrayList<>();
        for (int client = 0; client < CLIENTS; client++) {
            String me = "" + client;
            all.add(threads.submit(() -> {
                try (Connection c = connect(PREPARED)) {
                    c.setAutoCommit(false);
                    for (int turn = 0; turn < 30; turn++) {
                        equal(value(c, "SELECT CONCAT(?, 'x')", me), me + "x");
                        equal(value(c, "SELECT CONCAT(?, 'y')", me + turn), me + turn + "y");
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
        checks.put("statements_are_prepared_on_the_server", Client::statementsArePreparedOnTheServer);
        checks.put("a_statement_lives_through_changes_of_its_table", Client::aStatementLivesThroughChangesOfItsTable);
        checks.put("transactions_and_savepoints", Client::transactionsAndSavepoints);
        checks.put("batches_and_generated_keys", Client::batchesAndGeneratedKeys);
        checks.put("rows_are_fetched_piece_by_piece", Client::rowsAreFetchedPieceByPiece);
        checks.put("large_values", Client::largeValues);
        checks.put("procedures_with_several_results", Client::proceduresWithSeveralResults);
        checks.put("warnings_are_told", Client::warningsAreTold);
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
