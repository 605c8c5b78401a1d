package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"cove.bench/pool/leases"
)

const (
	comQuery = 0x03
	comReset = 0x1f

	statusInTransaction = 0x0001
)

// packet reads one packet of MySQL's: a header with length and sequence
// number, and the payload.
func packet(r io.Reader) (byte, []byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	_, err := io.ReadFull(r, payload)
	return header[3], payload, err
}

func framed(sequence byte, payload []byte) []byte {
	n := len(payload)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, payload...)
}

func sendPacket(w io.Writer, sequence byte, payload []byte) error {
	_, err := w.Write(framed(sequence, payload))
	return err
}

var (
	mysqlQuery = framed(0, append([]byte{comQuery}, "SELECT 1"...))
	mysqlReset = []byte{comReset}
	mysqlOK    = []byte{0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00}
	mysqlEOF   = []byte{0xfe, 0x00, 0x00, 0x02, 0x00}
	// As with PostgreSQL: the seed answers a SELECT with OK, as no server does.
	mysqlAnswer = [][]byte{mysqlOK}
	mysqlRows   = [][]byte{
		{0x01},
		[]byte("\x03def\x00\x00\x00\x011\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x81\x00\x00\x00\x00"),
		mysqlEOF,
		{0x01, '1'},
		mysqlEOF,
	}
)

func mysqlServer(c net.Conn, answer [][]byte) {
	for {
		_, payload, err := packet(c)
		if err != nil {
			return
		}
		reply := answer
		switch payload[0] {
		case comQuery:
		case comReset:
			reply = mysqlAnswer
		default:
			panic("the server got neither a query nor a reset")
		}
		for i, m := range reply {
			if sendPacket(c, byte(i+1), m) != nil {
				return
			}
		}
	}
}

var errPacket = errors.New("a packet that makes no sense here")

// lengthEncoded gives an integer of MySQL's and how many bytes it took.
func lengthEncoded(b []byte) (uint64, int) {
	if len(b) == 0 {
		return 0, 0
	}
	switch b[0] {
	case 0xfc:
		if len(b) >= 3 {
			return uint64(binary.LittleEndian.Uint16(b[1:])), 3
		}
	case 0xfd:
		if len(b) >= 4 {
			return uint64(b[1]) | uint64(b[2])<<8 | uint64(b[3])<<16, 4
		}
	case 0xfe:
		if len(b) >= 9 {
			return binary.LittleEndian.Uint64(b[1:]), 9
		}
	default:
		return uint64(b[0]), 1
	}
	return 0, 0
}

// statusFlags reads the flags of an OK packet, behind two lengths.
func statusFlags(payload []byte, kind byte) (uint16, bool) {
	if len(payload) == 0 || payload[0] != kind {
		return 0, false
	}
	rest := payload[1:]
	for i := 0; i < 2; i++ {
		_, n := lengthEncoded(rest)
		if n == 0 {
			return 0, false
		}
		rest = rest[n:]
	}
	if len(rest) < 2 {
		return 0, false
	}
	return binary.LittleEndian.Uint16(rest), true
}

func mysqlRelay(client net.Conn, pool *leases.Pool, reset bool) error {
	if err := sendPacket(client, 2, mysqlOK); err != nil {
		return err
	}
	ctx := context.Background()
	var held *leases.Conn
	for {
		sequence, payload, err := packet(client)
		if err != nil {
			return err
		}
		if held == nil {
			if held, err = pool.Acquire(ctx); err != nil {
				return err
			}
		}
		if err = sendPacket(held.Net, sequence, payload); err != nil {
			return err
		}
		flags, err := mysqlCarry(held.Net, client)
		if err != nil {
			return err
		}
		if flags&statusInTransaction == 0 {
			if reset {
				if err = sendPacket(held.Net, 0, mysqlReset); err != nil {
					return err
				}
				_, payload, err := packet(held.Net)
				if err != nil {
					return err
				}
				if payload[0] != 0x00 {
					return errPacket
				}
			}
			pool.Put(held)
			held = nil
		}
	}
}

// mysqlCarry passes an answer on and gives the status flags of its end. An
// answer is one OK, or columns, EOF, rows, EOF.
func mysqlCarry(server net.Conn, client io.Writer) (uint16, error) {
	for ends, first := 0, true; ; first = false {
		sequence, payload, err := packet(server)
		if err != nil {
			return 0, err
		}
		if err := sendPacket(client, sequence, payload); err != nil {
			return 0, err
		}
		if first && payload[0] == 0x00 {
			flags, right := statusFlags(payload, 0x00)
			if !right {
				return 0, errPacket
			}
			return flags, nil
		}
		if payload[0] == 0xfe && len(payload) < 9 {
			if ends++; ends == 2 {
				return binary.LittleEndian.Uint16(payload[3:]), nil
			}
		}
	}
}

func mysqlBatch(p pipe, reset bool, answer [][]byte) (func(ops int) bool, func()) {
	client, front := p.make()
	back, server := p.make()
	go mysqlServer(server, answer)
	go func() {
		defer front.Close()
		mysqlRelay(front, leases.New(back), reset)
	}()
	_, _, err := packet(client)
	must(err)
	batch := func(ops int) bool {
		for i := 0; i < ops; i++ {
			if _, err := client.Write(mysqlQuery); err != nil {
				return false
			}
			for n, m := range answer {
				sequence, payload, err := packet(client)
				if err != nil || sequence != byte(n+1) || !bytes.Equal(payload, m) {
					return false
				}
			}
		}
		return true
	}
	return batch, func() { client.Close(); back.Close() }
}
