//! Observed connections of sandboxes to databases: statements and answers of either protocol, split
//! at arbitrary positions.
#![no_main]

use std::sync::Arc;

use api::TenantEngine;
use bouncer::guest::{
    EffectFence, GuestSpec, SandboxAction, SandboxObserver, StatementDetail, fuzzing,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Ignores;

impl SandboxObserver for Ignores {
    fn saw(&self, _: SandboxAction<'_>) {}
}

fn spec(engine: TenantEngine) -> GuestSpec {
    GuestSpec {
        name: "guest".into(),
        tenant: "tenant".into(),
        engine,
        role: None,
        schema: None,
        read_only: false,
        clients_max: None,
        times: Default::default(),
        rows_max: Some(3),
        bytes_max: Some(256),
        texts: StatementDetail::Masked,
        trace_comments: true,
        witness: Arc::new(Ignores),
        fence: EffectFence::open(),
        session: None,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[cut, asked], bytes)) = bytes.split_first_chunk() else { return };
    let (asked, answered) = bytes.split_at(usize::from(asked).min(bytes.len()));
    let cut = usize::from(cut).max(1);
    for engine in [TenantEngine::Postgres, TenantEngine::Mysql] {
        fuzzing::watch(spec(engine), asked, answered, cut);
    }
});
