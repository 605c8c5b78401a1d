//! Avro's object container files, the format of manifests: a schema, then blocks of records.
//!
//! The input is untrusted. Every length is compared with the remaining bytes, every block with its
//! allowed decompressed size, and the number of values with the bytes that they come from.
//!
//! # References
//! - <https://avro.apache.org/docs/1.11.1/specification/>

mod schema;
mod unpack;

pub(super) use self::schema::AvroSchema;
use self::schema::{AvroType, NodeId};
use self::unpack::{AvroCodec, BlockUnpacker};
use crate::json::RawJson;

/// Most bytes of all blocks of a file together, decompressed.
pub(super) const UNPACKED_BYTES_MAX: usize = 128 << 20;

/// Most values of one record, including nested ones: six pairs for each of 100,000 columns.
const VALUES_MAX: usize = 2_000_000;

/// Most values of a file for each byte of its blocks: a union's value counts as two, and records
/// take no bytes.
const VALUES_OF_BYTE_MAX: usize = 4;

/// Values of a file that are allowed in addition.
const VALUES_FREE: usize = 1_000;

/// Most items of a list that take no bytes: no format has a use for them.
const EMPTY_ITEMS_MAX: usize = 16;

/// Deepest nesting of records and lists.
const DEPTH_MAX: usize = 32;

/// Most entries of a file's header.
const HEADER_ENTRIES_MAX: usize = 1_000;

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_BYTES: usize = 16;

/// Reason why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AvroError(pub(super) &'static str);

type Read<T> = Result<T, AvroError>;

const CUT: AvroError = AvroError("the file ends too early");

/// A value, whose texts and bytes are slices of its block.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AvroDatum<'a> {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    /// Of `bytes` and `fixed`.
    Bytes(&'a [u8]),
    Text(&'a str),
    List(Vec<AvroDatum<'a>>),
    /// Each with the id of its field.
    Record(Vec<(Option<i32>, AvroDatum<'a>)>),
}

impl<'a> AvroDatum<'a> {
    /// Returns a field of a record; `None` if it is null.
    pub(super) fn field(&self, id: i32) -> Option<&AvroDatum<'a>> {
        let AvroDatum::Record(fields) = self else { return None };
        let found = fields.iter().find(|(known, _)| *known == Some(id)).map(|(_, value)| value);
        found.filter(|value| **value != AvroDatum::Null)
    }

    /// Returns an integer of either length.
    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            AvroDatum::Int(number) => Some(i64::from(*number)),
            AvroDatum::Long(number) => Some(*number),
            _ => None,
        }
    }
}

/// Input bytes that are consumed from the front.
#[derive(Clone, Copy, Debug)]
struct AvroCursor<'a>(&'a [u8]);

impl<'a> AvroCursor<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| CUT)
    }

    /// Reads a number of variable length in zigzag encoding.
    fn long(&mut self) -> Read<i64> {
        let (mut folded, mut shift) = (0_u64, 0_u32);
        loop {
            let [byte] = self.array()?;
            // The tenth byte may have only one bit.
            if shift == 63 && byte > 1 {
                return Err(AvroError("a number has too many bits"));
            }
            folded |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((folded >> 1).cast_signed() ^ -((folded & 1).cast_signed()));
            }
            shift += 7;
            if shift > 63 {
                return Err(AvroError("a number has too many bits"));
            }
        }
    }

    fn int(&mut self) -> Read<i32> {
        i32::try_from(self.long()?).map_err(|_| AvroError("an int has too many bits"))
    }

    fn length(&mut self) -> Read<usize> {
        usize::try_from(self.long()?).map_err(|_| AvroError("a length is negative"))
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| AvroError("a string is not UTF-8"))
    }

    /// Returns the number of items in the next block of a list or a map; 0 at its end.
    fn items(&mut self) -> Read<usize> {
        let count = self.long()?;
        if count < 0 {
            // The length in bytes, for readers that skip the block.
            self.length()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| CUT)?;
        // Items without bytes are useless, and would be unlimited.
        if count > self.0.len() { Err(CUT) } else { Ok(count) }
    }
}

/// A file whose header has been read.
#[derive(Debug)]
pub(super) struct AvroContainer<'a> {
    header: Vec<(&'a str, &'a [u8])>,
    schema: AvroSchema,
    codec: AvroCodec,
    sync: [u8; SYNC_BYTES],
    blocks: AvroCursor<'a>,
}

impl<'a> AvroContainer<'a> {
    /// Parses the header.
    ///
    /// # Errors
    /// If it is malformed, or the codec is unknown.
    pub(super) fn open(bytes: &'a [u8]) -> Read<AvroContainer<'a>> {
        let mut cursor = AvroCursor(bytes);
        if cursor.take(MAGIC.len())? != MAGIC {
            return Err(AvroError("it is no Avro file"));
        }
        let mut header = Vec::new();
        loop {
            let count = cursor.items()?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                if header.len() == HEADER_ENTRIES_MAX {
                    return Err(AvroError("the header has too many entries"));
                }
                header.push((cursor.text()?, cursor.bytes()?));
            }
        }
        let sync = cursor.array()?;
        let entry = |name: &str| header.iter().find(|(key, _)| *key == name).map(|(_, it)| *it);
        let codec = AvroCodec::named(entry("avro.codec"))?;
        let schema = entry("avro.schema").ok_or(AvroError("the header has no schema"))?;
        let schema = RawJson::parse(schema.to_vec().into())
            .map_err(|_| AvroError("the schema is not JSON"))?;
        let schema = AvroSchema::read(&schema)?;
        Ok(AvroContainer { header, schema, codec, sync, blocks: cursor })
    }

    /// Returns an entry of the header, as text.
    pub(super) fn entry(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.header.iter().find(|(key, _)| *key == name)?;
        std::str::from_utf8(value).ok()
    }

    /// Passes every record to `take`.
    ///
    /// # Errors
    /// If the file is truncated or exceeds a limit; errors of `take`.
    pub(super) fn each<E: From<AvroError>>(
        mut self,
        mut take: impl FnMut(&AvroDatum<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut left, mut values) = (UNPACKED_BYTES_MAX, VALUES_FREE);
        let mut unpacker = BlockUnpacker::new(self.codec);
        while !self.blocks.0.is_empty() {
            let (count, packed) = (self.blocks.length()?, self.blocks.bytes()?);
            if self.blocks.array::<SYNC_BYTES>()? != self.sync {
                return Err(AvroError("a block does not have its declared length").into());
            }
            let block = unpacker.unpack(packed, left)?;
            left =
                left.checked_sub(block.len()).ok_or(AvroError("the file is too long unpacked"))?;
            values = values.saturating_add(block.len().saturating_mul(VALUES_OF_BYTE_MAX));
            let mut cursor = AvroCursor(&block);
            for _ in 0..count {
                if cursor.0.is_empty() {
                    return Err(CUT.into());
                }
                let of_record = values.min(VALUES_MAX);
                let mut reader = AvroRecordReader { schema: &self.schema, values: of_record };
                take(&reader.value(self.schema.root(), &mut cursor, 0)?)?;
                values = values.saturating_sub(of_record - reader.values);
            }
            if !cursor.0.is_empty() {
                return Err(AvroError("a block has more than its records").into());
            }
        }
        Ok(())
    }
}

/// Reads one record.
struct AvroRecordReader<'s> {
    schema: &'s AvroSchema,
    /// Number of values that are still allowed.
    values: usize,
}

impl AvroRecordReader<'_> {
    fn value<'a>(
        &mut self,
        node: NodeId,
        cursor: &mut AvroCursor<'a>,
        depth: usize,
    ) -> Read<AvroDatum<'a>> {
        if depth > DEPTH_MAX {
            return Err(AvroError("a value is nested too deeply"));
        }
        self.values = self.values.checked_sub(1).ok_or(AvroError("there are too many values"))?;
        let schema = self.schema;
        Ok(match schema.node(node)? {
            AvroType::Null => AvroDatum::Null,
            AvroType::Bool => match cursor.array()? {
                [0] => AvroDatum::Bool(false),
                [1] => AvroDatum::Bool(true),
                _ => return Err(AvroError("a boolean is neither of both")),
            },
            AvroType::Int => AvroDatum::Int(cursor.int()?),
            AvroType::Long => AvroDatum::Long(cursor.long()?),
            AvroType::Float => AvroDatum::Float(f32::from_le_bytes(cursor.array()?)),
            AvroType::Double => AvroDatum::Double(f64::from_le_bytes(cursor.array()?)),
            AvroType::Bytes => AvroDatum::Bytes(cursor.bytes()?),
            AvroType::Text => AvroDatum::Text(cursor.text()?),
            AvroType::Fixed(length) => AvroDatum::Bytes(cursor.take(*length)?),
            AvroType::Enum => AvroDatum::Int(cursor.int()?),
            AvroType::Union(branches) => {
                let branch = branches.get(cursor.length()?);
                let branch = branch.ok_or(AvroError("a union has no such branch"))?;
                self.value(*branch, cursor, depth + 1)?
            }
            AvroType::List(items) => AvroDatum::List(self.items(*items, cursor, depth, false)?),
            AvroType::Map(values) => AvroDatum::List(self.items(*values, cursor, depth, true)?),
            AvroType::Record(fields) => {
                let mut values = Vec::with_capacity(fields.len().min(64));
                for field in fields {
                    values.push((field.id, self.value(field.node, cursor, depth + 1)?));
                }
                AvroDatum::Record(values)
            }
        })
    }

    /// Reads the items of a list, or the values of a map: keys of maps are not needed.
    fn items<'a>(
        &mut self,
        node: NodeId,
        cursor: &mut AvroCursor<'a>,
        depth: usize,
        is_map: bool,
    ) -> Read<Vec<AvroDatum<'a>>> {
        let (mut items, mut empty) = (Vec::new(), 0);
        loop {
            let count = cursor.items()?;
            if count == 0 {
                return Ok(items);
            }
            for _ in 0..count {
                let before = cursor.0.len();
                if is_map {
                    cursor.text()?;
                }
                items.push(self.value(node, cursor, depth + 1)?);
                empty += usize::from(cursor.0.len() == before);
                if empty > EMPTY_ITEMS_MAX {
                    return Err(AvroError("items of a list have no bytes"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
