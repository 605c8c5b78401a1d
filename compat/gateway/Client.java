// Drivers for Java in a sandbox with grants: PostgreSQL's JDBC driver and MariaDB's Connector/J find
// their servers where they are when nobody says anything. Neither is told anything.
//
// Tables `notes (id int primary key, text …)` are there to write to; a hundred ids from 3000 and 3100
// are these clients'. At ports 5433 and 3307 is the same to read. A line of JSON for each check.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Objects;

public class Client {
    record Driver(
        String name, String url, String reader, String user, String missing, String twice, String many, int ids) {}

    static final List<Driver> DRIVERS = List.of(
        new Driver("postgresql", "jdbc:postgresql:///", "jdbc:postgresql://127.0.0.1:5433/", "clerk", "42P01", "23505",
            "SELECT x, repeat('y', 100) FROM generate_series(1, 50000) x", 3000),
        new Driver("mariadb", "jdbc:mariadb://localhost/", "jdbc:mariadb://127.0.0.1:3307/", "judge", "42S02", "23000",
            "SELECT seq, repeat('y', 100) FROM seq_1_to_50000", 3100));

    interface Check {
        void run(Driver driver) throws Exception;
    }

    interface Step {
        void run() throws SQLException;
    }

    static void equal(Object seen, Object wanted) {
        if (!Objects.equals(seen, wanted)) throw new AssertionError(seen + " is not " + wanted);
    }

    static void fails(String wanted, Step step) {
        try {
            step.run();
        } catch (SQLException error) {
            equal(error.getSQLState(), wanted);
            return;
        }
        throw new AssertionError("it did not fail with " + wanted);
    }

    static String value(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int index = 0; index < values.length; index++) statement.setObject(index + 1, values[index]);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    static void run(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    static void insert(Connection connection, int id, String text) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO notes VALUES (?, ?)")) {
            statement.setInt(1, id);
            statement.setString(2, text);
            statement.executeUpdate();
        }
    }

    static void textsAndStatements(Driver driver) throws Exception {
        try (Connection one = DriverManager.getConnection(driver.url)) {
            equal(value(one, "SELECT current_user").split("@")[0], driver.user);
            // From the fifth time on the first driver prepares by name.
            for (int turn = 0; turn < 8; turn++) equal(value(one, "SELECT concat(?, '-', ?)", "é'", "" + turn), "é'-" + turn);
        }
    }

    static void transactionsAndErrors(Driver driver) throws Exception {
        String count = "SELECT count(*) FROM notes WHERE id >= " + driver.ids + " AND id < " + (driver.ids + 100);
        try (Connection a = DriverManager.getConnection(driver.url); Connection b = DriverManager.getConnection(driver.url)) {
            a.setAutoCommit(false);
            insert(a, driver.ids, "kept");
            equal(value(b, count), "0");
            a.commit();
            insert(a, driver.ids + 1, "undone");
            fails(driver.twice, () -> insert(a, driver.ids, "again"));
            a.rollback();
            fails(driver.missing, () -> run(b, "SELECT * FROM nowhere"));
            fails(driver.missing, () -> value(b, "SELECT * FROM nowhere WHERE x = ?", 1));
            equal(value(b, count), "1");
        }
    }

    static void readersOnlyRead(Driver driver) throws Exception {
        try (Connection one = DriverManager.getConnection(driver.reader)) {
            fails("25006", () -> run(one, "UPDATE notes SET text = 'stolen'"));
            fails("25006", () -> insert(one, driver.ids + 2, "stolen"));
            equal(value(one, "SELECT text FROM notes WHERE id = ?", driver.ids), "kept");
        }
    }

    static void muchAtOneTime(Driver driver) throws Exception {
        try (Connection one = DriverManager.getConnection(driver.url); Statement all = one.createStatement()) {
            one.setAutoCommit(false);
            all.setFetchSize(1000);
            long count = 0;
            long sum = 0;
            try (ResultSet rows = all.executeQuery(driver.many)) {
                for (; rows.next(); count++) sum += rows.getInt(1) + rows.getString(2).length();
            }
            equal(List.of(count, sum), List.of(50_000L, 50_000L * 50_001 / 2 + 5_000_000));
        }
    }

    static void report(String name, Check check, Driver driver) {
        String error = "";
        try {
            check.run(driver);
        } catch (Exception | AssertionError reason) {
            String escaped = reason.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
            error = ", \"error\": \"" + escaped + "\"";
        }
        System.out.println("{\"check\": \"" + driver.name + ": " + name + "\", \"ok\": " + error.isEmpty() + error + "}");
    }

    public static void main(String[] none) {
        for (Driver driver : DRIVERS) {
            report("texts and statements", Client::textsAndStatements, driver);
            report("transactions and errors", Client::transactionsAndErrors, driver);
            report("readers only read", Client::readersOnlyRead, driver);
            report("much at one time", Client::muchAtOneTime, driver);
        }
        System.exit(0);
    }
}
