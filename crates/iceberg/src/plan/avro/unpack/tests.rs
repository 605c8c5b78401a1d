//! Blocks compressed by other implementations, and invalid blocks.

use proptest::prelude::*;
use testkit::avro::{CODECS, pack};

use super::*;

fn unpack(codec: &str, packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, &'static str> {
    let codec = AvroCodec::named(Some(codec.as_bytes())).unwrap();
    let unpacked = BlockUnpacker::new(codec).unpack(packed, bytes_max);
    unpacked.map(Cow::into_owned).map_err(|error| error.0)
}

#[test]
fn nothing_becomes_longer_than_it_may() {
    // A block of 40 MB in 4,000 bytes, of content that all three compress well.
    for codec in &CODECS[1..] {
        let packed = pack(codec, &vec![0; 1 << 20]);
        let all = unpack(codec, &packed, 1 << 20);
        assert_eq!(all.map(|it| it.len()), Ok(1 << 20), "{codec}");
        let too_long = Err("the file is too long unpacked");
        assert_eq!(unpack(codec, &packed, (1 << 20) - 1), too_long, "{codec}");
        assert_eq!(unpack(codec, &packed, 0), too_long, "{codec}");
    }
}

#[test]
fn what_is_damaged_is_refused() {
    let plain: Vec<u8> = (0..4096_u32).flat_map(|it| (it * it).to_le_bytes()).collect();
    for codec in &CODECS[1..] {
        let packed = pack(codec, &plain);
        for cut in [1, packed.len() / 2, packed.len() - 1] {
            let damaged = Err("a block cannot be unpacked");
            assert_eq!(unpack(codec, &packed[..cut], plain.len()), damaged, "{codec} {cut}");
        }
    }
    // Only the checksum detects a change of a copied byte.
    let mut packed = pack("snappy", b"abcdefgh");
    packed[3] ^= 1;
    assert_eq!(unpack("snappy", &packed, 100), Err("a block cannot be unpacked"));
}

#[test]
fn lengths_that_are_only_said_take_no_memory() {
    // Snappy: 100 MiB of nothing.
    let block = [&[0x80, 0x80, 0x80, 0x32][..], &[0; 8]].concat();
    assert_eq!(snap::raw::decompress_len(&block[..8]), Ok(100 << 20));
    assert_eq!(unpack("snappy", &block, 128 << 20), Err("a block cannot be unpacked"));
    // Zstandard: frames with windows of 16 MiB and 8 MiB, with an empty block each.
    let frame = |window| [&[0x28, 0xb5, 0x2f, 0xfd, 0, window][..], &[1, 0, 0]].concat();
    assert_eq!(unpack("zstandard", &frame(14 << 3), 100), Err("a block cannot be unpacked"));
    assert_eq!(unpack("zstandard", &frame(13 << 3), 100), Ok(Vec::new()));
    let many = frame(0).repeat(FRAMES_MAX);
    assert_eq!(unpack("zstandard", &many, 100), Ok(Vec::new()));
    let more = [many, frame(0)].concat();
    assert_eq!(unpack("zstandard", &more, 100), Err("a block has too many frames"));
}

#[test]
fn blocks_of_one_file_are_unpacked_one_after_the_other() {
    let mut unpacker = BlockUnpacker::new(AvroCodec::Zstandard);
    let all = [b"first ".repeat(100), Vec::new(), b"second".repeat(9)];
    for plain in &all {
        let packed = pack("zstandard", plain);
        assert_eq!(unpacker.unpack(&packed, plain.len()).unwrap(), &plain[..]);
        assert!(unpacker.unpack(&packed[..packed.len() - 1], plain.len()).is_err());
    }
    // Several frames are one block.
    let packed = all.each_ref().map(|plain| pack("zstandard", plain)).concat();
    assert_eq!(unpacker.unpack(&packed, 1000).unwrap(), &all.concat()[..]);
}

proptest! {
    #[test]
    fn what_was_packed_comes_back(
        codec in prop::sample::select(&CODECS[..]),
        pieces in prop::collection::vec((any::<u8>(), 1..3000_usize), 0..40),
    ) {
        let plain: Vec<u8> =
            pieces.iter().flat_map(|(byte, count)| (0..*count).map(move |at| match at % 7 {
                0 => u8::try_from(at % 251).unwrap(),
                _ => *byte,
            })).collect();
        let packed = pack(codec, &plain);
        prop_assert_eq!(unpack(codec, &packed, plain.len()), Ok(plain.clone()));
        if codec != "null" && !plain.is_empty() {
            let too_long = Err("the file is too long unpacked");
            prop_assert_eq!(unpack(codec, &packed, plain.len() - 1), too_long);
        }
    }

    #[test]
    fn hostile_blocks_are_refused_or_within_their_limit(
        codec in prop::sample::select(&CODECS[1..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        plain in prop::collection::vec(0..4_u8, 0..2000),
    ) {
        let mut packed = pack(codec, &plain);
        for (at, byte) in changes {
            let at = at.index(packed.len());
            packed[at] = byte;
        }
        if let Ok(unpacked) = unpack(codec, &packed, 5000) {
            prop_assert!(unpacked.len() <= 5000);
        }
    }
}
