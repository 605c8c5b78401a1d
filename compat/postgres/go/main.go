// Two clients for Go against one server: pgx in its five ways of running a query, and lib/pq.
//
// Named by PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. A line of JSON for each check.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
)

const patience = 60 * time.Second

var clients = 16

type check struct {
	name string
	run  func(context.Context) error
}

func address() string {
	return fmt.Sprintf("host=%s port=%s dbname=%s user=%s password='%s' sslmode=disable connect_timeout=20",
		os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGDATABASE"), os.Getenv("PGUSER"), os.Getenv("PGPASSWORD"))
}

func connect(ctx context.Context, mode pgx.QueryExecMode, more string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(address() + more)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = mode
	return pgx.ConnectConfig(ctx, config)
}

func connectTwo(ctx context.Context) (*pgx.Conn, *pgx.Conn, error) {
	a, err := connect(ctx, pgx.QueryExecModeCacheStatement, "")
	if err != nil {
		return nil, nil, err
	}
	b, err := connect(ctx, pgx.QueryExecModeCacheStatement, "")
	return a, b, err
}

type querier interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}

func value[T comparable](ctx context.Context, c querier, expected T, text string, args ...any) error {
	var seen T
	if err := c.QueryRow(ctx, text, args...).Scan(&seen); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if seen != expected {
		return fmt.Errorf("%s: %v is not %v", text, seen, expected)
	}
	return nil
}

func code(err error) string {
	var ours *pgconn.PgError
	var theirs *pq.Error
	switch {
	case errors.As(err, &ours):
		return ours.Code
	case errors.As(err, &theirs):
		return string(theirs.Code)
	case err == nil:
		return "no error"
	default:
		return err.Error()
	}
}

func expect(err error, wanted string) error {
	if code(err) != wanted {
		return fmt.Errorf("%s is not %s", code(err), wanted)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func until(what string, probe func() (bool, error)) error {
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if seen, err := probe(); err != nil || seen {
			return err
		}
	}
	return fmt.Errorf("not in time: %s", what)
}

func everyWayOfRunning(ctx context.Context) error {
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	var all []*pgx.Conn
	for _, mode := range modes {
		c, err := connect(ctx, mode, " statement_cache_capacity=100")
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		all = append(all, c)
	}
	// In turns, so that connections to the server go from hand to hand.
	for turn := 0; turn < 200; turn++ {
		for _, c := range all {
			err := first(
				value(ctx, c, int32(turn+1), "SELECT $1::int4 + 1", int32(turn)),
				value(ctx, c, int32(turn), fmt.Sprintf("SELECT $1::int4 + %d", turn%150), int32(turn-turn%150)),
				expect(value(ctx, c, int32(0), "SELECT 1 / $1::int4", int32(0)), "22012"),
			)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Config().DefaultQueryExecMode, err)
			}
		}
	}
	return nil
}

func namedStatements(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	_, errA := a.Prepare(ctx, "mine", "SELECT 'a' || $1::text")
	_, errB := b.Prepare(ctx, "mine", "SELECT 'b' || $1::text")
	if err := first(errA, errB); err != nil {
		return err
	}
	for turn := 0; turn < 20; turn++ {
		if err := first(value(ctx, a, "ax", "mine", "x"), value(ctx, b, "bx", "mine", "x")); err != nil {
			return err
		}
	}
	if err := a.Deallocate(ctx, "mine"); err != nil {
		return err
	}
	_, err = a.Exec(ctx, "mine", pgx.QueryExecModeExec, "x")
	return first(expect(err, "42601"), value(ctx, b, "bx", "mine", "x"))
}

func changedTables(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	if _, err := a.Exec(ctx, "DROP TABLE IF EXISTS pgx_changed"); err != nil {
		return err
	}
	if _, err := a.Exec(ctx, "CREATE TABLE pgx_changed AS SELECT 1 AS x"); err != nil {
		return err
	}
	all := "SELECT to_jsonb(t)::text FROM (SELECT * FROM pgx_changed) AS t"
	star := "SELECT * FROM pgx_changed"
	columns := func(c *pgx.Conn) (int, error) {
		rows, err := c.Query(ctx, star)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		count := len(rows.FieldDescriptions())
		for rows.Next() {
		}
		return count, rows.Err()
	}
	for _, c := range []*pgx.Conn{a, b} {
		if count, err := columns(c); err != nil || count != 1 {
			return fmt.Errorf("%d columns: %w", count, err)
		}
		if err := value(ctx, c, `{"x": 1}`, all); err != nil {
			return err
		}
	}
	if _, err := a.Exec(ctx, "ALTER TABLE pgx_changed ADD y int DEFAULT 2"); err != nil {
		return err
	}
	for _, c := range []*pgx.Conn{a, b} {
		// PostgreSQL tells it once, and the driver forgets the statement.
		if _, err := columns(c); err != nil && code(err) != "0A000" {
			return err
		}
		if count, err := columns(c); err != nil || count != 2 {
			return fmt.Errorf("%d columns: %w", count, err)
		}
		if err := value(ctx, c, `{"x": 1, "y": 2}`, all); err != nil {
			return err
		}
	}
	late, err := connect(ctx, pgx.QueryExecModeCacheStatement, "")
	if err != nil {
		return err
	}
	defer late.Close(ctx)
	return pgx.BeginFunc(ctx, late, func(tx pgx.Tx) error {
		if count, err := columns(late); err != nil || count != 2 {
			return fmt.Errorf("%d columns: %w", count, err)
		}
		_, err := tx.Exec(ctx, "DROP TABLE pgx_changed")
		return err
	})
}

func batches(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	for turn := 0; turn < 10; turn++ {
		batch := &pgx.Batch{}
		for number := 0; number < 100; number++ {
			batch.Queue("SELECT $1::int4", int32(number))
		}
		results := a.SendBatch(ctx, batch)
		for number := 0; number < 100; number++ {
			var seen int32
			if err := results.QueryRow().Scan(&seen); err != nil || seen != int32(number) {
				return fmt.Errorf("%d is not %d: %w", seen, number, err)
			}
		}
		if err := results.Close(); err != nil {
			return err
		}
		broken := &pgx.Batch{}
		broken.Queue("SELECT 1")
		broken.Queue("SELECT 1 / $1::int4", int32(0))
		broken.Queue("SELECT 'batch' || $1::text", fmt.Sprint(turn))
		if err := expect(b.SendBatch(ctx, broken).Close(), "22012"); err != nil {
			return err
		}
		if err := value(ctx, b, fmt.Sprint("batch", turn), "SELECT 'batch' || $1::text", fmt.Sprint(turn)); err != nil {
			return err
		}
	}
	return nil
}

func transactionsAndCopies(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	for _, text := range []string{"DROP TABLE IF EXISTS pgx_rows", "CREATE TABLE pgx_rows (x int PRIMARY KEY)"} {
		if _, err := a.Exec(ctx, text); err != nil {
			return err
		}
	}
	err = pgx.BeginFunc(ctx, a, func(tx pgx.Tx) error {
		rows := make([][]any, 10000)
		for number := range rows {
			rows[number] = []any{int32(number)}
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"pgx_rows"}, []string{"x"}, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		inner := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"pgx_rows"}, []string{"x"}, pgx.CopyFromRows(rows[:1]))
			return err
		})
		return first(expect(inner, "23505"), value(ctx, b, int64(0), "SELECT count(*) FROM pgx_rows"))
	})
	if err != nil {
		return err
	}
	if err := value(ctx, b, int64(10000), "SELECT count(*) FROM pgx_rows"); err != nil {
		return err
	}
	var out strings.Builder
	if _, err := a.PgConn().CopyTo(ctx, &out, "COPY pgx_rows TO STDOUT"); err != nil || strings.Count(out.String(), "\n") != 10000 {
		return fmt.Errorf("%d bytes: %w", out.Len(), err)
	}
	_, err = a.PgConn().CopyFrom(ctx, strings.NewReader(strings.Repeat("nonsense\n", 10000)), "COPY pgx_rows FROM STDIN")
	if err := expect(err, "22P02"); err != nil {
		return err
	}
	_, err = a.Exec(ctx, "DROP TABLE pgx_rows")
	return err
}

func notifications(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	if _, err := a.Exec(ctx, "LISTEN pgx_channel"); err != nil {
		return err
	}
	for number := 0; number < 30; number++ {
		if _, err := b.Exec(ctx, "SELECT pg_notify('pgx_channel', $1)", fmt.Sprint(number)); err != nil {
			return err
		}
	}
	for number := 0; number < 30; number++ {
		soon, done := context.WithTimeout(ctx, 20*time.Second)
		one, err := a.WaitForNotification(soon)
		done()
		if err != nil || one.Channel != "pgx_channel" || one.Payload != fmt.Sprint(number) {
			return fmt.Errorf("notification %d: %v: %w", number, one, err)
		}
	}
	return nil
}

func cancelling(ctx context.Context) error {
	a, b, err := connectTwo(ctx)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	text := "SELECT pg_sleep(60)::text AS pgx_cancelled"
	over := make(chan error, 1)
	go func() { over <- value(ctx, a, "", text) }()
	err = until("the statement to run", func() (bool, error) {
		var count int
		running := `SELECT count(*) FROM pg_stat_activity
			WHERE query = $1 AND wait_event = 'PgSleep' AND datname = current_database()`
		err := b.QueryRow(ctx, running, text).Scan(&count)
		return count > 0, err
	})
	if err != nil {
		return err
	}
	if err := a.PgConn().CancelRequest(ctx); err != nil && !strings.Contains(err.Error(), "EOF") {
		return err
	}
	return first(expect(<-over, "57014"), value(ctx, a, int32(1), "SELECT 1"), value(ctx, b, int32(2), "SELECT 2"))
}

func stateOfTheSession(ctx context.Context) error {
	a, err := connect(ctx, pgx.QueryExecModeCacheStatement, " work_mem=3MB search_path=pg_catalog")
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	b, err := connect(ctx, pgx.QueryExecModeCacheStatement, "")
	if err != nil {
		return err
	}
	defer b.Close(ctx)
	if _, err := b.Exec(ctx, "CREATE TEMP TABLE pgx_temp AS SELECT 'b' AS who"); err != nil {
		return err
	}
	for turn := 0; turn < 10; turn++ {
		err := first(
			value(ctx, a, "3MB", "SHOW work_mem"),
			value(ctx, a, "pg_catalog", "SHOW search_path"),
			value(ctx, b, "b", "SELECT who FROM pgx_temp"),
			expect(value(ctx, a, "", "SELECT who FROM pg_temp.pgx_temp"), "42P01"),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func manyClients(ctx context.Context) error {
	var group sync.WaitGroup
	failures := make(chan error, clients)
	for client := 0; client < clients; client++ {
		group.Add(1)
		go func(me string) {
			defer group.Done()
			failures <- func() error {
				c, err := connect(ctx, pgx.QueryExecModeCacheStatement, "")
				if err != nil {
					return err
				}
				defer c.Close(ctx)
				if _, err := c.Exec(ctx, "SELECT set_config('cove.who', $1, false)", me); err != nil {
					return err
				}
				for turn := 0; turn < 40; turn++ {
					err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
						return first(
							value(ctx, tx, me, "SELECT current_setting('cove.who')"),
							value(ctx, tx, me+"x", "SELECT $1::text || 'x'", me),
						)
					})
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}(fmt.Sprint(client))
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func libpq(ctx context.Context) error {
	for _, binary := range []string{"", " binary_parameters=yes"} {
		db, err := sql.Open("postgres", address()+binary)
		if err != nil {
			return err
		}
		defer db.Close()
		db.SetMaxOpenConns(clients)
		var group sync.WaitGroup
		failures := make(chan error, clients*20)
		for number := 0; number < clients*20; number++ {
			group.Add(1)
			go func(number int) {
				defer group.Done()
				var seen int
				err := db.QueryRowContext(ctx, "SELECT $1::int + 1", number).Scan(&seen)
				if err == nil && seen != number+1 {
					err = fmt.Errorf("%d is not %d", seen, number+1)
				}
				failures <- err
			}(number)
		}
		group.Wait()
		close(failures)
		for err := range failures {
			if err != nil {
				return err
			}
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("CREATE TEMP TABLE lib_copied (x int)"); err != nil {
			return err
		}
		copying, err := tx.Prepare(pq.CopyIn("lib_copied", "x"))
		if err != nil {
			return err
		}
		for number := 0; number < 5000; number++ {
			if _, err := copying.Exec(number); err != nil {
				return err
			}
		}
		if _, err := copying.Exec(); err != nil {
			return err
		}
		if err := copying.Close(); err != nil {
			return err
		}
		var count int
		if err := tx.QueryRow("SELECT count(*) FROM lib_copied").Scan(&count); err != nil || count != 5000 {
			return fmt.Errorf("%d rows: %w", count, err)
		}
		if err := tx.Rollback(); err != nil {
			return err
		}
		text := "SELECT pg_sleep(60) AS lib_given_up"
		given, giveUp := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(given, text)
			over <- err
		}()
		err = until("the statement to run", func() (bool, error) {
			var count int
			running := `SELECT count(*) FROM pg_stat_activity
				WHERE query = $1 AND wait_event = 'PgSleep' AND datname = current_database()`
			err := db.QueryRowContext(ctx, running, text).Scan(&count)
			return count > 0, err
		})
		giveUp()
		if err := <-over; code(err) != "57014" && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("it was given up: %w", err)
		}
		if err != nil {
			return err
		}
	}
	listener := pq.NewListener(address(), time.Second, time.Minute, nil)
	defer listener.Close()
	if err := listener.Listen("lib_channel"); err != nil {
		return err
	}
	db, err := sql.Open("postgres", address())
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("SELECT pg_notify('lib_channel', 'hello')"); err != nil {
		return err
	}
	select {
	case one := <-listener.Notify:
		if one == nil || one.Extra != "hello" {
			return fmt.Errorf("notification %v", one)
		}
	case <-time.After(20 * time.Second):
		return errors.New("no notification")
	}
	return nil
}

func main() {
	if text := os.Getenv("CLIENTS"); text != "" {
		fmt.Sscan(text, &clients)
	}
	failed := false
	for _, one := range []check{
		{"pgx_runs_queries_in_every_way", everyWayOfRunning},
		{"pgx_names_are_the_client_s", namedStatements},
		{"pgx_statements_live_through_changes_of_tables", changedTables},
		{"pgx_batches_keep_their_order_and_survive_errors", batches},
		{"pgx_transactions_and_copies", transactionsAndCopies},
		{"pgx_notifications_reach_whoever_listens", notifications},
		{"pgx_cancels_what_it_does", cancelling},
		{"pgx_state_of_the_session_stays", stateOfTheSession},
		{"pgx_many_clients_share_few_connections", manyClients},
		{"lib_pq", libpq},
	} {
		if len(os.Args) > 1 && !strings.Contains(one.name, os.Args[1]) {
			continue
		}
		ctx, done := context.WithTimeout(context.Background(), patience)
		err := one.run(ctx)
		done()
		line := map[string]any{"check": one.name, "ok": err == nil}
		if err != nil {
			line["error"] = err.Error()
			failed = true
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
	if failed {
		os.Exit(1)
	}
}
