//! Pieces of all versions are read back unchanged, and damaged ones never.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sandbox::ImageWriter;

use super::Place;
use crate::error::SessionError;
use crate::workspace::piece;

const BLOCK: usize = 4096;
const PIECE: usize = piece::PIECE_BYTES as usize;

/// Returns content with these bytes at these offsets.
fn content_of(bytes: usize, parts: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut content = vec![0; bytes];
    for (offset, part) in parts {
        let at = offset % bytes;
        let len = part.len().min(bytes - at);
        content[at..at + len].copy_from_slice(&part[..len]);
    }
    content
}

/// Returns the object of a piece as written by versions without the index.
fn packed_before(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Reads the content of an object as those versions do.
fn read_before(object: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut decoder = DeflateDecoder::new(&object[2..]).take(u64::from(piece::PIECE_BYTES) + 1);
    decoder.read_to_end(&mut content).unwrap();
    content
}

/// Image in which an object becomes the second of two pieces; the first is a hole.
struct PieceTarget {
    place: Place,
    count: std::cell::Cell<usize>,
}

impl PieceTarget {
    fn new(name: &str) -> PieceTarget {
        PieceTarget { place: Place::new(name), count: std::cell::Cell::new(0) }
    }

    /// Places a piece of `bytes` bytes and returns the file.
    fn placed(&self, bytes: usize, name: &str, object: &[u8]) -> Result<PathBuf, SessionError> {
        let path = self.place.0.join(self.count.replace(self.count.get() + 1).to_string());
        let image = ImageWriter::create(&path, (PIECE + bytes) as u64, piece::PIECE_BYTES).unwrap();
        piece::place(&image, 1, name, object)?;
        image.finish().unwrap();
        Ok(path)
    }

    fn content(&self, bytes: usize, name: &str, object: &[u8]) -> Result<Vec<u8>, SessionError> {
        let path = self.placed(bytes, name, object)?;
        let mut image = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let piece = image.split_off(PIECE);
        // The content beside it must be unchanged.
        let is_alone = sandbox::is_zero(&image);
        Ok(if is_alone { piece } else { image })
    }
}

#[test]
fn a_piece_comes_back_the_same_and_older_versions_read_it() {
    let target = PieceTarget::new("pieces");
    let noise = prop::collection::vec(any::<u8>(), 1..9000);
    let runs = (any::<u8>(), 1..200_000_usize).prop_map(|(byte, len)| vec![byte; len]);
    let part = (0..PIECE, prop_oneof![noise, runs]);
    let piece = (1..=PIECE, prop::collection::vec(part, 1..12));
    let mut runner = TestRunner::new(Config { cases: 96, ..Config::default() });
    let result = runner.run(&piece, |(bytes, parts)| {
        let content = content_of(bytes, &parts);
        let name = piece::name_of(&content);
        let object = piece::pack(&name, &content).unwrap();
        prop_assert!(target.content(bytes, &name, &object).unwrap() == content);
        prop_assert!(read_before(&object) == content);
        prop_assert!(target.content(bytes, &name, &packed_before(&content)).unwrap() == content);
        Ok(())
    });
    result.unwrap();
}

#[test]
fn a_piece_without_gaps_comes_back_the_same() {
    let target = PieceTarget::new("dense");
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    };
    for content in [vec![7; PIECE], (0..PIECE).map(|_| noise()).collect()] {
        let name = piece::name_of(&content);
        let object = piece::pack(&name, &content).unwrap();
        assert!(target.content(PIECE, &name, &object).unwrap() == content);
        assert!(read_before(&object) == content);
    }
}

/// Returns a piece with zeros before, between and after its data, and a few within a run.
fn sparse(bytes: usize) -> Vec<u8> {
    let text: Vec<u8> = (0..2000_u32).flat_map(|number| (number % 777).to_le_bytes()).collect();
    let parts = [
        (3 * BLOCK, text.clone()),
        (16 * BLOCK, vec![1; BLOCK]),
        (19 * BLOCK, vec![2; 10]),
        (30 * BLOCK, text),
    ];
    content_of(bytes, &parts)
}

#[test]
fn zeros_of_a_piece_are_holes() {
    let target = PieceTarget::new("holes");
    let content = sparse(PIECE);
    let blocks = content.chunks(BLOCK).filter(|block| !sandbox::is_zero(block)).count();
    let name = piece::name_of(&content);
    for object in [piece::pack(&name, &content).unwrap(), packed_before(&content)] {
        let path = target.placed(PIECE, &name, &object).unwrap();
        let metadata = std::fs::metadata(path).unwrap();
        assert_eq!(metadata.len(), 2 * PIECE as u64);
        assert!(metadata.blocks() * 512 <= (blocks * BLOCK) as u64, "{}", metadata.blocks());
    }
}

#[test]
fn every_changed_byte_is_found() {
    let target = PieceTarget::new("flipped");
    let bytes = 40 * BLOCK;
    let content = sparse(bytes);
    let name = piece::name_of(&content);
    let object = piece::pack(&name, &content).unwrap();
    // Damage to the stream is rejected by the checksum or by the name. Damage to only the index
    // leaves a valid stream.
    let stream_bytes = packed_end(&object);
    let (mut refused, mut read) = (0, 0);
    for at in (0..object.len()).step_by(5).chain(stream_bytes..object.len()) {
        let mut changed = object.clone();
        changed[at] ^= 1 << (at % 8);
        match target.content(bytes, &name, &changed) {
            Ok(found) => {
                assert!(found == content, "byte {at}");
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && read >= object.len() - stream_bytes, "{refused}, {read}");
    for len in (0..object.len()).step_by(17) {
        if let Ok(found) = target.content(bytes, &name, &object[..len]) {
            assert!(found == content, "{len} bytes");
        }
    }
}

/// Returns the length of an object before its index.
fn packed_end(object: &[u8]) -> usize {
    let mut decoder = flate2::bufread::ZlibDecoder::new(object);
    std::io::copy(&mut decoder, &mut std::io::sink()).unwrap();
    usize::try_from(decoder.total_in()).unwrap()
}

#[test]
fn the_object_of_another_piece_is_refused() {
    let target = PieceTarget::new("other");
    let (one, other) = (sparse(PIECE), content_of(PIECE, &[(0, vec![9; 5000])]));
    let (name, other_name) = (piece::name_of(&one), piece::name_of(&other));
    let refused = |bytes, object: &[u8]| {
        let error = target.placed(bytes, &name, object).unwrap_err();
        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default()
    };
    let words = "is not what was stored";
    assert!(refused(PIECE, &piece::pack(&other_name, &other).unwrap()).contains(words));
    assert!(refused(PIECE, &packed_before(&other)).contains(words));
    // The last piece of an image may be shorter.
    let object = piece::pack(&name, &one).unwrap();
    assert!(refused(PIECE - 1, &object).contains("instead of"));
}
