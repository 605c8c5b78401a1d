//! Texts in PostgreSQL's SQL: positions lie in the text, a text without `LISTEN` has none, and a
//! quoted value stays one value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::pg::sql::{
    PgEffects, analyse, effects, list_items, quote_identifier, quote_literal, rewrite_listen,
};

fuzz_target!(|text: &[u8]| {
    let found = analyse(text);
    // The second reading may resolve effects that the first could only suspect; it removes no
    // others.
    let suspected = PgEffects::SET_CONFIG.with(PgEffects::READ_WRITE);
    assert_eq!(found.effects | effects(text).without(suspected), found.effects);
    if effects(text).intersects(PgEffects::SET_CONFIG) {
        assert!(found.effects.intersects(PgEffects::SET_CONFIG.with(PgEffects::SET)));
    }
    for name in &found.names {
        assert!(text.get(name.range.clone()).is_some(), "{name:?}");
        assert!(text.get(name.keyword.clone()).is_some(), "{name:?}");
    }
    for site in &found.defaults {
        assert!(text.get(site.range.clone()).is_some(), "{site:?}");
    }
    if let Some((rewritten, _)) = rewrite_listen(text) {
        assert!(!effects(&rewritten).intersects(PgEffects::LISTEN), "it still listens");
        assert_eq!(analyse(&rewritten).statements, found.statements);
    }
    let Ok(value) = std::str::from_utf8(text) else { return };
    let _ = list_items(value);
    // The protocol has no text with a zero byte.
    if !value.contains('\0') {
        for quote in [quote_literal, quote_identifier] {
            let mut quoted = b"SELECT ".to_vec();
            quote(&mut quoted, value);
            let seen = analyse(&quoted);
            assert_eq!(seen.statements, 1, "{}", String::from_utf8_lossy(&quoted));
            assert!(!seen.effects.intersects(PgEffects::UNPARSED | PgEffects::LISTEN));
        }
    }
});
