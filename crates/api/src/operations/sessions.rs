//! Agents, sessions with all that is in them, what is kept beside sessions, and templates.

use super::{
    ApiOperation, KeyedRequests, OperationGroup, OperationRight, bytes, events, events_or, json,
    nothing, operations, socket,
};
use crate::TokenScope;

/// Agents.
const AGENT: OperationGroup =
    OperationGroup::new("agents", OperationRight::OneOf(&[TokenScope::Agents]));
/// Sessions and what belongs to them.
const SESSION: OperationGroup =
    OperationGroup::new("sessions", OperationRight::OneOf(&[TokenScope::Sessions]));

operations! {
    /// Operations of agents.
    AGENTS:

    /// Deploy an agent
    DEPLOY_AGENT = AGENT.post("/v1/agents", "deployAgent")
        .takes("DeployRequest")
        .answers(&[json(201, "Agent")])
        .fails(&[400, 403, 409, 413, 415, 429])
        .command("agent deploy");

    /// List agents
    LIST_AGENTS = AGENT.get("/v1/agents", "listAgents")
        .answers(&[json(200, "AgentList")])
        .command("agent list");

    /// Get an agent
    GET_AGENT = AGENT.get("/v1/agents/{name}", "getAgent")
        .answers(&[json(200, "Agent")])
        .fails(&[404])
        .command("agent info");

    /// Change an agent
    UPDATE_AGENT = AGENT.patch("/v1/agents/{name}", "updateAgent")
        .takes("AgentUpdate")
        .answers(&[json(200, "Agent")])
        .fails(&[400, 403, 404, 409, 415])
        .command("agent update");

    /// Delete an agent
    DELETE_AGENT = AGENT.delete("/v1/agents/{name}", "deleteAgent")
        .answers(&[nothing(204)])
        .fails(&[404])
        .command("agent delete");

    /// List versions of an agent
    LIST_AGENT_VERSIONS = AGENT.get("/v1/agents/{name}/versions", "listAgentVersions")
        .answers(&[json(200, "AgentVersionList")])
        .fails(&[404])
        .command("agent info");

    /// List the files of an agent
    LIST_AGENT_FILES = AGENT.get("/v1/agents/{name}/files", "listAgentFiles")
        .answers(&[json(200, "AgentFileList")])
        .fails(&[404])
        .command("agent info");

    /// Fetch a file of an agent
    GET_AGENT_FILE = AGENT.get("/v1/agents/{name}/files/{*path}", "getAgentFile")
        .answers(&[bytes(200, "application/octet-stream")])
        .fails(&[404]);
}

operations! {
    /// Operations of sessions and their sandboxes.
    SESSIONS:

    /// Create a session
    CREATE_SESSION = SESSION.post("/v1/sessions", "createSession")
        .takes("CreateSession")
        .answers(&[json(201, "Session")])
        .fails(&[400, 403, 404, 413, 415, 429])
        .command("session create");

    /// List sessions
    LIST_SESSIONS = SESSION.get("/v1/sessions", "listSessions")
        .answers(&[json(200, "SessionList")])
        .fails(&[400])
        .command("session list");

    /// Get a session
    GET_SESSION = SESSION.get("/v1/sessions/{id}", "getSession")
        .answers(&[json(200, "Session")])
        .fails(&[404])
        .command("session info");

    /// Change a session
    UPDATE_SESSION = SESSION.patch("/v1/sessions/{id}", "updateSession")
        .takes("UpdateSession")
        .answers(&[json(200, "Session")])
        .fails(&[400, 403, 404, 409, 410, 415])
        .command("session grants");

    /// End a session
    END_SESSION = SESSION.delete("/v1/sessions/{id}", "endSession")
        .answers(&[json(200, "Session")])
        .fails(&[404])
        .command("session end");

    /// Pause a session
    PAUSE_SESSION = SESSION.post("/v1/sessions/{id}/pause", "pauseSession")
        .answers(&[json(200, "Session")])
        .fails(&[404, 409, 410])
        .command("session pause");

    /// Stop a session
    STOP_SESSION = SESSION.post("/v1/sessions/{id}/stop", "stopSession")
        .answers(&[json(200, "Session")])
        .fails(&[404, 409, 410])
        .command("session stop");

    /// Resume a session
    RESUME_SESSION = SESSION.post("/v1/sessions/{id}/resume", "resumeSession")
        .answers(&[json(200, "Session")])
        .fails(&[404, 409, 410])
        .command("session resume");

    /// Copy a session
    FORK_SESSION = SESSION.post("/v1/sessions/{id}/fork", "forkSession")
        .takes("ForkRequest")
        .answers(&[json(201, "SessionList")])
        .fails(&[400, 404, 409, 410, 415])
        .command("session fork");

    /// Interrupt the agent
    INTERRUPT_SESSION = SESSION.post("/v1/sessions/{id}/interrupt", "interruptSession")
        .answers(&[json(200, "InterruptAnswer")])
        .fails(&[404]);

    /// Send a message to the agent
    SEND_MESSAGE = SESSION.post("/v1/sessions/{id}/messages", "sendMessage")
        .takes("MessageRequest")
        .answers(&[events_or("SessionEvent", "MessageAnswer")])
        .fails(&[400, 404, 409, 410, 413, 415, 429])
        .keys(KeyedRequests::EndWithClient)
        .command("session send");

    /// Read the conversation
    LIST_MESSAGES = SESSION.get("/v1/sessions/{id}/messages", "listMessages")
        .answers(&[json(200, "SessionMessageList")])
        .fails(&[400, 404]);

    /// Follow a session
    FOLLOW_SESSION = SESSION.get("/v1/sessions/{id}/events", "followSession")
        .answers(&[events_or("SessionEvent", "SessionEventList")])
        .fails(&[400, 404])
        .command("session tail");

    /// Get the agent's log
    GET_SESSION_LOGS = SESSION.get("/v1/sessions/{id}/logs", "getSessionLogs")
        .answers(&[json(200, "SessionLogs")])
        .fails(&[404])
        .command("session logs");

    /// Run a command
    EXEC_IN_SESSION = SESSION.post("/v1/sessions/{id}/exec", "execInSession")
        .takes("SessionExec")
        .answers(&[events_or("SessionExecEvent", "SessionExecResult")])
        .fails(&[400, 404, 409, 410, 413, 415])
        .keys(KeyedRequests::EndWithClient)
        .command("session exec");

    /// Open a terminal
    OPEN_TERMINAL = SESSION.get("/v1/sessions/{id}/terminal", "openTerminal")
        .answers(&[socket("ClientMessage")])
        .fails(&[400, 404, 409, 410, 426, 429])
        .command("session terminal");

    /// List terminals
    LIST_TERMINALS = SESSION.get("/v1/sessions/{id}/terminals", "listTerminals")
        .answers(&[json(200, "SessionTerminalList")])
        .fails(&[404, 410])
        .command("session terminals");

    /// End a terminal
    END_TERMINAL = SESSION.delete("/v1/sessions/{id}/terminals/{terminal}", "endTerminal")
        .answers(&[nothing(204)])
        .fails(&[404, 410])
        .command("session terminals");

    /// Create a context
    CREATE_CODE_CONTEXT = SESSION.post("/v1/sessions/{id}/contexts", "createCodeContext")
        .takes("CreateCodeContext")
        .answers(&[json(201, "CodeContext")])
        .fails(&[400, 404, 409, 410, 413, 415, 429])
        .command("session context create");

    /// List contexts
    LIST_CODE_CONTEXTS = SESSION.get("/v1/sessions/{id}/contexts", "listCodeContexts")
        .answers(&[json(200, "CodeContextList")])
        .fails(&[404, 409, 410])
        .command("session context list");

    /// Get a context
    GET_CODE_CONTEXT = SESSION.get("/v1/sessions/{id}/contexts/{context}", "getCodeContext")
        .answers(&[json(200, "CodeContext")])
        .fails(&[404, 409, 410]);

    /// Delete a context
    DELETE_CODE_CONTEXT = SESSION.delete("/v1/sessions/{id}/contexts/{context}", "deleteCodeContext")
        .answers(&[nothing(204)])
        .fails(&[404, 409, 410])
        .command("session context delete");

    /// Restart a context
    RESTART_CODE_CONTEXT = SESSION.post("/v1/sessions/{id}/contexts/{context}/restart", "restartCodeContext")
        .answers(&[json(200, "CodeContext")])
        .fails(&[404, 409, 410])
        .command("session context restart");

    /// Fork a context
    FORK_CODE_CONTEXT = SESSION.post("/v1/sessions/{id}/contexts/{context}/fork", "forkCodeContext")
        .takes("ForkCodeContext")
        .answers(&[json(201, "CodeContext")])
        .fails(&[400, 404, 409, 410, 413, 415, 429])
        .command("session context fork");

    /// Interrupt a cell
    INTERRUPT_CODE_CONTEXT = SESSION.post("/v1/sessions/{id}/contexts/{context}/interrupt", "interruptCodeContext")
        .answers(&[json(200, "InterruptAnswer")])
        .fails(&[404, 409, 410])
        .command("session context interrupt");

    /// Run a cell
    EXECUTE_CELL = SESSION.post("/v1/sessions/{id}/contexts/{context}/execute", "executeCell")
        .takes("ExecuteCell")
        .answers(&[events_or("CellEvent", "CellReport")])
        .fails(&[400, 404, 409, 410, 413, 415, 429])
        .keys(KeyedRequests::EndWithClient)
        .command("session run");

    /// List files
    LIST_FILES = SESSION.get("/v1/sessions/{id}/files", "listFiles")
        .answers(&[json(200, "FileList")])
        .fails(&[400, 403, 404, 409, 410])
        .command("session files ls");

    /// Fetch a file
    READ_FILE = SESSION.get("/v1/sessions/{id}/files/{*path}", "readFile")
        .answers(&[
            bytes(200, "application/octet-stream"),
            bytes(206, "application/octet-stream"),
        ])
        .fails(&[400, 403, 404, 409, 410, 416])
        .command("session files get");

    /// Write a file
    WRITE_FILE = SESSION.put("/v1/sessions/{id}/files/{*path}", "writeFile")
        .uploads()
        .answers(&[json(200, "FileEntry"), json(201, "FileEntry")])
        .fails(&[400, 403, 404, 409, 410, 413])
        .command("session files put");

    /// Remove a file
    REMOVE_FILE = SESSION.delete("/v1/sessions/{id}/files/{*path}", "removeFile")
        .answers(&[nothing(204)])
        .fails(&[400, 403, 404, 409, 410])
        .command("session files rm");

    /// Move a file
    MOVE_FILE = SESSION.post("/v1/sessions/{id}/files/{*path}", "moveFile")
        .takes("MoveFile")
        .answers(&[json(200, "FileEntry")])
        .fails(&[400, 403, 404, 405, 409, 410, 415]);

    /// Fetch a directory as tar
    EXPORT_ARCHIVE = SESSION.get("/v1/sessions/{id}/archive", "exportArchive")
        .answers(&[bytes(200, "application/x-tar")])
        .fails(&[400, 403, 404, 409, 410]);

    /// Unpack a tar
    IMPORT_ARCHIVE = SESSION.put("/v1/sessions/{id}/archive", "importArchive")
        .uploads()
        .answers(&[json(200, "ArchiveImported")])
        .fails(&[400, 403, 404, 409, 410, 413]);

    /// Watch a directory
    WATCH_FILES = SESSION.get("/v1/sessions/{id}/watch", "watchFiles")
        .answers(&[events("FileChange")])
        .fails(&[400, 403, 404, 409, 410, 429]);

    /// Query a database
    QUERY_GRANT = SESSION.post("/v1/sessions/{id}/grants/{name}/query", "queryGrant")
        .takes("GrantQuery")
        .answers(&[json(200, "GrantQueryResult")])
        .fails(&[400, 404, 409, 410, 413, 415, 429, 503])
        .command("session sql");

    /// Describe databases and tables
    DESCRIBE_GRANT = SESSION.get("/v1/sessions/{id}/grants/{name}/describe", "describeGrant")
        .answers(&[json(200, "GrantDescription")])
        .fails(&[400, 404, 409, 410, 429, 503])
        .command("session sql");

    /// Get the resource usage of a session
    GET_SESSION_METRICS = SESSION.get("/v1/sessions/{id}/metrics", "getSessionMetrics")
        .answers(&[json(200, "SessionMetrics")])
        .fails(&[404, 409])
        .command("top");

    /// Count sandboxes
    COUNT_SANDBOXES = SESSION.get("/v1/sandboxes", "countSandboxes")
        .answers(&[json(200, "SandboxCounts")])
        .command("top");
}

operations! {
    /// Operations of what is kept beside sessions.
    SHELF:

    /// Create a snapshot
    CREATE_SNAPSHOT = SESSION.post("/v1/sessions/{id}/snapshots", "createSnapshot")
        .takes("SnapshotRequest")
        .answers(&[json(201, "Snapshot")])
        .fails(&[400, 404, 409, 410, 415]);

    /// List snapshots of a session
    LIST_SNAPSHOTS_OF_SESSION = SESSION.get("/v1/sessions/{id}/snapshots", "listSnapshotsOfSession")
        .answers(&[json(200, "SnapshotList")])
        .fails(&[404]);

    /// List snapshots
    LIST_SNAPSHOTS = SESSION.get("/v1/snapshots", "listSnapshots")
        .answers(&[json(200, "SnapshotList")]);

    /// Delete a snapshot
    DELETE_SNAPSHOT = SESSION.delete("/v1/snapshots/{id}", "deleteSnapshot")
        .answers(&[nothing(204)])
        .fails(&[404]);

    /// Store a secret for agents
    CREATE_CREDENTIAL = SESSION.post("/v1/credentials", "createCredential")
        .takes("CreateCredential")
        .answers(&[json(201, "Credential")])
        .fails(&[400, 415, 429]);

    /// List secrets
    LIST_CREDENTIALS = SESSION.get("/v1/credentials", "listCredentials")
        .answers(&[json(200, "CredentialList")]);

    /// Delete a secret
    DELETE_CREDENTIAL = SESSION.delete("/v1/credentials/{id}", "deleteCredential")
        .answers(&[nothing(204)])
        .fails(&[404]);

    /// Attach a file to a session
    ADD_ATTACHMENT = SESSION.post("/v1/sessions/{id}/attachments", "addAttachment")
        .uploads()
        .answers(&[json(201, "SessionAttachment")])
        .fails(&[400, 404, 413, 429]);

    /// List attachments
    LIST_ATTACHMENTS = SESSION.get("/v1/sessions/{id}/attachments", "listAttachments")
        .answers(&[json(200, "SessionAttachmentList")])
        .fails(&[404]);

    /// Fetch an attachment
    GET_ATTACHMENT = SESSION.get("/v1/attachments/{id}", "getAttachment")
        .answers(&[bytes(200, "application/octet-stream")])
        .fails(&[404]);

    /// Delete an attachment
    DELETE_ATTACHMENT = SESSION.delete("/v1/attachments/{id}", "deleteAttachment")
        .answers(&[nothing(204)])
        .fails(&[404]);

    /// Get the token usage of turns
    GET_USAGE = SESSION.get("/v1/usage", "getUsage")
        .answers(&[json(200, "UsageReport")])
        .fails(&[400]);
}

operations! {
    /// Operations of templates.
    TEMPLATES:

    /// Build a template
    BUILD_TEMPLATE = SESSION.post("/v1/templates", "buildTemplate")
        .takes("BuildTemplate")
        .answers(&[json(200, "TemplateBuild"), json(202, "TemplateBuild")])
        .fails(&[400, 413, 415, 429])
        .command("template build");

    /// List templates
    LIST_TEMPLATES = SESSION.get("/v1/templates", "listTemplates")
        .answers(&[json(200, "TemplateList")])
        .command("template list");

    /// Get a template
    GET_TEMPLATE = SESSION.get("/v1/templates/{name}", "getTemplate")
        .answers(&[json(200, "Template")])
        .fails(&[404])
        .command("template show");

    /// Delete a template
    DELETE_TEMPLATE = SESSION.delete("/v1/templates/{name}", "deleteTemplate")
        .answers(&[nothing(204)])
        .fails(&[404])
        .command("template delete");

    /// List builds of a template
    LIST_TEMPLATE_BUILDS = SESSION.get("/v1/templates/{name}/builds", "listTemplateBuilds")
        .answers(&[json(200, "TemplateBuildList")])
        .fails(&[404])
        .command("template show");

    /// Get a build
    GET_TEMPLATE_BUILD = SESSION.get("/v1/templates/{name}/builds/{build}", "getTemplateBuild")
        .answers(&[json(200, "TemplateBuild")])
        .fails(&[404])
        .command("template build");

    /// Read the log of a build
    GET_TEMPLATE_BUILD_LOGS = SESSION.get("/v1/templates/{name}/builds/{build}/logs", "getTemplateBuildLogs")
        .answers(&[events_or("TemplateLogLine", "TemplateLogList")])
        .fails(&[404])
        .command("template show");

    /// Tag a build
    TAG_TEMPLATE = SESSION.post("/v1/templates/{name}/tags", "tagTemplate")
        .takes("TagTemplate")
        .answers(&[json(200, "Template")])
        .fails(&[400, 404, 409, 415]);

    /// Remove a tag
    UNTAG_TEMPLATE = SESSION.delete("/v1/templates/{name}/tags/{tag}", "untagTemplate")
        .answers(&[nothing(204)])
        .fails(&[400, 404]);

    /// Prepare the upload of an archive
    HAS_TEMPLATE_ARCHIVE = SESSION.get("/v1/template-files/{archive}", "hasTemplateArchive")
        .answers(&[nothing(204)])
        .fails(&[400, 404])
        .command("template build");

    /// Upload an archive
    PUT_TEMPLATE_ARCHIVE = SESSION.put("/v1/template-files/{archive}", "putTemplateArchive")
        .uploads()
        .answers(&[json(200, "TemplateArchive")])
        .fails(&[400, 413, 429])
        .command("template build");
}
