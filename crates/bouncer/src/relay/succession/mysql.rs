//! State of a MySQL session that is transferred to the next process.

use pooler_core::link::ClientId;
use pooler_core::mysql::client::{MysqlClientSession, MysqlClientSetup};
use pooler_core::mysql::link::MysqlLinkContext;
use pooler_core::mysql::settings::MysqlSettings;
use pooler_core::mysql::state::{MysqlSessionState, MysqlStatementState};
use wire::mysql::capabilities::CapabilityFlags;

use super::super::client::ClientLogin;
use super::super::common::RelayShared;
use super::super::takeover::{CarriedMysql, CarriedMysqlStatement};
use super::{borrowed, pairs};
use crate::tenants::TenantRoute;

/// Returns the state of a session for transfer, if all of it can be transferred.
pub(crate) fn carried(session: &ClientLogin, link: &MysqlClientSession) -> Option<CarriedMysql> {
    let state = link.state()?;
    let statements = state.statements.into_iter().map(|it| CarriedMysqlStatement {
        number: it.number,
        text: it.text,
        columns: it.columns,
        params: it.params,
        types: it.types,
    });
    Some(CarriedMysql {
        capabilities: link.capabilities.0,
        collation: session.collation,
        bound: session.bound.tenant.as_ref().map(|bound| bound.as_ref().to_owned()),
        status: state.status,
        multi: state.multi,
        insert_id: state.insert_id,
        row_count: state.row_count,
        found_rows: state.found_rows,
        requested: pairs(link.requested().iter()),
        requested_schema: link.requested().schema().map(str::to_owned),
        wanted: pairs(state.settings.iter()),
        wanted_schema: state.settings.schema().map(str::to_owned),
        statements: statements.collect(),
    })
}

/// Returns the session, in this process.
pub(crate) fn restored(
    it: &CarriedMysql,
    pid: u32,
    route: &TenantRoute,
    common: &RelayShared,
    shared: &mut MysqlLinkContext,
) -> MysqlClientSession {
    let TenantRoute { tenant, user } = route;
    let capabilities = CapabilityFlags(it.capabilities);
    let mut link = MysqlClientSession::new(MysqlClientSetup {
        id: ClientId(pid),
        mode: tenant.mode_of(user),
        verify: tenant.verify,
        read_only: tenant.read_only,
        local_infile: tenant.local_infile && capabilities.contains(CapabilityFlags::LOCAL_FILES),
        capabilities,
        settings: settings(&it.requested, it.requested_schema.as_deref()),
        forced: common.mysql_forced.of(tenant),
    });
    let statements = it.statements.iter().map(|it| MysqlStatementState {
        number: it.number,
        text: it.text.clone(),
        columns: it.columns,
        params: it.params,
        types: it.types.clone(),
    });
    let state = MysqlSessionState {
        status: it.status,
        multi: it.multi,
        insert_id: it.insert_id,
        row_count: it.row_count,
        found_rows: it.found_rows,
        settings: settings(&it.wanted, it.wanted_schema.as_deref()),
        statements: statements.collect(),
    };
    link.restore(state, shared);
    link
}

fn settings(variables: &[(String, String)], schema: Option<&str>) -> MysqlSettings {
    let mut settings = MysqlSettings::of(borrowed(variables));
    if let Some(schema) = schema {
        // It was a valid schema in the former process.
        let _kept = settings.put_schema(schema);
    }
    settings
}
