//! State of a session of MySQL that goes to the next process.

use std::sync::Arc;

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};

use super::super::client::ClientLogin;
use super::super::common::RelayShared;
use super::super::takeover::{CarriedMysql, CarriedMysqlStatement};
use super::{borrowed, pairs};
use crate::link::ClientId;
use crate::mysql::client::{MysqlClientSession, MysqlClientSetup};
use crate::mysql::link::MysqlLinkContext;
use crate::mysql::settings::MysqlSettings;
use crate::mysql::statements::StatementArity;
use crate::tenants::TenantRoute;

/// Returns what is carried of a session; nothing when it has warnings that its client may still ask
/// for, or an answer that it has yet to get.
pub(super) fn carried(session: &ClientLogin, link: &MysqlClientSession) -> Option<CarriedMysql> {
    let told = &link.diagnostics;
    let owes = link.statements.iter().any(|(number, _)| link.statements.has_failed(number));
    // What was prepared under other settings cannot be told from them alone.
    let elsewhere = link.statements.are_of_other_settings(link.settings());
    if told.warned || told.warnings.is_some() || owes || elsewhere {
        return None;
    }
    let statements = link.statements.iter().map(|(number, open)| CarriedMysqlStatement {
        number,
        text: open.statement.text.to_vec(),
        columns: open.counts.columns,
        params: open.counts.params,
        types: open.types.as_ref().map(|types| types.to_vec()),
    });
    Some(CarriedMysql {
        capabilities: link.capabilities.0,
        collation: session.collation,
        bound: session.bound.tenant.as_ref().map(|bound| bound.as_ref().to_owned()),
        status: link.status.0,
        multi: link.multi,
        insert_id: told.insert_id,
        row_count: told.row_count,
        found_rows: told.found_rows,
        requested: pairs(link.requested().iter()),
        requested_schema: link.requested().schema().map(str::to_owned),
        wanted: pairs(link.settings().iter()),
        wanted_schema: link.settings().schema().map(str::to_owned),
        statements: statements.collect(),
    })
}

/// The session, in this process.
pub(super) fn restored(
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
    link.restore_settings(settings(&it.wanted, it.wanted_schema.as_deref()));
    link.status = StatusFlags(it.status);
    link.read_as(link.status);
    link.multi = it.multi;
    link.diagnostics.insert_id = it.insert_id;
    link.diagnostics.row_count = it.row_count;
    link.diagnostics.found_rows = it.found_rows;
    for statement in &it.statements {
        let wanted = Arc::clone(link.settings());
        let made = shared.texts.statement(&statement.text, link.sql_mode, &wanted);
        let counts = StatementArity { columns: statement.columns, params: statement.params };
        let types = statement.types.as_deref().map(Arc::from);
        link.statements.restore(statement.number, made, counts, types, &wanted);
    }
    link
}

fn settings(variables: &[(String, String)], schema: Option<&str>) -> MysqlSettings {
    let mut settings = MysqlSettings::of(borrowed(variables));
    if let Some(schema) = schema {
        // It was one in the former process.
        let _kept = settings.put_schema(schema);
    }
    settings
}
