// Measures the pool and prints one JSON document; see bench/pool/run.py.
package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"sort"
	"sync"
	"time"
)

// Many short batches: on a shared machine the median of short ones is hardly
// ever interrupted.
const samples = 101

type row struct {
	Name        string  `json:"name"`
	NsPerOp     float64 `json:"ns_per_op"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	BytesPerOp  float64 `json:"bytes_per_op"`
	Checked     bool    `json:"checked"`
}

// measure runs batch a few times; batch does ops operations and says whether
// they came out right. The time is the median of the batches.
func measure(name string, ops int, batch func(ops int) bool) row {
	checked := batch(ops)
	times := make([]float64, samples)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		start := time.Now()
		checked = batch(ops) && checked
		times[i] = float64(time.Since(start).Nanoseconds()) / float64(ops)
	}
	runtime.ReadMemStats(&after)
	sort.Float64s(times)
	all := float64(ops * samples)
	return row{name, times[samples/2], float64(after.Mallocs-before.Mallocs) / all, float64(after.TotalAlloc-before.TotalAlloc) / all, checked}
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

var sink stats

func main() {
	runtime.GOMAXPROCS(2)
	ctx := context.Background()
	cycle := func(p *pool, ops int, between func()) bool {
		for i := 0; i < ops; i++ {
			c, err := p.acquire(ctx)
			if err != nil {
				return false
			}
			if between != nil {
				between()
			}
			p.put(c)
		}
		return true
	}
	all := func(p *pool) bool { s := p.stats(); return s.idle == p.limits.max && s.active == 0 }

	one, twelve, four, eight := newPool(1), newPool(12), newPool(4), newPool(8)
	rows := []row{
		measure("pool/acquire_return", 8_000, func(ops int) bool { return cycle(one, ops, nil) && all(one) }),
		measure("pool/parallel", 8_000, func(ops int) bool {
			return tasks(2, ops, func(ops int) bool { return cycle(twelve, ops, nil) }) && all(twelve)
		}),
		measure("pool/contended", 8_000, func(ops int) bool {
			return tasks(16, ops, func(ops int) bool { return cycle(four, ops, nil) }) && all(four)
		}),
		measure("pool/contended_yield", 8_000, func(ops int) bool {
			return tasks(16, ops, func(ops int) bool { return cycle(four, ops, runtime.Gosched) }) && all(four)
		}),
		measure("pool/throughput", 8_000, func(ops int) bool {
			tokens := make(chan struct{}, ops)
			for i := 0; i < ops; i++ {
				tokens <- struct{}{}
			}
			close(tokens)
			return tasks(32, 32, func(int) bool {
				for range tokens {
					if !cycle(eight, 1, nil) {
						return false
					}
				}
				return true
			}) && all(eight)
		}),
		measure("pool/stats", 50_000, func(ops int) bool {
			for i := 0; i < ops; i++ {
				sink = four.stats()
			}
			return sink.idle == 4
		}),
	}
	json.NewEncoder(os.Stdout).Encode(map[string][]row{"rows": rows})
}
