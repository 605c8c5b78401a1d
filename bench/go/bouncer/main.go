// A relay that pools transactions as Go programs do it: a goroutine for each
// connection, one message at a time, a mutex and a condition variable around
// the idle connections. Between a client and a server that are goroutines of
// this program, it is what ours is compared with; see bench/bouncer.
package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"strings"

	"cove.bench/pool/measure"
)

const (
	samples = 41
	ops     = 500
)

var sink uint16

func main() {
	processors := flag.Int("processors", 2, "GOMAXPROCS")
	only := flag.String("only", "", "rows whose names begin so")
	flag.Parse()
	runtime.GOMAXPROCS(*processors)
	rows := []measure.Row{}
	add := func(name string, ops int, begin func() (func(ops int) bool, func())) {
		if strings.HasPrefix(name, *only) {
			batch, end := begin()
			rows = append(rows, measure.Batches(name, samples, ops, batch))
			end()
		}
	}
	for _, p := range pipes {
		for _, reset := range []bool{true, false} {
			way := p.name + "/" + map[bool]string{true: "reset_always", false: "dirty_only"}[reset]
			add("postgres/"+way, ops, func() (func(int) bool, func()) { return pgBatch(p, reset, pgAnswer) })
			add("postgres/"+way+"/rows", ops, func() (func(int) bool, func()) { return pgBatch(p, reset, pgRows) })
			add("mysql/"+way, ops, func() (func(int) bool, func()) { return mysqlBatch(p, reset, mysqlAnswer) })
			add("mysql/"+way+"/rows", ops, func() (func(int) bool, func()) { return mysqlBatch(p, reset, mysqlRows) })
		}
	}
	add("mysql/status_flags", 200_000, func() (func(int) bool, func()) {
		return func(ops int) bool {
			right := true
			for i := 0; i < ops; i++ {
				flags, ok := statusFlags(mysqlOK, 0x00)
				sink, right = flags, right && ok
			}
			return right && sink == 2
		}, func() {}
	})
	json.NewEncoder(os.Stdout).Encode(map[string][]measure.Row{"rows": rows})
}
