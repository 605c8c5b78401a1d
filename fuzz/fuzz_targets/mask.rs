//! Statements without their values, and their shapes: the result does not depend on how a text is
//! split, is never longer than allowed, and a shape is its own shape.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::mask::{CUT, SqlDialect, TextMasker, mask};
use wire::shape::shape;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[cut, bytes_max], text)) = bytes.split_first_chunk() else { return };
    let bytes_max = usize::from(bytes_max) * 8;
    for dialect in [SqlDialect::Postgres, SqlDialect::Mysql] {
        let mut whole = Vec::new();
        mask(dialect, text, bytes_max, &mut whole);
        assert!(whole.len() <= bytes_max.max(CUT.len()), "{} bytes", whole.len());
        let mut masker = TextMasker::new(dialect, bytes_max);
        text.chunks(usize::from(cut).max(1)).for_each(|part| masker.feed(part));
        assert_eq!(masker.finish(), whole, "{dialect:?}");
    }
    let (mut first, mut second) = (Vec::new(), Vec::new());
    if shape(text, &mut first) {
        assert!(shape(&first, &mut second), "a shape has a shape");
        assert_eq!(first, second);
    }
});
