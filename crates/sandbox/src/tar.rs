//! The format of tar archives, reading and writing: ustar headers with pax records for values that
//! do not fit; of GNU tar, its long names (only when reading) and its sparse files (pax 1.0).
//!
//! Performs no I/O except reading its source. Archives are untrusted: each number and length is
//! checked, and nothing is kept beyond the current header.
//!
//! # References
//! - <https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_06>

use std::io::{self, Read};

/// Size of a block, the unit of an archive.
pub const BLOCK_BYTES: usize = 512;
/// Maximum size of a pax header or long name that is read.
const EXTENDED_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of extents of a sparse file; a file with more is written with its holes filled.
pub const EXTENTS_MAX: usize = 4096;
/// Largest number of an eleven-digit octal field.
const OCTAL_MAX: u64 = 0o777_7777_7777;

/// Kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// Regular file.
    File,
    /// Hard link to another member.
    HardLink,
    /// Symbolic link.
    Symlink,
    /// Directory.
    Dir,
    /// Named pipe.
    Fifo,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarMember {
    /// Name as stored in the archive, unchecked.
    pub name: Vec<u8>,
    /// Kind of the member.
    pub kind: MemberKind,
    /// Permissions, including set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    /// Bytes that follow in the archive; 0 except for files.
    pub size: u64,
    /// Seconds since 1970, and additional nanoseconds.
    pub mtime: (i64, u32),
    /// Target of a link.
    pub link: Vec<u8>,
    /// Map of the data of a sparse file. `size` counts the data alone.
    pub sparse: Option<SparseMap>,
}

/// Map of a sparse file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseMap {
    /// Offset and length of each extent of data, ascending.
    pub extents: Vec<(u64, u64)>,
    /// Size of the file, holes included.
    pub real_size: u64,
}

impl SparseMap {
    /// Checks that extents follow each other within the file and are `size` bytes in total.
    fn is_consistent(&self, size: u64) -> bool {
        let (mut end, mut total) = (0u64, 0u64);
        for (offset, len) in &self.extents {
            let Some(next) = offset.checked_add(*len) else { return false };
            if *offset < end || next > self.real_size {
                return false;
            }
            // Cannot overflow: the extents do not overlap and end within 64 bits.
            (end, total) = (next, total + len);
        }
        total == size
    }

    fn map(&self) -> Vec<u8> {
        let mut map = format!("{}\n", self.extents.len());
        for (offset, len) in &self.extents {
            map.push_str(&format!("{offset}\n{len}\n"));
        }
        let mut map = map.into_bytes();
        pad(&mut map);
        map
    }
}

/// Returns the end marker of an archive.
#[must_use]
pub fn trailer() -> Vec<u8> {
    vec![0; 2 * BLOCK_BYTES]
}

/// Returns the number of bytes between the end of content of `size` bytes and the next header.
#[must_use]
pub fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK_BYTES as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK_BYTES - over }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len() + padding(bytes.len() as u64), 0);
}

impl TarMember {
    /// Returns the header: everything before the content.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let mut pax = Vec::new();
        let mut size = self.size;
        let (seconds, nanos) = self.mtime;
        let seconds_fit = u64::try_from(seconds).ok().filter(|seconds| *seconds <= OCTAL_MAX);
        if nanos != 0 || seconds_fit.is_none() {
            record(&mut pax, "mtime", time_text(seconds, nanos).as_bytes());
        }
        let map = self.sparse.as_ref().map(SparseMap::map);
        if let (Some(sparse), Some(map)) = (&self.sparse, &map) {
            size = size.saturating_add(map.len() as u64);
            record(&mut pax, "GNU.sparse.major", b"1");
            record(&mut pax, "GNU.sparse.minor", b"0");
            record(&mut pax, "GNU.sparse.name", &self.name);
            record(&mut pax, "GNU.sparse.realsize", sparse.real_size.to_string().as_bytes());
        }
        if self.name.len() > NAME.len {
            // For a sparse file too: its name, cut off at a slash, would be that of a directory.
            record(&mut pax, "path", &self.name);
        }
        if self.link.len() > LINK.len {
            record(&mut pax, "linkpath", &self.link);
        }
        if size > OCTAL_MAX {
            record(&mut pax, "size", size.to_string().as_bytes());
        }
        let mut out = Vec::new();
        if !pax.is_empty() {
            let len = pax.len() as u64;
            out.extend_from_slice(&block(b"@PaxHeader", b'x', 0o644, len, 0, b""));
            pad(&mut pax);
            out.extend_from_slice(&pax);
        }
        let flag = match self.kind {
            MemberKind::File => b'0',
            MemberKind::HardLink => b'1',
            MemberKind::Symlink => b'2',
            MemberKind::Dir => b'5',
            MemberKind::Fifo => b'6',
        };
        let seconds = seconds_fit.unwrap_or(0);
        out.extend_from_slice(&block(&self.name, flag, self.mode, size, seconds, &self.link));
        out.extend_from_slice(map.as_deref().unwrap_or(&[]));
        out
    }
}

/// Position of a field in a header block, in bytes.
#[derive(Clone, Copy)]
struct HeaderField {
    offset: usize,
    len: usize,
}

// Offset and length of the fields of a ustar header (POSIX.1-2001, `pax`).
const NAME: HeaderField = HeaderField { offset: 0, len: 100 };
const MODE: HeaderField = HeaderField { offset: 100, len: 8 };
const UID: HeaderField = HeaderField { offset: 108, len: 8 };
const GID: HeaderField = HeaderField { offset: 116, len: 8 };
const SIZE: HeaderField = HeaderField { offset: 124, len: 12 };
const MTIME: HeaderField = HeaderField { offset: 136, len: 12 };
const CHECKSUM: HeaderField = HeaderField { offset: 148, len: 8 };
const TYPE: HeaderField = HeaderField { offset: 156, len: 1 };
const LINK: HeaderField = HeaderField { offset: 157, len: 100 };
const MAGIC: HeaderField = HeaderField { offset: 257, len: 8 };
const OWNER: HeaderField = HeaderField { offset: 265, len: 32 };
const GROUP: HeaderField = HeaderField { offset: 297, len: 32 };
const PREFIX: HeaderField = HeaderField { offset: 345, len: 155 };
/// Magic number and version together.
const USTAR: &[u8] = b"ustar\x0000";

type Block = [u8; BLOCK_BYTES];

fn block(name: &[u8], kind: u8, mode: u32, size: u64, mtime: u64, link: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    let octal = |value: u64, digits: usize| format!("{value:0digits$o}").into_bytes();
    let size = if size > OCTAL_MAX { 0 } else { size };
    put(&mut block, NAME, name);
    put(&mut block, MODE, &octal(mode.into(), 7));
    let user = octal(crate::session::files::SHOWN_USER.into(), 7);
    put(&mut block, UID, &user);
    put(&mut block, GID, &user);
    put(&mut block, SIZE, &octal(size, 11));
    put(&mut block, MTIME, &octal(mtime, 11));
    put(&mut block, TYPE, &[kind]);
    put(&mut block, LINK, link);
    put(&mut block, MAGIC, USTAR);
    put(&mut block, OWNER, b"user");
    put(&mut block, GROUP, b"user");
    let sum = checksum(&block);
    put(&mut block, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Writes a field, truncated to its length.
fn put(block: &mut Block, at: HeaderField, value: &[u8]) {
    for (to, from) in block.iter_mut().skip(at.offset).take(at.len).zip(value) {
        *to = *from;
    }
}

fn field(block: &Block, at: HeaderField) -> &[u8] {
    block.get(at.offset..at.offset + at.len).unwrap_or(&[])
}

/// Returns a text field, up to its NUL.
fn text(block: &Block, at: HeaderField) -> &[u8] {
    field(block, at).split(|byte| *byte == 0).next().unwrap_or(&[])
}

/// Returns the sum of the bytes of a header, with its own field as spaces.
fn checksum(block: &Block) -> u32 {
    let all: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = field(block, CHECKSUM).iter().map(|byte| u32::from(*byte)).sum();
    all - own + 32 * 8
}

/// Appends a pax record: its own length in decimal, key and value.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    // The length includes its own digits.
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Formats seconds with a fraction; before 1970 the fraction is negative like the rest.
fn time_text(seconds: i64, nanos: u32) -> String {
    if seconds < 0 && nanos > 0 {
        let whole = (seconds + 1).unsigned_abs();
        return format!("-{whole}.{:09}", 1_000_000_000 - nanos);
    }
    format!("{seconds}.{nanos:09}")
}

fn parse_time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_negative = whole.starts_with('-');
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    if is_negative && nanos > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos));
    }
    Some((seconds, nanos))
}

/// Parses a number: octal digits, or GNU's binary form for larger values.
fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if *first & 0x80 != 0 {
        // Big-endian two's complement; the top bit marks the form, the next one is the sign.
        let start = if *first & 0x40 != 0 { -1i64 } else { i64::from(*first & 0x3f) };
        let start = if *first & 0x40 != 0 { start << 6 | i64::from(*first & 0x3f) } else { start };
        return rest
            .iter()
            .try_fold(start, |value, byte| Some(value.checked_mul(256)? | i64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches(|c: char| c == ' ' || c == '\0');
    if text.is_empty() {
        return Some(0);
    }
    // Ignores the rest after a NUL or a space.
    let text = text.split(['\0', ' ']).next().unwrap_or("");
    i64::from_str_radix(text, 8).ok().filter(|_| !text.starts_with(['+', '-']))
}

/// Error of reading an archive.
#[derive(Debug)]
pub enum BadArchive {
    /// Reading the source failed.
    Io(io::Error),
    /// The input is not a tar archive, or contains an unsupported member.
    Invalid(String),
}

impl From<io::Error> for BadArchive {
    fn from(error: io::Error) -> BadArchive {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return BadArchive::Invalid("the archive is cut off".to_owned());
        }
        BadArchive::Io(error)
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T, BadArchive> {
    Err(BadArchive::Invalid(why.into()))
}

/// Values of a member from the headers before its own.
#[derive(Debug, Default)]
struct ExtendedHeaders {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    sparse_major: Option<Vec<u8>>,
    sparse_name: Option<Vec<u8>>,
    real_size: Option<u64>,
    has_other_sparse: bool,
}

impl ExtendedHeaders {
    fn take_records(&mut self, mut bytes: &[u8]) -> Result<(), BadArchive> {
        while !bytes.is_empty() && bytes.iter().any(|byte| *byte != 0) {
            let parsed = (|| {
                let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
                let len: usize = std::str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
                let (record, rest) = bytes.split_at_checked(len)?;
                let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
                let equals = record.iter().position(|byte| *byte == b'=')?;
                Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
            })();
            let Some((key, value, rest)) = parsed else {
                return invalid("a pax header is malformed");
            };
            self.take(key, value)?;
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), BadArchive> {
        let decimal = || {
            let text = std::str::from_utf8(value).ok();
            match text.and_then(|text| text.parse::<u64>().ok()) {
                Some(number) => Ok(Some(number)),
                None => invalid("a number of a pax header is malformed"),
            }
        };
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = decimal()?,
            b"mtime" => self.mtime = parse_time(value),
            b"GNU.sparse.major" => self.sparse_major = Some(value.to_vec()),
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.realsize" => self.real_size = decimal()?,
            b"GNU.sparse.map" | b"GNU.sparse.numblocks" => self.has_other_sparse = true,
            // Owners, attributes and comments are ignored.
            _ => {}
        }
        Ok(())
    }
}

/// Reads the headers of an archive one after the other; the caller reads the content in between.
#[derive(Debug)]
pub struct HeaderReader<R> {
    /// The archive from the current position on.
    pub source: R,
}

impl<R: Read> HeaderReader<R> {
    /// Returns the next member; `None` at the end. Before the call, all content and its padding
    /// must be read.
    ///
    /// # Errors
    /// If the source cannot be read, or is not an archive.
    #[expect(clippy::should_implement_trait, reason = "content is read between two headers")]
    pub fn next(&mut self) -> Result<Option<TarMember>, BadArchive> {
        let mut extended = ExtendedHeaders::default();
        loop {
            let mut block = [0; BLOCK_BYTES];
            self.source.read_exact(&mut block)?;
            if block == [0; BLOCK_BYTES] {
                return Ok(None);
            }
            let sum = number(field(&block, CHECKSUM));
            if sum != Some(checksum(&block).into()) {
                return invalid("not a tar archive: a header's checksum is wrong");
            }
            let size = number(field(&block, SIZE)).and_then(|size| u64::try_from(size).ok());
            let Some(size) = size else { return invalid("the size in a header is malformed") };
            match field(&block, TYPE) {
                b"x" => {
                    let records = self.extended(size)?;
                    extended.take_records(&records)?;
                }
                // Global records have no relevant values. GNU's volume label is ignored.
                b"g" | b"V" => drop(self.extended(size)?),
                b"L" => extended.path = Some(until_nul(self.extended(size)?)),
                b"K" => extended.link = Some(until_nul(self.extended(size)?)),
                kind => return self.member(&block, kind, size, extended).map(Some),
            }
        }
    }

    fn extended(&mut self, size: u64) -> Result<Vec<u8>, BadArchive> {
        if size > EXTENDED_BYTES_MAX {
            return invalid(format!("a header is longer than {EXTENDED_BYTES_MAX} bytes"));
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len + padding(size)];
        self.source.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn member(
        &mut self,
        block: &Block,
        kind: &[u8],
        size: u64,
        extended: ExtendedHeaders,
    ) -> Result<TarMember, BadArchive> {
        let mut name = text(block, NAME).to_vec();
        let prefix = text(block, PREFIX);
        if field(block, MAGIC).starts_with(b"ustar\0") && !prefix.is_empty() {
            name = [prefix, b"/", name.as_slice()].concat();
        }
        // First of all, because the name determines the kind.
        let is_1_0 = extended.sparse_major.as_deref() == Some(b"1");
        let sparse_name = extended.sparse_name.filter(|_| is_1_0);
        let name = sparse_name.or(extended.path).unwrap_or(name);
        let readable = String::from_utf8_lossy(&name).into_owned();
        let kind = match kind {
            // In the oldest format, a name that ends in a slash is a directory.
            b"\0" | b"0" if name.ends_with(b"/") => MemberKind::Dir,
            b"\0" | b"0" | b"7" => MemberKind::File,
            b"1" => MemberKind::HardLink,
            b"2" => MemberKind::Symlink,
            b"5" => MemberKind::Dir,
            b"6" => MemberKind::Fifo,
            b"3" | b"4" => return invalid(format!("`{readable}` is a device")),
            b"S" => return invalid(format!("`{readable}` is sparse in GNU tar's old form")),
            _ => return invalid(format!("`{readable}` is of an unsupported type")),
        };
        let mtime = number(field(block, MTIME)).unwrap_or(0);
        let mode = number(field(block, MODE)).unwrap_or(0);
        let mut member = TarMember {
            name,
            kind,
            mode: u32::try_from(mode & 0o7777).unwrap_or(0),
            size: if kind == MemberKind::File { extended.size.unwrap_or(size) } else { 0 },
            mtime: extended.mtime.unwrap_or((mtime, 0)),
            link: extended.link.unwrap_or_else(|| text(block, LINK).to_vec()),
            sparse: None,
        };
        if extended.has_other_sparse || extended.sparse_major.is_some() && !is_1_0 {
            return invalid(format!("`{readable}` is sparse in a form before pax 1.0"));
        }
        if is_1_0 && kind == MemberKind::File {
            self.read_map(&mut member, extended.real_size)?;
        }
        Ok(member)
    }

    /// Reads the map of a sparse file, which precedes its data.
    fn read_map(
        &mut self,
        member: &mut TarMember,
        real_size: Option<u64>,
    ) -> Result<(), BadArchive> {
        let mut block = [0; BLOCK_BYTES];
        let (mut numbers, mut current, mut read) = (Vec::new(), None, 0u64);
        // The number of extents, then two numbers for each.
        let wanted = |numbers: &[u64]| match numbers.first() {
            Some(count) => count.saturating_mul(2).saturating_add(1),
            None => 1,
        };
        while (numbers.len() as u64) < wanted(&numbers) {
            if numbers.first().is_some_and(|count| *count > EXTENTS_MAX as u64) {
                return invalid(format!("a sparse file has more than {EXTENTS_MAX} extents"));
            }
            self.source.read_exact(&mut block)?;
            read += BLOCK_BYTES as u64;
            for byte in block {
                match (byte, current) {
                    _ if numbers.len() as u64 == wanted(&numbers) => break,
                    (b'0'..=b'9', value) => {
                        let value: u64 = value.unwrap_or(0);
                        let digit = u64::from(byte - b'0');
                        current = value.checked_mul(10).and_then(|value| value.checked_add(digit));
                        if current.is_none() {
                            return invalid("the map of a sparse file is malformed");
                        }
                    }
                    (b'\n', Some(value)) => {
                        numbers.push(value);
                        current = None;
                    }
                    _ => return invalid("the map of a sparse file is malformed"),
                }
            }
        }
        let extents = numbers.get(1..).unwrap_or(&[]).chunks_exact(2);
        let extents = extents.filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect();
        let sparse = SparseMap { extents, real_size: real_size.unwrap_or(0) };
        member.size = match member.size.checked_sub(read) {
            Some(size) if sparse.is_consistent(size) => size,
            _ => return invalid("the map of a sparse file does not fit its size"),
        };
        member.sparse = Some(sparse);
        Ok(())
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}
