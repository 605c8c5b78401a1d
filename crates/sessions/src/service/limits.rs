//! Resolution of a request to the effective limits, options and environment of a session.

use std::collections::BTreeMap;

use api::{AgentOptions, CreateSession, SessionLimits};
use sandbox::{DISK_BYTES_PER_INODE, DiskSize};

use crate::config::SessionsConfig;
use crate::error::SessionError;

/// Minimum memory of a session, sufficient for the smallest agents.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// Minimum number of processes.
const PROCESSES_MIN: u64 = 4;
/// Minimum disk size: the file system's own structures need a part of it.
const DISK_BYTES_MIN: u64 = 16 << 20;
/// Minimum number of files on a disk.
const DISK_INODES_MIN: u64 = 1024;
/// Maximum number of files on a disk.
const DISK_INODES_MAX: u64 = 1 << 24;
/// Minimum size of `/tmp`.
const TMP_BYTES_MIN: u64 = 1 << 20;
/// Minimum and maximum number of open files of a process.
const OPEN_FILES_MIN: u64 = 32;
const OPEN_FILES_MAX: u64 = 1 << 20;
/// Bytes of `/tmp` per file: one page.
const TMP_BYTES_PER_INODE: u64 = 4096;
/// Stack size of a main thread, the kernel's default.
const STACK_BYTES: u64 = 8 << 20;

/// Maximum number of variables of an environment, and of their bytes. They are sealed as one
/// secret, which may have twice as many bytes ([`node::sealed::SECRET_BYTES_MAX`]), since quoting
/// adds some.
const ENV_COUNT_MAX: usize = 256;
const ENV_BYTES_MAX: usize = 32 << 10;
/// Maximum number of metadata entries, and of their bytes.
const METADATA_COUNT_MAX: usize = 64;
const METADATA_BYTES_MAX: usize = 64 << 10;
/// Longest system prompt, in bytes.
const SYSTEM_PROMPT_BYTES_MAX: usize = 1 << 20;
/// Longest name of a model or a permission mode.
const WORD_BYTES_MAX: usize = 256;
/// Maximum number of tools in one list.
const TOOLS_MAX: usize = 1000;
/// Maximum bytes of the configuration of all MCP servers.
const MCP_BYTES_MAX: usize = 256 << 10;

/// Returns the effective limits from those of the session, its agent and the server.
///
/// # Errors
/// If the session requests more than the server allows. The agent's limits were checked when it was
/// deployed, and are capped again here, because the server's limits may have changed.
pub(crate) fn limits(
    config: &SessionsConfig,
    agent: &SessionLimits,
    session: &SessionLimits,
) -> Result<SessionLimits, SessionError> {
    check_limits(config, session, "limits")?;
    let pick = |session: Option<u64>, agent: Option<u64>, server: u64, max: u64| {
        Some(session.or(agent).unwrap_or(server).min(max))
    };
    let memory_bytes = pick(
        session.memory_bytes,
        agent.memory_bytes,
        config.memory_bytes,
        config.memory_bytes_max,
    );
    let disk_bytes =
        pick(session.disk_bytes, agent.disk_bytes, config.disk_bytes, config.disk_bytes_max);
    let disk_room = disk_bytes.unwrap_or(config.disk_bytes) / DISK_BYTES_PER_INODE;
    check_disk_inodes(session.disk_inodes, disk_room, "limits")?;
    Ok(SessionLimits {
        memory_bytes,
        processes: pick(session.processes, agent.processes, config.processes, config.processes_max),
        disk_bytes,
        // A number of files that the session did not request is reduced to fit its disk.
        disk_inodes: pick(
            session.disk_inodes,
            agent.disk_inodes,
            config.disk_inodes,
            DISK_INODES_MAX.min(disk_room),
        ),
        tmp_bytes: pick(
            session.tmp_bytes,
            agent.tmp_bytes,
            config.tmp_bytes,
            memory_bytes.unwrap_or(config.memory_bytes),
        ),
        open_files: pick(session.open_files, agent.open_files, config.open_files, OPEN_FILES_MAX),
    })
}

/// Checks that the server's own limits of disks fit each other, because otherwise no session could
/// be created.
///
/// # Errors
/// If they do not; names both settings, and a valid value for each.
pub(crate) fn check_config(config: &SessionsConfig) -> Result<(), SessionError> {
    super::templates::network::network(&config.templates)?;
    if config.snapshot_every_s == 0 {
        let message = "`sessions.snapshot_every_s` must be at least 1".to_owned();
        return Err(SessionError::invalid("sessions.snapshot_every_s", message));
    }
    let inodes = config.disk_inodes;
    if !(DISK_INODES_MIN..=DISK_INODES_MAX).contains(&inodes) {
        let message = format!(
            "`sessions.disk_inodes` = {inodes} must be between {DISK_INODES_MIN} and \
             {DISK_INODES_MAX}"
        );
        return Err(SessionError::invalid("sessions.disk_inodes", message));
    }
    let bytes_min = (inodes * DISK_BYTES_PER_INODE).max(DISK_BYTES_MIN);
    for (field, bytes) in [
        ("sessions.disk_bytes", config.disk_bytes),
        ("sessions.disk_bytes_max", config.disk_bytes_max),
    ] {
        if bytes < bytes_min {
            let inodes_fitting = bytes / DISK_BYTES_PER_INODE;
            let message = format!(
                "`{field}` = {bytes} is too small for `sessions.disk_inodes` = {inodes}: it must be \
                 at least {bytes_min} ({DISK_BYTES_PER_INODE} for each file, and no less than \
                 {DISK_BYTES_MIN}), or `sessions.disk_inodes` at most {inodes_fitting}"
            );
            return Err(SessionError::invalid(field, message));
        }
    }
    Ok(())
}

/// Checks a requested number of files against the size of its disk.
fn check_disk_inodes(inodes: Option<u64>, room: u64, field: &str) -> Result<(), SessionError> {
    match inodes {
        Some(inodes) if inodes > room => {
            let message = format!(
                "must be at most {room} on a disk of {} bytes (`disk_bytes`): a file takes up to \
                 {DISK_BYTES_PER_INODE} bytes",
                room * DISK_BYTES_PER_INODE
            );
            Err(SessionError::invalid(format!("{field}.disk_inodes"), message))
        }
        _ => Ok(()),
    }
}

/// Checks requested limits; `field` is their place in the request.
pub(crate) fn check_limits(
    config: &SessionsConfig,
    limits: &SessionLimits,
    field: &str,
) -> Result<(), SessionError> {
    let rows = [
        ("memory_bytes", limits.memory_bytes, MEMORY_BYTES_MIN, config.memory_bytes_max),
        ("processes", limits.processes, PROCESSES_MIN, config.processes_max),
        ("disk_bytes", limits.disk_bytes, DISK_BYTES_MIN, config.disk_bytes_max),
        ("disk_inodes", limits.disk_inodes, DISK_INODES_MIN, DISK_INODES_MAX),
        ("tmp_bytes", limits.tmp_bytes, TMP_BYTES_MIN, config.memory_bytes_max),
        ("open_files", limits.open_files, OPEN_FILES_MIN, OPEN_FILES_MAX),
    ];
    for (name, value, min, max) in rows {
        if let Some(value) = value
            && !(min..=max).contains(&value)
        {
            let message = format!("must be between {min} and {max}");
            return Err(SessionError::invalid(format!("{field}.{name}"), message));
        }
    }
    Ok(())
}

/// Returns the disk size of complete limits.
pub(crate) fn disk_size(config: &SessionsConfig, limits: &SessionLimits) -> DiskSize {
    DiskSize {
        bytes: limits.disk_bytes.unwrap_or(config.disk_bytes),
        inodes: limits.disk_inodes.unwrap_or(config.disk_inodes),
    }
}

/// Returns the sandbox's form of complete limits.
pub(crate) fn sandbox_limits(
    config: &SessionsConfig,
    limits: &SessionLimits,
) -> sandbox::SessionSandboxLimits {
    let tmp_bytes = limits.tmp_bytes.unwrap_or(config.tmp_bytes);
    sandbox::SessionSandboxLimits {
        memory_bytes: limits.memory_bytes.unwrap_or(config.memory_bytes),
        processes: limits.processes.unwrap_or(config.processes),
        open_files: limits.open_files.unwrap_or(config.open_files),
        // The disk itself is the limit, even for one file. A process limit would kill a program
        // that should receive a "no space" error, and sparse files may be larger.
        file_size_bytes: u64::MAX,
        tmp_bytes,
        tmp_inodes: tmp_bytes / TMP_BYTES_PER_INODE,
        stack_bytes: STACK_BYTES,
    }
}

/// Checks that an environment can be passed to a program.
pub(crate) fn check_env(env: &BTreeMap<String, String>, field: &str) -> Result<(), SessionError> {
    if env.len() > ENV_COUNT_MAX {
        return Err(SessionError::invalid(field, format!("more than {ENV_COUNT_MAX} variables")));
    }
    let mut bytes = 0_usize;
    for (name, value) in env {
        let named = || format!("{field}.{name}");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if !starts || !name.bytes().all(plain) {
            let message = "a name has letters, digits and `_`, and does not begin with a digit";
            return Err(SessionError::invalid(named(), message));
        }
        if value.contains('\0') {
            return Err(SessionError::invalid(named(), "a value has no NUL character"));
        }
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
    }
    if bytes > ENV_BYTES_MAX {
        return Err(SessionError::invalid(
            field,
            format!("more than {ENV_BYTES_MAX} bytes in all"),
        ));
    }
    Ok(())
}

/// Checks that metadata can be stored.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), SessionError> {
    if metadata.len() > METADATA_COUNT_MAX {
        return Err(SessionError::invalid(
            "metadata",
            format!("more than {METADATA_COUNT_MAX} entries"),
        ));
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        let message = format!("more than {METADATA_BYTES_MAX} bytes in all");
        return Err(SessionError::invalid("metadata", message));
    }
    Ok(())
}

/// Checks an agent's options.
pub(crate) fn check_options(options: &AgentOptions, field: &str) -> Result<(), SessionError> {
    let words = [("model", &options.model), ("permission_mode", &options.permission_mode)];
    for (name, word) in words {
        if let Some(word) = word {
            check_word(word, &format!("{field}.{name}"))?;
        }
    }
    if options.system_prompt.as_ref().is_some_and(|it| it.len() > SYSTEM_PROMPT_BYTES_MAX) {
        let message = format!("longer than {SYSTEM_PROMPT_BYTES_MAX} bytes");
        return Err(SessionError::invalid(format!("{field}.system_prompt"), message));
    }
    if options.system_prompt.as_ref().is_some_and(|it| it.contains('\0')) {
        let message = "has no NUL character";
        return Err(SessionError::invalid(format!("{field}.system_prompt"), message));
    }
    let lists = [
        ("allowed_tools", &options.allowed_tools),
        ("disallowed_tools", &options.disallowed_tools),
    ];
    for (name, tools) in lists {
        let Some(tools) = tools else { continue };
        if tools.len() > TOOLS_MAX {
            let message = format!("more than {TOOLS_MAX} tools");
            return Err(SessionError::invalid(format!("{field}.{name}"), message));
        }
        for (index, tool) in tools.iter().enumerate() {
            check_word(tool, &format!("{field}.{name}[{index}]"))?;
        }
    }
    if let Some(servers) = &options.mcp_servers {
        let text = serde_json::to_string(servers).map_err(SessionError::internal)?;
        if text.len() > MCP_BYTES_MAX {
            let message = format!("more than {MCP_BYTES_MAX} bytes of JSON");
            return Err(SessionError::invalid(format!("{field}.mcp_servers"), message));
        }
    }
    Ok(())
}

/// Checks a word that becomes an argument of the agent: it must not look like an option.
fn check_word(word: &str, field: &str) -> Result<(), SessionError> {
    let fits = !word.is_empty() && word.len() <= WORD_BYTES_MAX;
    if !fits || word.starts_with('-') || word.contains(['\0', '\n']) {
        let message =
            format!("must have 1 to {WORD_BYTES_MAX} bytes, no line break, and not begin with `-`");
        return Err(SessionError::invalid(field, message));
    }
    Ok(())
}

/// Checks a session request by itself, without stored state.
pub(crate) fn check_create(
    config: &SessionsConfig,
    request: &CreateSession,
) -> Result<(), SessionError> {
    check_env(&request.env, "env")?;
    check_metadata(&request.metadata)?;
    check_options(&request.options, "options")?;
    check_limits(config, &request.limits, "limits")?;
    if request.idle_s == Some(0) {
        return Err(SessionError::invalid("idle_s", "must be at least 1"));
    }
    if request.template.is_some() && (request.agent.is_some() || request.snapshot.is_some()) {
        let message =
            "cannot be combined with `agent` or `snapshot`, which have files of their own";
        return Err(SessionError::invalid("template", message));
    }
    Ok(())
}

/// Returns the agent's options, overridden by those of the session.
pub(crate) fn options(agent: &AgentOptions, session: &AgentOptions) -> AgentOptions {
    fn pick<T: Clone>(session: &Option<T>, agent: &Option<T>) -> Option<T> {
        session.as_ref().or(agent.as_ref()).cloned()
    }
    AgentOptions {
        model: pick(&session.model, &agent.model),
        system_prompt: pick(&session.system_prompt, &agent.system_prompt),
        permission_mode: pick(&session.permission_mode, &agent.permission_mode),
        allowed_tools: pick(&session.allowed_tools, &agent.allowed_tools),
        disallowed_tools: pick(&session.disallowed_tools, &agent.disallowed_tools),
        mcp_servers: pick(&session.mcp_servers, &agent.mcp_servers),
    }
}

#[cfg(test)]
mod tests {
    //! Rejections name their field, and missing values come from the next level.

    use super::*;

    #[test]
    fn what_is_left_out_is_the_agents_and_then_the_servers() {
        let config = SessionsConfig::default();
        let agent = SessionLimits { memory_bytes: Some(1 << 30), processes: Some(9), ..none() };
        let session = SessionLimits { processes: Some(7), ..none() };
        let all = limits(&config, &agent, &session).unwrap();
        assert_eq!(all.memory_bytes, Some(1 << 30));
        assert_eq!(all.processes, Some(7));
        assert_eq!(all.disk_bytes, Some(config.disk_bytes));
        assert_eq!(all.tmp_bytes, Some(config.tmp_bytes));
    }

    #[test]
    fn an_agent_from_before_the_servers_limits_were_lowered_gets_what_there_is() {
        let config = SessionsConfig { memory_bytes_max: 1 << 30, ..SessionsConfig::default() };
        let agent = SessionLimits { memory_bytes: Some(8 << 30), ..none() };
        assert_eq!(limits(&config, &agent, &none()).unwrap().memory_bytes, Some(1 << 30));
    }

    fn none() -> SessionLimits {
        SessionLimits::default()
    }

    #[test]
    fn a_disk_has_no_more_files_than_it_has_room_for() {
        let config = SessionsConfig::default();
        let check = |agent: (Option<u64>, Option<u64>), own: (Option<u64>, Option<u64>), files| {
            let of =
                |(disk_bytes, disk_inodes)| SessionLimits { disk_bytes, disk_inodes, ..none() };
            match (limits(&config, &of(agent), &of(own)), files) {
                (Ok(all), Some(files)) => {
                    assert_eq!(all.disk_inodes, Some(files), "{agent:?} {own:?}");
                }
                (Err(SessionError::Refused(refusal)), None) => {
                    assert_eq!(refusal.field, "limits.disk_inodes", "{agent:?} {own:?}");
                }
                (result, _) => panic!("{result:?} of {agent:?} {own:?}"),
            }
        };
        let (mib64, room) = (Some(64 << 20), (64 << 20) / DISK_BYTES_PER_INODE);
        check((None, None), (None, None), Some(config.disk_inodes));
        check((None, None), (mib64, None), Some(room));
        check((None, None), (mib64, Some(room)), Some(room));
        check((None, None), (mib64, Some(room + 1)), None);
        check((mib64, None), (None, None), Some(room));
        check((mib64, None), (None, Some(room + 1)), None);
        check((None, Some(1 << 20)), (mib64, None), Some(room));
        check((None, None), (None, Some(config.disk_bytes / DISK_BYTES_PER_INODE + 1)), None);
    }

    #[test]
    fn a_server_whose_disks_have_no_room_for_their_files_names_both_settings() {
        let check = |config: SessionsConfig, field: &str, least: &str| match check_config(&config) {
            Err(SessionError::Refused(refusal)) => {
                assert_eq!(refusal.field, field);
                assert!(refusal.message.contains(least), "{}", refusal.message);
            }
            other => panic!("{other:?} instead of a refusal of {field}"),
        };
        let config = SessionsConfig::default;
        check_config(&config()).unwrap();
        let bytes = "`sessions.disk_inodes` = 131072: it must be at least 536870912 ";
        check(SessionsConfig { disk_bytes: 64 << 20, ..config() }, "sessions.disk_bytes", bytes);
        check(
            SessionsConfig { disk_bytes_max: 64 << 20, ..config() },
            "sessions.disk_bytes_max",
            bytes,
        );
        let few = SessionsConfig { disk_bytes: 1 << 20, disk_inodes: 1024, ..config() };
        check(few, "sessions.disk_bytes", "at least 16777216 ");
        check(
            SessionsConfig { disk_inodes: 1, ..config() },
            "sessions.disk_inodes",
            "between 1024 and",
        );
        let fits = SessionsConfig { disk_bytes: 64 << 20, disk_inodes: 16_384, ..config() };
        check_config(&fits).unwrap();
    }

    #[test]
    fn refusals_name_their_field() {
        let env = |name: &str, value: &str| {
            let env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            CreateSession { env, ..CreateSession::default() }
        };
        let options = |options| CreateSession { options, ..CreateSession::default() };
        let of = |limits| CreateSession { limits, ..CreateSession::default() };
        let word = |word: &str| Some(word.to_owned());
        let check = |request: CreateSession, field: &str| {
            let error = check_create(&SessionsConfig::default(), &request).unwrap_err();
            match error {
                SessionError::Refused(refusal) => assert_eq!(refusal.field, field),
                other => panic!("{other:?} instead of a refusal of {field}"),
            }
        };
        check(env("A-B", "x"), "env.A-B");
        check(env("1A", "x"), "env.1A");
        check(env("", "x"), "env.");
        check(env("A", "x\0y"), "env.A");
        check(env("A", &"x".repeat(ENV_BYTES_MAX)), "env");
        let model = AgentOptions { model: word("--print"), ..AgentOptions::default() };
        check(options(model), "options.model");
        let tools = Some(vec!["Bash".to_owned(), "-x".to_owned()]);
        let tools = AgentOptions { allowed_tools: tools, ..AgentOptions::default() };
        check(options(tools), "options.allowed_tools[1]");
        check(of(SessionLimits { memory_bytes: Some(1), ..none() }), "limits.memory_bytes");
        check(of(SessionLimits { disk_bytes: Some(u64::MAX), ..none() }), "limits.disk_bytes");
        check(CreateSession { idle_s: Some(0), ..CreateSession::default() }, "idle_s");
    }
}
