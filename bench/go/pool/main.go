// Measures the pool and prints one JSON document; see bench/pool/run.py.
package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"sync"

	"cove.bench/pool/leases"
	"cove.bench/pool/measure"
)

const samples = 101

func measured(name string, ops int, batch func(ops int) bool) measure.Row {
	return measure.Batches(name, samples, ops, batch)
}

// tasks shares ops among n goroutines and reports whether every one succeeded.
func tasks(n, ops int, work func(ops int) bool) bool {
	var group sync.WaitGroup
	right := make([]bool, n)
	for i := 0; i < n; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			right[i] = work(ops / n)
		}()
	}
	group.Wait()
	for _, r := range right {
		if !r {
			return false
		}
	}
	return true
}

var sink leases.Stats

func main() {
	runtime.GOMAXPROCS(2)
	ctx := context.Background()
	cycle := func(p *leases.Pool, ops int, between func()) bool {
		for i := 0; i < ops; i++ {
			c, err := p.Acquire(ctx)
			if err != nil {
				return false
			}
			if between != nil {
				between()
			}
			p.Put(c)
		}
		return true
	}
	all := func(p *leases.Pool) bool { s := p.Stats(); return s.Idle == s.Max && s.Active == 0 }

	one, twelve, four, eight := leases.Filled(1), leases.Filled(12), leases.Filled(4), leases.Filled(8)
	rows := []measure.Row{
		measured("pool/acquire_return", 8_000, func(ops int) bool { return cycle(one, ops, nil) && all(one) }),
		measured("pool/parallel", 8_000, func(ops int) bool {
			return tasks(2, ops, func(ops int) bool { return cycle(twelve, ops, nil) }) && all(twelve)
		}),
		measured("pool/contended", 8_000, func(ops int) bool {
			return tasks(16, ops, func(ops int) bool { return cycle(four, ops, nil) }) && all(four)
		}),
		measured("pool/contended_yield", 8_000, func(ops int) bool {
			return tasks(16, ops, func(ops int) bool { return cycle(four, ops, runtime.Gosched) }) && all(four)
		}),
		measure.Prepared("pool/throughput", samples, 8_000, func(ops int) func() bool {
			tokens := make(chan struct{}, ops)
			for i := 0; i < ops; i++ {
				tokens <- struct{}{}
			}
			close(tokens)
			return func() bool {
				return tasks(32, 32, func(int) bool {
					for range tokens {
						if !cycle(eight, 1, nil) {
							return false
						}
					}
					return true
				}) && all(eight)
			}
		}),
		measured("pool/stats", 50_000, func(ops int) bool {
			for i := 0; i < ops; i++ {
				sink = four.Stats()
			}
			return sink.Idle == 4
		}),
	}
	json.NewEncoder(os.Stdout).Encode(map[string][]measure.Row{"rows": rows})
}
