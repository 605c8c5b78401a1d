// Program planned uses iceberg-go against a catalog: it makes a table, appends rows of many types and
// of a nested one, plans scans by the server and by itself, compares every statistic of every file,
// reads the rows by both plans, commits a property, and lists what is there.
//
// Arguments: the catalog's address and a token. Prints `ok`, or says what differs and exits with 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"
)

var (
	namespace  = catalog.ToIdentifier("go")
	identifier = catalog.ToIdentifier("go", "rows")
	names      = []string{"id", "small", "ratio", "factor", "text", "day", "at", "price", "flag", "point.x"}
)

func schema() *iceberg.Schema {
	field := func(id int, name string, kind iceberg.Type) iceberg.NestedField {
		return iceberg.NestedField{ID: id, Name: name, Type: kind}
	}
	point := &iceberg.StructType{FieldList: []iceberg.NestedField{field(11, "x", iceberg.PrimitiveTypes.Int64)}}
	return iceberg.NewSchema(0,
		field(1, "id", iceberg.PrimitiveTypes.Int64),
		field(2, "small", iceberg.PrimitiveTypes.Int32),
		field(3, "ratio", iceberg.PrimitiveTypes.Float32),
		field(4, "factor", iceberg.PrimitiveTypes.Float64),
		field(5, "text", iceberg.PrimitiveTypes.String),
		field(6, "day", iceberg.PrimitiveTypes.Date),
		field(7, "at", iceberg.PrimitiveTypes.Timestamp),
		field(8, "price", iceberg.DecimalTypeOf(9, 2)),
		field(9, "flag", iceberg.PrimitiveTypes.Bool),
		field(10, "point", point),
	)
}

func rows(first int) string {
	var all []string
	for id := first; id < first+3; id++ {
		all = append(all, fmt.Sprintf(`{"id": %d, "small": %d, "ratio": 1.5, "factor": -2.5, "text": "g\u00fc %d",
			"day": "2024-01-0%d", "at": "2024-01-01 10:00:00.%06d", "price": "-12.3%d", "flag": %t,
			"point": {"x": %d}}`, id, -id, id, id%9+1, id, id%10, id%2 == 0, id*7))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func run(ctx context.Context, address, token string) error {
	cat, err := rest.NewCatalog(ctx, "cove", address, rest.WithOAuthToken(token))
	if err != nil {
		return err
	}
	defer cat.Close()
	if !cat.SupportsFullRemoteScanPlanning() {
		return fmt.Errorf("the catalog does not say that it plans scans")
	}
	if err := cat.CreateNamespace(ctx, namespace, nil); err != nil {
		return err
	}
	spec := iceberg.NewPartitionSpec(iceberg.PartitionField{
		SourceIDs: []int{9}, FieldID: 1000, Name: "flag", Transform: iceberg.IdentityTransform{},
	})
	made, err := cat.CreateTable(ctx, identifier, schema(), catalog.WithPartitionSpec(&spec))
	if err != nil {
		return err
	}
	for _, first := range []int{0, 100} {
		if made, err = appended(ctx, made, rows(first)); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	loaded, err := cat.LoadTable(ctx, identifier)
	if err != nil {
		return err
	}
	filters := []iceberg.BooleanExpression{
		iceberg.AlwaysTrue{},
		iceberg.LessThan(iceberg.Reference("id"), int64(50)),
		iceberg.EqualTo(iceberg.Reference("flag"), true),
		iceberg.GreaterThanEqual(iceberg.Reference("point.x"), int64(700)),
	}
	for _, filter := range filters {
		if err := compared(ctx, cat, loaded, filter); err != nil {
			return fmt.Errorf("%s: %w", filter, err)
		}
	}
	changed := loaded.NewTransaction()
	if err := changed.SetProperties(iceberg.Properties{"owner": "go"}); err != nil {
		return err
	}
	if _, err := changed.Commit(ctx); err != nil {
		return err
	}
	return listed(ctx, cat)
}

func appended(ctx context.Context, to *table.Table, text string) (*table.Table, error) {
	columns, err := table.SchemaToArrowSchema(to.Schema(), nil, false, false)
	if err != nil {
		return nil, err
	}
	made, err := array.TableFromJSON(memory.DefaultAllocator, columns, []string{text})
	if err != nil {
		return nil, err
	}
	defer made.Release()
	return to.AppendTable(ctx, made, 1024, nil)
}

// compared plans one scan in both ways: files, statistics of the named columns, and rows are the same.
func compared(ctx context.Context, cat *rest.Catalog, from *table.Table, filter iceberg.BooleanExpression) error {
	text, err := json.Marshal(filter)
	if err != nil {
		return err
	}
	answer, err := cat.PlanTableScan(ctx, identifier, rest.PlanTableScanRequest{
		Filter: text, StatsFields: names, Select: []string{"id", "_file", "_pos"},
	})
	if err != nil {
		return err
	}
	found, err := rest.DecodeScanTasks(answer.ScanTasks, from.Metadata(), from.Schema(), filter)
	if err != nil {
		return err
	}
	expected, err := from.Scan(table.WithRowFilter(filter)).PlanFiles(ctx)
	if err != nil {
		return err
	}
	if len(found) != len(expected) || len(found) == 0 {
		return fmt.Errorf("%d files instead of %d", len(found), len(expected))
	}
	files := map[string]iceberg.DataFile{}
	for _, task := range expected {
		files[task.File.FilePath()] = task.File
	}
	for _, task := range found {
		if err := same(task.File, files[task.File.FilePath()], from.Schema()); err != nil {
			return fmt.Errorf("%s: %w", task.File.FilePath(), err)
		}
	}
	var counts []int64
	for _, mode := range []table.ScanPlanningMode{table.ScanPlanningLocal, table.ScanPlanningRemote} {
		scan := from.Scan(table.WithRowFilter(filter), table.WithScanPlanningMode(mode))
		read, err := scan.ToArrowTable(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		counts = append(counts, read.NumRows())
		read.Release()
	}
	if counts[0] != counts[1] || counts[0] == 0 {
		return fmt.Errorf("rows by its own plan and by the server's: %v", counts)
	}
	return nil
}

func same(found, expected iceberg.DataFile, schema *iceberg.Schema) error {
	if expected == nil {
		return fmt.Errorf("its own plan does not have it")
	}
	if !reflect.DeepEqual(found.Partition(), expected.Partition()) || found.Count() != expected.Count() {
		return fmt.Errorf("another partition or count: %v %d", found.Partition(), found.Count())
	}
	for _, name := range names {
		field, ok := schema.FindFieldByName(name)
		if !ok {
			return fmt.Errorf("there is no column %s", name)
		}
		id := field.ID
		lower, upper := found.LowerBoundValues()[id], found.UpperBoundValues()[id]
		if len(expected.LowerBoundValues()[id]) == 0 && !strings.Contains(name, ".") {
			return fmt.Errorf("the manifest has no bound of %s", name)
		}
		if string(lower) != string(expected.LowerBoundValues()[id]) ||
			string(upper) != string(expected.UpperBoundValues()[id]) {
			return fmt.Errorf("other bounds of %s: %x %x", name, lower, upper)
		}
		if found.ValueCounts()[id] != expected.ValueCounts()[id] ||
			found.NullValueCounts()[id] != expected.NullValueCounts()[id] {
			return fmt.Errorf("other counts of %s", name)
		}
	}
	return nil
}

func listed(ctx context.Context, cat *rest.Catalog) error {
	namespaces, err := cat.ListNamespaces(ctx, nil)
	if err != nil {
		return err
	}
	if !strings.Contains(fmt.Sprint(namespaces), "[go]") {
		return fmt.Errorf("the namespace is not listed: %v", namespaces)
	}
	for name, err := range cat.ListTables(ctx, namespace) {
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(name, identifier) {
			return fmt.Errorf("another table is listed: %v", name)
		}
	}
	loaded, err := cat.LoadTable(ctx, identifier)
	if err != nil {
		return err
	}
	if loaded.Properties()["owner"] != "go" {
		return fmt.Errorf("the property is not there: %v", loaded.Properties())
	}
	if err := cat.DropTable(ctx, identifier); err != nil {
		return err
	}
	return cat.DropNamespace(ctx, namespace)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: planned ADDRESS TOKEN")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ok")
}
