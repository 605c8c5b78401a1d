// Drivers for Go in a sandbox with grants: pgx and lib/pq find their server in the environment, and
// go-sql-driver where a server of MySQL is when nobody says anything. None is told anything.
//
// Tables `notes (id int primary key, text …)` are there to write to; a hundred ids from 2000, 2100 and
// 2200 are these clients'. At ports 5433 and 3307 is the same to read. A line of JSON for each check.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

const (
	patience = 60 * time.Second
	clients  = 10
	large    = 8 << 20
)

// A driver, and how its server says things.
type driver struct {
	name, address, reader string
	user, missing, twice  string
	many, text, number    string
	ids                   int
}

const (
	manyOfPostgres = "SELECT x, repeat('y', 100) FROM generate_series(1, 50000) x"
	manyOfMariaDB  = "SELECT seq, repeat('y', 100) FROM seq_1_to_50000"
)

var drivers = []driver{
	{"pgx", "", "port=5433", "clerk", "42P01", "23505", manyOfPostgres, "CAST(? AS text)", "CAST(? AS int)", 2000},
	{"postgres", "", "port=5433", "clerk", "42P01", "23505", manyOfPostgres, "CAST(? AS text)", "CAST(? AS int)", 2100},
	{"mysql", "/", "tcp(127.0.0.1:3307)/", "judge", "42S02", "23000", manyOfMariaDB, "?", "?", 2200},
}

// The text with places as this driver's server has them.
func (d driver) places(text string) string {
	for number := 1; d.name != "mysql" && strings.Contains(text, "?"); number++ {
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", number), 1)
	}
	return text
}

func code(err error) string {
	var ours *pgconn.PgError
	var theirs *pq.Error
	var other *mysql.MySQLError
	switch {
	case errors.As(err, &ours):
		return ours.Code
	case errors.As(err, &theirs):
		return string(theirs.Code)
	case errors.As(err, &other):
		return string(other.SQLState[:])
	case err == nil:
		return "no error"
	default:
		return err.Error()
	}
}

func fails(wanted string, err error) error {
	if code(err) != wanted {
		return fmt.Errorf("%s is not %s", code(err), wanted)
	}
	return nil
}

func equal[T comparable](seen, wanted T) error {
	if seen != wanted {
		return fmt.Errorf("%v is not %v", seen, wanted)
	}
	return nil
}

func textsAndStatements(ctx context.Context, d driver, db *sql.DB) error {
	var who string
	if err := db.QueryRowContext(ctx, "SELECT current_user").Scan(&who); err != nil {
		return err
	}
	if err := equal(strings.Split(who, "@")[0], d.user); err != nil {
		return err
	}
	text := d.places(fmt.Sprintf("SELECT %s, %s, %s", d.number, d.text, d.text))
	statement, err := db.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer statement.Close()
	for turn := 0; turn < 5; turn++ {
		var number int
		var some string
		var none *string
		if err := statement.QueryRowContext(ctx, turn, fmt.Sprint("é'", turn), nil).Scan(&number, &some, &none); err != nil {
			return err
		}
		if number != turn || some != fmt.Sprint("é'", turn) || none != nil {
			return fmt.Errorf("%d %s %v", number, some, none)
		}
	}
	return nil
}

func moreClientsThanConnections(ctx context.Context, d driver, db *sql.DB) error {
	failures := make(chan error, clients)
	text := d.places("SELECT " + d.number)
	for client := 0; client < clients; client++ {
		go func(client int) {
			failures <- func() error {
				one, err := db.Conn(ctx)
				if err != nil {
					return err
				}
				defer one.Close()
				for turn := 0; turn < 5; turn++ {
					var seen int
					if err := one.QueryRowContext(ctx, text, client*10+turn).Scan(&seen); err != nil {
						return err
					}
					if err := equal(seen, client*10+turn); err != nil {
						return err
					}
				}
				return nil
			}()
		}(client)
	}
	var all []error
	for client := 0; client < clients; client++ {
		all = append(all, <-failures)
	}
	return errors.Join(all...)
}

func transactionsAndErrors(ctx context.Context, d driver, db *sql.DB) error {
	insert := d.places("INSERT INTO notes VALUES (?, ?)")
	count := func(wanted int) error {
		var seen int
		text := d.places("SELECT count(*) FROM notes WHERE id >= ? AND id < ?")
		err := db.QueryRowContext(ctx, text, d.ids, d.ids+100).Scan(&seen)
		return errors.Join(err, equal(seen, wanted))
	}
	one, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer one.Rollback()
	_, err = one.ExecContext(ctx, insert, d.ids, "kept")
	if err := errors.Join(err, count(0), one.Commit(), count(1)); err != nil {
		return err
	}
	two, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer two.Rollback()
	_, err = two.ExecContext(ctx, insert, d.ids+1, "undone")
	_, again := two.ExecContext(ctx, insert, d.ids, "again")
	if err := errors.Join(err, fails(d.twice, again), two.Rollback()); err != nil {
		return err
	}
	_, missing := db.ExecContext(ctx, "SELECT * FROM nowhere")
	_, prepared := db.ExecContext(ctx, d.places("SELECT * FROM nowhere WHERE x = ?"), 1)
	return errors.Join(fails(d.missing, missing), fails(d.missing, prepared), count(1))
}

func readersOnlyRead(ctx context.Context, d driver, _ *sql.DB) error {
	db, err := sql.Open(d.name, d.reader)
	if err != nil {
		return err
	}
	defer db.Close()
	_, update := db.ExecContext(ctx, "UPDATE notes SET text = 'stolen'")
	_, insert := db.ExecContext(ctx, d.places("INSERT INTO notes VALUES (?, ?)"), d.ids+2, "stolen")
	if err := errors.Join(fails("25006", update), fails("25006", insert)); err != nil {
		return err
	}
	var text string
	err = db.QueryRowContext(ctx, d.places("SELECT text FROM notes WHERE id = ?"), d.ids).Scan(&text)
	return errors.Join(err, equal(text, "kept"))
}

func muchAtOneTime(ctx context.Context, d driver, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, d.many)
	if err != nil {
		return err
	}
	defer rows.Close()
	count, sum := 0, 0
	for rows.Next() {
		var x int
		var y string
		if err := rows.Scan(&x, &y); err != nil {
			return err
		}
		count, sum = count+1, sum+x+len(y)
	}
	if err := errors.Join(rows.Err(), equal(count, 50_000), equal(sum, 50_000*50_001/2+5_000_000)); err != nil {
		return err
	}
	var seen string
	wanted := strings.Repeat("z", large)
	err = db.QueryRowContext(ctx, d.places("SELECT "+d.text), wanted).Scan(&seen)
	return errors.Join(err, equal(len(seen), large), equal(seen == wanted, true))
}

func main() {
	checks := []struct {
		name string
		run  func(context.Context, driver, *sql.DB) error
	}{
		{"texts and statements", textsAndStatements},
		{"more clients than connections", moreClientsThanConnections},
		{"transactions and errors", transactionsAndErrors},
		{"readers only read", readersOnlyRead},
		{"much at one time", muchAtOneTime},
	}
	for _, d := range drivers {
		db, err := sql.Open(d.name, d.address)
		for _, check := range checks {
			ctx, done := context.WithTimeout(context.Background(), patience)
			failed := err
			if failed == nil {
				failed = check.run(ctx, d, db)
			}
			done()
			line := map[string]any{"check": d.name + ": " + check.name, "ok": failed == nil}
			if failed != nil {
				line["error"] = failed.Error()
			}
			text, _ := json.Marshal(line)
			fmt.Println(string(text))
		}
	}
}
