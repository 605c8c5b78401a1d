//! Avro's object container files, as manifests are: a schema, then blocks of records.
//!
//! The bytes are somebody else's. Every length is compared with what is left, every block with
//! what it may become when it is unpacked, and values with the bytes that they are made of.
//!
//! # References
//! - <https://avro.apache.org/docs/1.11.1/specification/>

mod schema;
mod unpack;

pub(super) use self::schema::AvroSchema;
use self::schema::{AvroType, NodeId};
use self::unpack::{AvroCodec, BlockUnpacker};
use crate::json::RawJson;

/// Bytes of all blocks of a file together, unpacked.
pub(super) const UNPACKED_BYTES_MAX: usize = 128 << 20;

/// Values of one record, those within values included: six pairs for each of 100,000 columns.
const VALUES_MAX: usize = 2_000_000;

/// Values of a file for each byte of its blocks: one of a union are two, and records take none.
const VALUES_OF_BYTE_MAX: usize = 4;

/// Values of a file beside those.
const VALUES_FREE: usize = 1_000;

/// Items of a list that take no bytes: no format has a use for them.
const EMPTY_ITEMS_MAX: usize = 16;

/// Records and lists within each other.
const DEPTH_MAX: usize = 32;

/// Entries of the header of a file.
const HEADER_ENTRIES_MAX: usize = 1_000;

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_BYTES: usize = 16;

/// Why a file is none that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AvroError(pub(super) &'static str);

type Read<T> = Result<T, AvroError>;

const CUT: AvroError = AvroError("the file ends too early");

/// A value, whose texts and bytes are those of the block it is in.
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
    /// A field of a record; what is null is not there.
    pub(super) fn field(&self, id: i32) -> Option<&AvroDatum<'a>> {
        let AvroDatum::Record(fields) = self else { return None };
        let found = fields.iter().find(|(known, _)| *known == Some(id)).map(|(_, value)| value);
        found.filter(|value| **value != AvroDatum::Null)
    }

    /// A whole number of either length.
    pub(super) fn as_i64(&self) -> Option<i64> {
        match self {
            AvroDatum::Int(number) => Some(i64::from(*number)),
            AvroDatum::Long(number) => Some(*number),
            _ => None,
        }
    }
}

/// Bytes from which values are taken one after the other.
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

    /// A number of variable length, folded so that small ones of either sign are short.
    fn long(&mut self) -> Read<i64> {
        let (mut folded, mut shift) = (0_u64, 0_u32);
        loop {
            let [byte] = self.array()?;
            // The tenth byte has one bit.
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

    /// Returns how many items come next in a list or a map; none at its end.
    fn items(&mut self) -> Read<usize> {
        let count = self.long()?;
        if count < 0 {
            // Their bytes, for those who skip them.
            self.length()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| CUT)?;
        // Items without bytes are of no use, and would be endless.
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
    /// Reads the header.
    ///
    /// # Errors
    /// When it is none, or is packed in a way that nobody here knows.
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

    /// An entry of the header, as text.
    pub(super) fn entry(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.header.iter().find(|(key, _)| *key == name)?;
        std::str::from_utf8(value).ok()
    }

    /// Gives every record to `take`.
    ///
    /// # Errors
    /// When the file is not whole or goes beyond a limit; what `take` fails with.
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
    /// Number of values it may still have.
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

    /// The items of a list, or the values of a map: nobody here needs the keys of one.
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
