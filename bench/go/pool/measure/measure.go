// Package measure has batches, medians and allocations per operation.
package measure

import (
	"runtime"
	"sort"
	"time"
)

// Row is one line of figures.
type Row struct {
	Name        string  `json:"name"`
	NsPerOp     float64 `json:"ns_per_op"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	BytesPerOp  float64 `json:"bytes_per_op"`
	Checked     bool    `json:"checked"`
}

// Batches runs batch a few times; batch does ops operations and says whether
// they came out right. The time is the median of the samples. Many short ones
// are best: on a shared machine their median is hardly ever interrupted.
func Batches(name string, samples, ops int, batch func(ops int) bool) Row {
	return Prepared(name, samples, ops, func(ops int) func() bool {
		return func() bool { return batch(ops) }
	})
}

// Prepared is the same where each batch needs something made before; only what
// prepare gives is measured, but its allocations count.
func Prepared(name string, samples, ops int, prepare func(ops int) func() bool) Row {
	checked := prepare(ops)()
	times := make([]float64, samples)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		batch := prepare(ops)
		start := time.Now()
		checked = batch() && checked
		times[i] = float64(time.Since(start).Nanoseconds()) / float64(ops)
	}
	runtime.ReadMemStats(&after)
	sort.Float64s(times)
	all := float64(ops * samples)
	return Row{name, times[samples/2], float64(after.Mallocs-before.Mallocs) / all, float64(after.TotalAlloc-before.TotalAlloc) / all, checked}
}
