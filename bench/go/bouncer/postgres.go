package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"

	"cove.bench/pool/leases"
)

// message reads one message of PostgreSQL's in the usual way: its type, its
// length, its body.
func message(r io.Reader) (byte, []byte, error) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(r, kind); err != nil {
		return 0, nil, err
	}
	length := make([]byte, 4)
	if _, err := io.ReadFull(r, length); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length)-4)
	_, err := io.ReadFull(r, body)
	return kind[0], body, err
}

func encoded(kind byte, body []byte) []byte {
	out := make([]byte, 0, 5+len(body))
	out = append(out, kind)
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	return append(out, body...)
}

func send(w io.Writer, kind byte, body []byte) error {
	_, err := w.Write(encoded(kind, body))
	return err
}

var (
	pgQuery   = encoded('Q', []byte("SELECT 1\x00"))
	pgDiscard = []byte("DISCARD ALL\x00")
	// The seed's answers are no legal result of a SELECT: it has no rows.
	pgAnswer = [][2]any{{byte('C'), []byte("SELECT 1\x00")}, {byte('Z'), []byte("I")}}
	pgRows   = [][2]any{
		{byte('T'), []byte("\x00\x01?column?\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x17\x00\x04\xff\xff\xff\xff\x00\x00")},
		{byte('D'), []byte("\x00\x01\x00\x00\x00\x011")},
		{byte('C'), []byte("SELECT 1\x00")},
		{byte('Z'), []byte("I")},
	}
	pgReset = [][2]any{{byte('C'), []byte("DISCARD\x00")}, {byte('Z'), []byte("I")}}
)

// pgServer stands for PostgreSQL: it knows one query and the reset.
func pgServer(c net.Conn, answer [][2]any) {
	for {
		kind, body, err := message(c)
		if err != nil {
			return
		}
		if kind != 'Q' {
			panic("the server got no query")
		}
		reply := answer
		if bytes.Equal(body, pgDiscard) {
			reply = pgReset
		}
		for _, m := range reply {
			if send(c, m[0].(byte), m[1].([]byte)) != nil {
				return
			}
		}
	}
}

// pgRelay pools transactions: it leases a connection with a client's message,
// carries the answer over, and gives the connection back once the server is
// outside of a transaction, after a reset if there is to be one. It ends with an
// error; one that is no end of the bench shows as an answer that is missing.
func pgRelay(client net.Conn, pool *leases.Pool, reset bool) error {
	if err := pgGreet(client); err != nil {
		return err
	}
	ctx := context.Background()
	var held *leases.Conn
	for {
		kind, body, err := message(client)
		if err != nil {
			return err
		}
		if held == nil {
			if held, err = pool.Acquire(ctx); err != nil {
				return err
			}
		}
		if err = send(held.Net, kind, body); err != nil {
			return err
		}
		status, err := pgCarry(held.Net, client)
		if err != nil {
			return err
		}
		if status == 'I' {
			if reset {
				if err = send(held.Net, 'Q', pgDiscard); err != nil {
					return err
				}
				if _, err = pgCarry(held.Net, io.Discard); err != nil {
					return err
				}
			}
			pool.Put(held)
			held = nil
		}
	}
}

// pgCarry passes messages on until the server is ready, and gives its status.
func pgCarry(server net.Conn, client io.Writer) (byte, error) {
	for {
		kind, body, err := message(server)
		if err != nil {
			return 0, err
		}
		if client != io.Discard {
			if err := send(client, kind, body); err != nil {
				return 0, err
			}
		}
		if kind == 'Z' {
			return body[0], nil
		}
	}
}

// pgGreet says what a server says after a login.
func pgGreet(client net.Conn) error {
	greeting := encoded('R', []byte{0, 0, 0, 0})
	greeting = append(greeting, encoded('S', []byte("server_version\x0015.0\x00"))...)
	greeting = append(greeting, encoded('K', []byte{0, 0, 0, 1, 0, 0, 0, 2})...)
	greeting = append(greeting, encoded('Z', []byte("I"))...)
	_, err := client.Write(greeting)
	return err
}

// pgBatch starts a relay between two pipes and gives the client's side: so
// many queries, each with all of its answer looked at.
func pgBatch(p pipe, reset bool, answer [][2]any) (func(ops int) bool, func()) {
	client, front := p.make()
	back, server := p.make()
	go pgServer(server, answer)
	go func() {
		defer front.Close()
		pgRelay(front, leases.New(back), reset)
	}()
	for kind := byte(0); kind != 'Z'; {
		var err error
		kind, _, err = message(client)
		must(err)
	}
	batch := func(ops int) bool {
		for i := 0; i < ops; i++ {
			if _, err := client.Write(pgQuery); err != nil {
				return false
			}
			for _, m := range answer {
				kind, body, err := message(client)
				if err != nil || kind != m[0].(byte) || !bytes.Equal(body, m[1].([]byte)) {
					return false
				}
			}
		}
		return true
	}
	return batch, func() { client.Close(); back.Close() }
}
