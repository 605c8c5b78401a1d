//! Parquet files of a few rows: one row group, one page per column, uncompressed and plain.
//!
//! The demo writes tables that any engine can read; the server needs no Parquet writer otherwise.
//! Columns have no nulls, so no levels precede the values.
//!
//! # References
//! - <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>
//! - <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

/// First and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";
/// `Type` of the format.
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;
/// `ConvertedType` of the format: text, and microseconds since 1970.
const UTF8: i64 = 0;
const TIMESTAMP_MICROS: i64 = 10;
/// `Encoding` of the format: plain values, and the encoding of levels, of which there are none.
const PLAIN: i64 = 0;
const RLE: i64 = 3;
/// Types of fields in Thrift's compact protocol.
const THRIFT_I32: u8 = 5;
const THRIFT_I64: u8 = 6;
const THRIFT_BINARY: u8 = 8;
const THRIFT_LIST: u8 = 9;
const THRIFT_STRUCT: u8 = 12;
/// Largest list whose length fits into its type byte.
const SHORT_LIST_MAX: usize = 14;

/// Values of a column.
#[derive(Debug)]
pub(super) enum ParquetValues {
    Long(Vec<i64>),
    Double(Vec<f64>),
    Text(Vec<String>),
    /// Microseconds since 1970, UTC.
    Timestamp(Vec<i64>),
}

/// Column with its name and Iceberg field id.
#[derive(Debug)]
pub(super) struct ParquetColumn {
    pub(super) id: i64,
    pub(super) name: &'static str,
    pub(super) values: ParquetValues,
}

impl ParquetColumn {
    fn physical_type(&self) -> i64 {
        match self.values {
            ParquetValues::Long(_) | ParquetValues::Timestamp(_) => INT64,
            ParquetValues::Double(_) => DOUBLE,
            ParquetValues::Text(_) => BYTE_ARRAY,
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.values {
            ParquetValues::Long(all) | ParquetValues::Timestamp(all) => all.len(),
            ParquetValues::Double(all) => all.len(),
            ParquetValues::Text(all) => all.len(),
        }
    }

    fn plain(&self) -> Vec<u8> {
        match &self.values {
            ParquetValues::Long(all) | ParquetValues::Timestamp(all) => {
                all.iter().flat_map(|it| it.to_le_bytes()).collect()
            }
            ParquetValues::Double(all) => all.iter().flat_map(|it| it.to_le_bytes()).collect(),
            ParquetValues::Text(all) => {
                let mut out = Vec::new();
                for text in all {
                    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    out.extend_from_slice(&length.to_le_bytes());
                    out.extend_from_slice(text.as_bytes());
                }
                out
            }
        }
    }
}

/// Struct of Thrift's compact protocol that is being written.
#[derive(Default)]
struct ThriftStruct {
    bytes: Vec<u8>,
    last: u8,
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn number(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl ThriftStruct {
    /// Fields must be in the order of their ids, each at most 15 above the previous one.
    fn field(mut self, id: u8, kind: u8) -> ThriftStruct {
        self.bytes.push((id - self.last) << 4 | kind);
        self.last = id;
        self
    }

    fn integer(self, id: u8, kind: u8, value: i64) -> ThriftStruct {
        let mut this = self.field(id, kind);
        put_varint(&mut this.bytes, zigzag(value));
        this
    }

    fn i32(self, id: u8, value: i64) -> ThriftStruct {
        self.integer(id, THRIFT_I32, value)
    }

    fn i64(self, id: u8, value: i64) -> ThriftStruct {
        self.integer(id, THRIFT_I64, value)
    }

    fn text(self, id: u8, text: &str) -> ThriftStruct {
        let mut this = self.field(id, THRIFT_BINARY);
        put_text(&mut this.bytes, text);
        this
    }

    fn nested(self, id: u8, inner: ThriftStruct) -> ThriftStruct {
        let mut this = self.field(id, THRIFT_STRUCT);
        this.bytes.extend(inner.end());
        this
    }

    fn list(self, id: u8, kind: u8, items: &[Vec<u8>]) -> ThriftStruct {
        let mut this = self.field(id, THRIFT_LIST);
        match u8::try_from(items.len()) {
            Ok(length) if items.len() <= SHORT_LIST_MAX => this.bytes.push(length << 4 | kind),
            _ => {
                this.bytes.push(0xf0 | kind);
                put_varint(&mut this.bytes, items.len().try_into().unwrap_or(u64::MAX));
            }
        }
        items.iter().for_each(|item| this.bytes.extend_from_slice(item));
        this
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len().try_into().unwrap_or(u64::MAX));
    out.extend_from_slice(text.as_bytes());
}

fn schema(columns: &[ParquetColumn]) -> Vec<Vec<u8>> {
    let root = ThriftStruct::default().text(4, "table").i32(5, number(columns.len())).end();
    let mut elements = vec![root];
    for column in columns {
        // Field 3 is the repetition: required.
        let mut element =
            ThriftStruct::default().i32(1, column.physical_type()).i32(3, 0).text(4, column.name);
        element = match column.values {
            ParquetValues::Text(_) => element.i32(6, UTF8),
            ParquetValues::Timestamp(_) => element.i32(6, TIMESTAMP_MICROS),
            _ => element,
        };
        elements.push(element.i32(9, column.id).end());
    }
    elements
}

/// Returns a file of these columns, which have the same length.
pub(super) fn file(columns: &[ParquetColumn]) -> Vec<u8> {
    let rows = number(columns.first().map_or(0, ParquetColumn::len));
    let mut out = MAGIC.to_vec();
    let (mut chunks, mut bytes_total) = (Vec::new(), 0);
    for column in columns {
        let (values, offset) = (column.plain(), number(out.len()));
        let length = number(values.len());
        let page = ThriftStruct::default().i32(1, rows).i32(2, PLAIN).i32(3, RLE).i32(4, RLE);
        // Type 0 is a data page; its uncompressed and compressed sizes are equal.
        let header =
            ThriftStruct::default().i32(1, 0).i32(2, length).i32(3, length).nested(5, page).end();
        out.extend(header);
        out.extend(values);
        let bytes = number(out.len()) - offset;
        bytes_total += bytes;
        let mut name = Vec::new();
        put_text(&mut name, column.name);
        let mut encoding = Vec::new();
        put_varint(&mut encoding, zigzag(PLAIN));
        let about = ThriftStruct::default()
            .i32(1, column.physical_type())
            .list(2, THRIFT_I32, &[encoding])
            .list(3, THRIFT_BINARY, &[name])
            .i32(4, 0)
            .i64(5, rows)
            .i64(6, bytes)
            .i64(7, bytes)
            .i64(9, offset);
        chunks.push(ThriftStruct::default().i64(2, offset).nested(3, about).end());
    }
    let group = ThriftStruct::default()
        .list(1, THRIFT_STRUCT, &chunks)
        .i64(2, bytes_total)
        .i64(3, rows)
        .end();
    let footer = ThriftStruct::default()
        .i32(1, 1)
        .list(2, THRIFT_STRUCT, &schema(columns))
        .i64(3, rows)
        .list(4, THRIFT_STRUCT, &[group])
        .text(6, "cove demo")
        .end();
    let length = u32::try_from(footer.len()).unwrap_or(u32::MAX);
    out.extend(footer);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(MAGIC);
    out
}
