// Measures sync.Pool with 4 KiB buffers and prints one JSON document; see
// bench/pool/run.py.
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

const (
	samples  = 101 // many short ones, which are hardly ever interrupted
	capacity = 4096
)

type row struct {
	Name        string  `json:"name"`
	NsPerOp     float64 `json:"ns_per_op"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	BytesPerOp  float64 `json:"bytes_per_op"`
	Checked     bool    `json:"checked"`
}

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

func tasks(n, ops int, work func(ops int) bool) bool {
	var group sync.WaitGroup
	var wrong atomic.Int64
	for i := 0; i < n; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			if !work(ops / n) {
				wrong.Add(1)
			}
		}()
	}
	group.Wait()
	return wrong.Load() == 0
}

var buffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, capacity)) }}

var (
	small = bytes.Repeat([]byte{'a'}, 64)
	large = bytes.Repeat([]byte{'b'}, 1024)
)

func pooled(ops int, text []byte) bool {
	right := true
	for i := 0; i < ops; i++ {
		b := buffers.Get().(*bytes.Buffer)
		b.Write(text)
		right = right && b.Len() == len(text)
		b.Reset()
		buffers.Put(b)
	}
	return right
}

//go:noinline
func fresh() *bytes.Buffer { return bytes.NewBuffer(make([]byte, 0, capacity)) }

func unpooled(ops int) bool {
	right := true
	for i := 0; i < ops; i++ {
		b := fresh()
		b.Write(small)
		right = right && b.Len() == len(small)
	}
	return right
}

func main() {
	runtime.GOMAXPROCS(2)
	workers := func(n int) func(int) bool {
		return func(ops int) bool { return tasks(n, ops, func(ops int) bool { return pooled(ops, small) }) }
	}
	rows := []row{
		measure("buffers/alone", 40_000, func(ops int) bool { return pooled(ops, small) }),
		measure("buffers/concurrent", 200_000, workers(2)),
		measure("buffers/workers_10", 200_000, workers(10)),
		measure("buffers/workers_100", 200_000, workers(100)),
		measure("buffers/sustained", 200_000, func(ops int) bool {
			return tasks(2, ops, func(ops int) bool { return pooled(ops, large) })
		}),
		measure("buffers/with_pool", 200_000, workers(2)),
		measure("buffers/without_pool", 40_000, func(ops int) bool { return tasks(2, ops, unpooled) }),
	}
	json.NewEncoder(os.Stdout).Encode(map[string][]row{"rows": rows})
}
