package org.apache.iceberg.rest;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Plans scans by the server and by Iceberg's own client, and compares every field of every file: of tables of both
 * versions, partitioned by values of almost all types, with statistics (of nested columns too), keys, offsets and all
 * kinds of deletes.
 *
 * <p>Arguments: the catalog's address and a token. Ends with `ok`, or with an exception that says what differs.
 */
public class PlannedScans {
  private static final Namespace NAMESPACE = Namespace.of("planned");
  private static final byte[] SIXTEEN = "0123456789abcdef".getBytes();

  /** A column of each type that has bounds, and a value of it in Iceberg's internal form. */
  private static final Map<Types.NestedField, Object> COLUMNS = new TreeMap<>((a, b) -> a.fieldId() - b.fieldId());

  static {
    column("flag", Types.BooleanType.get(), true);
    column("small", Types.IntegerType.get(), -7);
    column("id", Types.LongType.get(), 5_000_000_000L);
    column("ratio", Types.FloatType.get(), 1.5f);
    column("factor", Types.DoubleType.get(), 1e20);
    column("day", Types.DateType.get(), -3);
    column("hour", Types.TimeType.get(), 3_600_000_001L);
    column("at", Types.TimestampType.withoutZone(), -1_000_001L);
    column("zoned", Types.TimestampType.withZone(), 1_700_000_000_123_456L);
    column("text", Types.StringType.get(), "g\u00fcnther \"x\"");
    column("uuid", Types.UUIDType.get(), UUID.fromString("f79c3e09-677c-4bbd-a479-3f349cb785e7"));
    column("four", Types.FixedType.ofLength(4), ByteBuffer.wrap(new byte[] {0, 1, (byte) 0xab, (byte) 0xff}));
    column("bytes", Types.BinaryType.get(), ByteBuffer.wrap(SIXTEEN));
    column("price", Types.DecimalType.of(9, 2), new BigDecimal("-12.30"));
    column("total", Types.DecimalType.of(38, 10), new BigDecimal("12345678901234567890.0123456789"));
  }

  /** Columns within columns, which have bounds as well: of a struct, and of structs in a list. */
  private static final Types.NestedField INNER = Types.NestedField.optional(101, "x", Types.LongType.get());

  private static final Types.NestedField DEEP = Types.NestedField.optional(105, "y", Types.StringType.get());
  private static final Types.NestedField NANOS =
      Types.NestedField.optional(106, "nanos", Types.TimestampNanoType.withoutZone());
  private static final List<Types.NestedField> NESTED =
      List.of(
          Types.NestedField.optional(100, "point", Types.StructType.of(INNER)),
          Types.NestedField.optional(
              102, "points", Types.ListType.ofOptional(103, Types.StructType.of(DEEP))));

  private static void column(String name, Type type, Object value) {
    COLUMNS.put(Types.NestedField.optional(COLUMNS.size() + 1, name, type), value);
  }

  public static void main(String[] arguments) throws Exception {
    try (RESTCatalog own = catalog(arguments, "client");
        RESTCatalog server = catalog(arguments, "server")) {
      own.createNamespace(NAMESPACE);
      for (int version : new int[] {2, 3}) {
        for (boolean isPartitioned : new boolean[] {false, true}) {
          check(own, server, version, isPartitioned);
        }
      }
    }
    System.out.println("ok");
  }

  private static RESTCatalog catalog(String[] arguments, String mode) {
    RESTCatalog catalog = new RESTCatalog();
    Map<String, String> properties = new HashMap<>();
    properties.put("uri", arguments[0]);
    properties.put("token", arguments[1]);
    properties.put("scan-planning-mode", mode);
    catalog.initialize(mode, properties);
    return catalog;
  }

  private static void check(RESTCatalog own, RESTCatalog server, int version, boolean isPartitioned) throws Exception {
    List<Types.NestedField> columns = new ArrayList<>(COLUMNS.keySet());
    columns.addAll(NESTED);
    if (version == 3) {
      columns.add(NANOS);
    }
    Schema schema = new Schema(columns);
    PartitionSpec.Builder builder = PartitionSpec.builderFor(schema);
    if (isPartitioned) {
      for (Types.NestedField column : COLUMNS.keySet()) {
        if (isPartitioning(column)) {
          builder.identity(column.name());
        }
      }
      builder.bucket("text", 16).truncate("bytes", 3).day("at").hour("zoned").year("day").alwaysNull("small");
    }
    PartitionSpec spec = builder.build();
    SortOrder order = SortOrder.builderFor(schema).asc("id").build();
    TableIdentifier name = TableIdentifier.of(NAMESPACE, "v" + version + (isPartitioned ? "parted" : "whole"));
    Table table =
        own.buildTable(name, schema)
            .withPartitionSpec(spec)
            .withSortOrder(order)
            .withProperty("format-version", String.valueOf(version))
            .create();
    DataFile data = data(table, "a", partition(spec, true));
    table.newAppend().appendFile(data).appendFile(data(table, "b", partition(spec, false))).commit();
    deletes(table, data, version);

    Table planned = server.loadTable(name);
    List<String> names = schema.columns().stream().map(Types.NestedField::name).collect(Collectors.toList());
    List<String> nested = List.of("point.x", "points.element.y", "point");
    for (Expression filter :
        new Expression[] {
          Expressions.alwaysTrue(), Expressions.lessThan("id", 6_000_000_000L), Expressions.equal("point.x", 77L)
        }) {
      for (Collection<String> stats : Arrays.asList(List.<String>of(), List.of("id"), names, nested)) {
        List<String> expected = tasks(own.loadTable(name), filter, stats);
        List<String> found = tasks(planned, filter, stats);
        // The server may leave out more: a partition of null has no value below another.
        boolean isFiltered = filter.op() != Expression.Operation.TRUE;
        boolean isSame = isFiltered ? expected.containsAll(found) : expected.equals(found);
        if (!isSame || found.size() < (isFiltered ? 1 : 2)) {
          throw new AssertionError(
              name + " " + filter + " " + stats + "\n" + String.join("\n", found) + "\ninstead of\n"
                  + String.join("\n", expected));
        }
      }
    }
  }

  /** Not by fixed ones: the client's writer puts a length before them, which no reader of Avro expects. */
  private static boolean isPartitioning(Types.NestedField column) {
    return column.type().typeId() != Type.TypeID.FIXED;
  }

  /** Values for all fields of a spec, or nothing but null. */
  private static StructLike partition(PartitionSpec spec, boolean hasValues) {
    if (spec.isUnpartitioned()) {
      return null;
    }
    PartitionData partition = new PartitionData(spec.partitionType());
    Object[] made = {3, ByteBuffer.wrap(new byte[] {1, 2, 3}), -1, 472_222, -1, null};
    List<Object> values = new ArrayList<>();
    COLUMNS.forEach(
        (column, value) -> {
          if (isPartitioning(column)) {
            values.add(value);
          }
        });
    values.addAll(Arrays.asList(made));
    for (int at = 0; at < values.size(); at++) {
      partition.set(at, hasValues ? values.get(at) : null);
    }
    return partition;
  }

  private static DataFile data(Table table, String name, StructLike partition) {
    Map<Integer, Long> counts = new HashMap<>();
    Map<Integer, ByteBuffer> bounds = new HashMap<>();
    COLUMNS.forEach(
        (column, value) -> {
          counts.put(column.fieldId(), 10L);
          bounds.put(column.fieldId(), Conversions.toByteBuffer(column.type(), value));
        });
    Schema schema = table.schema();
    Map<String, Object> inner = Map.of("point.x", 77L, "points.element.y", "z", "nanos", 1_700_000_000_123_456_789L);
    inner.forEach(
        (path, value) -> {
          Types.NestedField column = schema.findField(path);
          if (column != null) {
            counts.put(column.fieldId(), 10L);
            bounds.put(column.fieldId(), Conversions.toByteBuffer(column.type(), value));
          }
        });
    Metrics metrics = new Metrics(10L, counts, counts, Map.of(3, 0L), Map.of(4, 1L), bounds, bounds);
    DataFiles.Builder builder =
        DataFiles.builder(table.spec())
            .withPath(table.location() + "/data/" + name + ".parquet")
            .withFormat(FileFormat.PARQUET)
            .withFileSizeInBytes(1000)
            .withMetrics(metrics)
            .withSplitOffsets(List.of(4L, 500L))
            .withSortOrder(table.sortOrder())
            .withEncryptionKeyMetadata(ByteBuffer.wrap(new byte[] {0, (byte) 0xca, (byte) 0xfe}));
    return (partition == null ? builder : builder.withPartition(partition)).build();
  }

  /** Deletes of the rows of a file: by equality, and by position or by a deletion vector. */
  private static void deletes(Table table, DataFile data, int version) {
    FileMetadata.Builder equal =
        FileMetadata.deleteFileBuilder(table.spec())
            .ofEqualityDeletes(3, 10)
            .withPath(table.location() + "/data/equal.avro")
            .withFormat(FileFormat.AVRO)
            .withFileSizeInBytes(20)
            .withRecordCount(1)
            .withSortOrder(table.sortOrder());
    FileMetadata.Builder positions =
        FileMetadata.deleteFileBuilder(table.spec())
            .ofPositionDeletes()
            .withReferencedDataFile(data.location())
            .withEncryptionKeyMetadata(ByteBuffer.wrap(new byte[] {7}))
            .withFileSizeInBytes(30)
            .withRecordCount(2);
    if (version == 2) {
      positions.withPath(table.location() + "/data/positions.parquet").withFormat(FileFormat.PARQUET);
      positions.withSplitOffsets(List.of(4L));
    } else {
      positions.withPath(table.location() + "/data/vectors.puffin").withFormat(FileFormat.PUFFIN);
      positions.withContentOffset(4).withContentSizeInBytes(12);
    }
    if (!table.spec().isUnpartitioned()) {
      equal.withPartition(data.partition());
      positions.withPartition(data.partition());
    }
    table.newRowDelta().addDeletes(equal.build()).addDeletes(positions.build()).commit();
  }

  /** All that clients are told of the files of a scan, one line for each. */
  private static List<String> tasks(Table table, Expression filter, Collection<String> stats) throws Exception {
    List<String> lines = new ArrayList<>();
    try (CloseableIterable<FileScanTask> tasks =
        table.newScan().filter(filter).includeColumnStats(stats).planFiles()) {
      for (FileScanTask task : tasks) {
        List<String> deletes = new ArrayList<>();
        for (DeleteFile file : task.deletes()) {
          deletes.add(
              common(file) + " " + file.referencedDataFile() + " " + file.contentOffset() + " "
                  + file.contentSizeInBytes());
        }
        deletes.sort(null);
        DataFile file = task.file();
        lines.add(
            common(file) + " " + file.firstRowId() + " " + sorted(file.columnSizes()) + sorted(file.valueCounts())
                + sorted(file.nullValueCounts()) + sorted(file.nanValueCounts()) + sorted(file.lowerBounds())
                + sorted(file.upperBounds()) + " rest " + task.residual() + " deletes " + deletes);
      }
    }
    lines.sort(null);
    return lines;
  }

  private static String common(ContentFile<?> file) {
    StructLike partition = file.partition();
    List<Object> values = new ArrayList<>();
    for (int at = 0; at < partition.size(); at++) {
      values.add(shown(partition.get(at, Object.class)));
    }
    return String.join(
        " ",
        file.content().toString(),
        file.location(),
        file.format().toString(),
        String.valueOf(file.specId()),
        values.toString(),
        String.valueOf(file.recordCount()),
        String.valueOf(file.fileSizeInBytes()),
        String.valueOf(shown(file.keyMetadata())),
        String.valueOf(file.splitOffsets()),
        String.valueOf(file.equalityFieldIds()),
        String.valueOf(file.sortOrderId()));
  }

  /** Bytes as digits: buffers have no text that says what is in them. */
  private static Object shown(Object value) {
    if (value instanceof ByteBuffer) {
      ByteBuffer buffer = ((ByteBuffer) value).duplicate();
      byte[] bytes = new byte[buffer.remaining()];
      buffer.get(bytes);
      return Arrays.toString(bytes);
    }
    return Objects.toString(value);
  }

  private static String sorted(Map<Integer, ?> map) {
    TreeMap<Integer, Object> all = new TreeMap<>();
    if (map != null) {
      map.forEach((id, value) -> all.put(id, shown(value)));
    }
    return all.toString();
  }
}
