//! Commands that the pooler answers itself, or not at all.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_utility.html>

use wire::mysql::capabilities::StatusFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader};
use wire::mysql::packet::{self, OkPacket};

use super::front::{MysqlPacketOutcome, pass_over, refuse, whole};
use super::{COMMAND_BYTES_MAX, prepared};
use crate::link::{ClientNext, LinkOutputs};
use crate::mysql::client::{CommandRefusal, MysqlClientSession, StatementDiagnostics};

/// Returns whether clients of a shared server may not send the command.
fn is_refused(command: Command) -> bool {
    match command {
        Command::Sleep
        | Command::Shutdown
        | Command::Connect
        | Command::Debug
        | Command::Time
        | Command::DelayedInsert
        | Command::BinlogDump
        | Command::TableDump
        | Command::ConnectOut
        | Command::RegisterSlave
        | Command::Daemon
        | Command::BinlogDumpGtid
        | Command::Clone
        | Command::SubscribeGroupReplication
        | Command::StmtBulkExecute => true,
        Command::Quit
        | Command::InitDb
        | Command::Query
        | Command::FieldList
        | Command::CreateDb
        | Command::DropDb
        | Command::Refresh
        | Command::Statistics
        | Command::ProcessInfo
        | Command::ProcessKill
        | Command::Ping
        | Command::ChangeUser
        | Command::StmtPrepare
        | Command::StmtExecute
        | Command::StmtSendLongData
        | Command::StmtClose
        | Command::StmtReset
        | Command::SetOption
        | Command::StmtFetch
        | Command::ResetConnection => false,
    }
}

/// Handles commands that need no server, whether one is attached or not. Returns `None` for those
/// that need one.
pub(super) fn without_server(
    client: &mut MysqlClientSession,
    command: Command,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> Option<MysqlPacketOutcome> {
    if is_refused(command) {
        let refusal =
            CommandRefusal::new(1235, b"42000", "the command is not supported by the bouncer");
        return Some(refuse(client, header, rest, refusal, out));
    }
    match command {
        Command::SetOption => Some(set_option(client, header, rest, out)),
        Command::ProcessKill => Some(kill(client, header, rest, out)),
        Command::ChangeUser => Some(change_user(client, header, rest, out)),
        Command::CreateDb | Command::DropDb if client.read_only => {
            Some(refuse(client, header, rest, CommandRefusal::read_only(), out))
        }
        Command::Refresh if client.read_only => {
            Some(refuse(client, header, rest, CommandRefusal::not_for_readers("FLUSH"), out))
        }
        Command::ProcessInfo if client.is_sandbox => {
            let refusal = CommandRefusal::not_for_sandboxes("the list of processes");
            Some(refuse(client, header, rest, refusal, out))
        }
        Command::StmtPrepare if header.len > super::STATEMENT_BYTES_SCANNED_MAX => {
            let message = "a statement to be prepared is too long for the bouncer";
            Some(refuse(client, header, rest, CommandRefusal::new(1153, b"08S01", message), out))
        }
        Command::StmtClose if !client.attached => Some(prepared::close_alone(client, header, rest)),
        _ => None,
    }
}

/// Handles a command of a client without a server connection, which is between transactions.
pub(super) fn alone(
    client: &mut MysqlClientSession,
    command: Command,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    match command {
        Command::Ping => {
            say_ok(client, out.to_client);
            pass_over(client, header, rest)
        }
        Command::ResetConnection => {
            forget(client);
            say_ok(client, out.to_client);
            pass_over(client, header, rest)
        }
        Command::StmtReset
        | Command::StmtExecute
        | Command::StmtFetch
        | Command::StmtSendLongData => {
            let taken = prepared::alone(client, command, header, rest, out);
            taken.unwrap_or(MysqlPacketOutcome::NeedServer)
        }
        _ => MysqlPacketOutcome::NeedServer,
    }
}

/// Sends an OK with the status that was last sent to the client.
pub(super) fn say_ok(client: &mut MysqlClientSession, to_client: &mut Vec<u8>) {
    let ok = OkPacket { status: client.status, ..OkPacket::default() };
    packet::put_ok(to_client, &mut client.seq, &ok, client.capabilities);
    client.seq = 0;
    client.diagnostics.counted(0, false);
}

/// Resets the client's session.
pub(super) fn forget(client: &mut MysqlClientSession) {
    client.statements.clear();
    let mut wanted = (*client.startup).clone();
    // Servers keep the schema at a reset.
    if let Some(schema) = client.wanted.schema() {
        let _kept = wanted.put_schema(schema);
    }
    client.want(if wanted == *client.startup { client.startup.clone() } else { wanted.into() });
    client.diagnostics = StatementDiagnostics::default();
    client.serial = 0;
    client.status = StatusFlags::AUTOCOMMIT;
}

fn set_option(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    match whole(header, rest, COMMAND_BYTES_MAX) {
        Ok([option @ (0 | 1), 0]) => {
            client.multi = *option == 0;
            let ok = OkPacket { status: client.status, ..OkPacket::default() };
            packet::put_end(out.to_client, &mut client.seq, &ok, client.capabilities);
            client.seq = 0;
            client.diagnostics.counted(-1, false);
            MysqlPacketOutcome::Bytes(header.total())
        }
        Err(Some(want)) => MysqlPacketOutcome::More(want),
        Ok(_) | Err(None) => refuse(client, header, rest, CommandRefusal::unknown_command(), out),
    }
}

fn kill(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    match whole(header, rest, COMMAND_BYTES_MAX) {
        Ok(&[a, b, c, d]) => {
            let next = ClientNext::Kill { id: u32::from_le_bytes([a, b, c, d]), connection: true };
            MysqlPacketOutcome::Next(header.total(), next)
        }
        Err(Some(want)) => MysqlPacketOutcome::More(want),
        Ok(_) | Err(None) => refuse(client, header, rest, CommandRefusal::unknown_command(), out),
    }
}

/// Keeps the client's request for a new login, for the login code.
fn change_user(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    if header.len > COMMAND_BYTES_MAX {
        return refuse(client, header, rest, CommandRefusal::unknown_command(), out);
    }
    let Some(payload) = rest.get(HEADER_BYTES..header.total()) else {
        return MysqlPacketOutcome::More(header.total());
    };
    client.change_user = Some(payload.to_vec());
    MysqlPacketOutcome::Next(header.total(), ClientNext::ChangeUser)
}
