// A server of MySQL 8's kind, with users that prove who they are by caching_sha2_password, which no
// MariaDB has. Says where it listens, and ends with its standard input.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"crypto/tls"
	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
)

// Users are kept nowhere.
type nowhere struct{}

func (nowhere) Persist(*sql.Context, []byte) error { return nil }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	db := memory.NewDatabase("sha2")
	db.BaseDatabase.EnablePrimaryKeyIndexes()
	provider := memory.NewDBProvider(db)
	engine := sqle.NewDefault(provider)
	users := engine.Analyzer.Catalog.MySQLDb
	users.SetEnabled(true)
	users.SetPersister(nowhere{})
	users.AddRootAccount()
	session := memory.NewSession(sql.NewBaseSession(), provider)
	ctx := sql.NewContext(context.Background(), sql.WithSession(session))
	session.SetClient(sql.Client{User: "root", Address: "localhost"})
	ctx.SetCurrentDatabase("sha2")
	for _, statement := range os.Args[3:] {
		_, rows, _, err := engine.Query(ctx, statement)
		check(err)
		_, err = sql.RowIterToRows(ctx, rows)
		check(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	check(err)
	config := server.Config{
		Protocol:  "tcp",
		Listener:  listener,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Version:   "8.0.33",
	}
	s, err := server.NewServer(config, engine, sql.NewContext, memory.NewSessionBuilder(provider), nil)
	check(err)
	fmt.Println(listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	check(s.Start())
}
