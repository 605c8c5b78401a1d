// The seed's rows that serialise and make tokens, written anew from their
// definitions: encoding/json of maps, into bytes of its own or into a buffer of
// a sync.Pool. Prints one JSON document; see bench/catalog.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"cove.bench/pool/measure"
)

const samples = 101

type object = map[string]any

func fields(n int) []object {
	all := make([]object, n)
	for i := range all {
		all[i] = object{
			"id": i + 1, "name": "field_" + string(rune('a'+i%26)), "required": i%2 == 0, "type": "string",
		}
	}
	return all
}

func snapshots(n int) []object {
	all := make([]object, n)
	for i := range all {
		all[i] = object{
			"snapshot-id": i + 1, "timestamp-ms": int64(1703376000000) + int64(i)*1000,
			"summary":         map[string]string{"operation": "append"},
			"manifest-list":   "s3://warehouse/default/test/metadata/snap-" + string(rune('0'+i)),
			"sequence-number": i + 1, "schema-id": 0,
		}
	}
	return all
}

func document(table string, columns int, history []object) object {
	return object{
		"format-version": 2, "table-uuid": "550e8400-e29b-41d4-a716-446655440000",
		"location":        "s3://warehouse/default/" + table,
		"last-updated-ms": int64(1703376000000),
		"properties":      map[string]string{"owner": "test"}, "current-schema-id": 0,
		"schemas":         []object{{"schema-id": 0, "type": "struct", "fields": fields(columns)}},
		"default-spec-id": 0, "partition-specs": []any{}, "default-sort-order-id": 0,
		"sort-orders": []any{}, "snapshots": history, "snapshot-log": []any{}, "refs": object{},
	}
}

func small() object {
	d := document("test_table", 20, []object{})
	d["properties"] = map[string]string{"owner": "test", "created-by": "bingsan"}
	d["partition-specs"] = []object{{"spec-id": 0, "fields": []any{}}}
	d["sort-orders"] = []object{{"order-id": 0, "fields": []any{}}}
	return d
}

func large() object {
	d := document("large_table", 100, snapshots(10))
	d["refs"] = object{"main": object{"snapshot-id": 1}}
	return d
}

func without(d object, names ...string) object {
	for _, name := range names {
		delete(d, name)
	}
	return d
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func fresh(name string, d object) measure.Row {
	length := len(marshalled(d))
	return measure.Batches("seed/"+name, samples, 50, func(ops int) bool {
		right := true
		for i := 0; i < ops; i++ {
			right = right && len(marshalled(d)) == length
		}
		return right
	})
}

func marshalled(d object) []byte {
	out, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return out
}

func encode(d object, length int) bool {
	buffer := buffers.Get().(*bytes.Buffer)
	buffer.Reset()
	err := json.NewEncoder(buffer).Encode(d)
	right := err == nil && buffer.Len() == length+1
	buffers.Put(buffer)
	return right
}

func reused(name string, d object) measure.Row {
	length := len(marshalled(d))
	return measure.Batches("seed/"+name, samples, 50, func(ops int) bool {
		right := true
		for i := 0; i < ops; i++ {
			right = encode(d, length) && right
		}
		return right
	})
}

// A hundred goroutines, however many processors there are.
func parallel(name string, d object, ops int) measure.Row {
	length, tasks := len(marshalled(d)), 100
	return measure.Batches("seed/"+name, samples, ops, func(ops int) bool {
		var group sync.WaitGroup
		wrong := make([]bool, tasks)
		for task := 0; task < tasks; task++ {
			group.Add(1)
			go func(task int) {
				defer group.Done()
				for i := 0; i < ops/tasks; i++ {
					wrong[task] = !encode(d, length) || wrong[task]
				}
			}(task)
		}
		group.Wait()
		right := true
		for _, one := range wrong {
			right = right && !one
		}
		return right
	})
}

var tokens = sync.Pool{New: func() any { return make([]byte, 32) }}

func token() string {
	secret := make([]byte, 32)
	rand.Read(secret)
	return hex.EncodeToString(secret)
}

func pooledToken() string {
	secret := tokens.Get().([]byte)
	rand.Read(secret)
	text := hex.EncodeToString(secret)
	tokens.Put(secret)
	return text
}

func tokenRow(name string, make func() string) measure.Row {
	return measure.Batches("seed/"+name, samples, 2_000, func(ops int) bool {
		right := true
		for i := 0; i < ops; i++ {
			right = right && len(make()) == 64
		}
		return right
	})
}

// compare stops unless a document is, byte for byte, what was written down.
func compare(d object, file string) object {
	wanted, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(marshalled(d), wanted) {
		fmt.Fprintln(os.Stderr, file, "is not what is measured:", err)
		os.Exit(1)
	}
	return d
}

func size(d object, length int) object {
	if len(marshalled(d)) != length {
		fmt.Fprintln(os.Stderr, "a document has", len(marshalled(d)), "bytes and not", length)
		os.Exit(1)
	}
	return d
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go-catalog DIRECTORY-OF-FIXTURES")
		os.Exit(2)
	}
	file := func(name string) string { return os.Args[1] + "/fix_" + name + ".json" }
	s, l := compare(small(), file("small")), compare(large(), file("large"))
	gc := compare(document("test_table", 20, []object{}), file("gc_baseline"))
	pool := compare(without(document("test_table", 20, nil), "default-spec-id", "partition-specs",
		"default-sort-order-id", "sort-orders", "snapshots", "snapshot-log", "refs"), file("gc_pool"))
	twelve := size(without(document("test_table", 20, []object{}), "default-sort-order-id", "sort-orders"), 1523)
	rows := []measure.Row{
		fresh("small_fresh", s), reused("small_reused", s),
		fresh("large_fresh", l), reused("large_reused", l),
		fresh("gc_fresh", gc), reused("gc_reused", pool),
		parallel("concurrent_small", twelve, 1_000),
		tokenRow("token_fresh", token), tokenRow("token_reused", pooledToken),
	}
	json.NewEncoder(os.Stdout).Encode(map[string][]measure.Row{"rows": rows})
}
