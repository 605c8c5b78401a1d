//! Entry of the fuzz target for archives.

use crate::tar::{EXTENTS_MAX, HeaderReader, TarMember, padding};

/// Reads the members of an archive, and re-reads each member's header as this side writes it.
pub fn archive(bytes: &[u8]) {
    let mut headers = HeaderReader { source: bytes };
    while let Ok(Some(member)) = headers.next() {
        check(&member);
        let after = member.size.saturating_add(padding(member.size) as u64);
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        headers.source = headers.source.get(after..).unwrap_or_default();
    }
}

fn check(member: &TarMember) {
    let extents = member.sparse.as_ref().map_or(0, |sparse| sparse.extents.len());
    assert!(extents <= EXTENTS_MAX, "{extents} extents");
    let written = member.header();
    let again = HeaderReader { source: written.as_slice() }.next();
    let again = again.expect("a header of ours").expect("a member");
    assert_eq!((&again.name, again.kind, again.size), (&member.name, member.kind, member.size));
    assert_eq!((&again.sparse, again.mode), (&member.sparse, member.mode));
}
