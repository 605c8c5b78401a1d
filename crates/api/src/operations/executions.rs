//! Executions, their queue, their webhooks, and the languages of programs.

use super::{
    ApiOperation, KeyedRequests, OperationGroup, OperationRight, events, json, operations, socket,
};
use crate::TokenScope;

/// Executions.
const EXECUTION: OperationGroup =
    OperationGroup::new("executions", OperationRight::OneOf(&[TokenScope::Executions]));
/// The queue as a whole.
const QUEUE: OperationGroup =
    OperationGroup::new("queue", OperationRight::OneOf(&[TokenScope::Executions]));
/// Right to do what concerns all executions.
const OPERATOR: OperationRight = OperationRight::Operator(&[TokenScope::Executions]);

operations! {
    /// Operations of executions.
    EXECUTIONS:

    /// Run a program
    CREATE_EXECUTION = EXECUTION.post("/v1/executions", "createExecution")
        .takes("ExecutionRequest")
        .answers(&[json(202, "ExecutionRecord"), json(200, "Execution")])
        .fails(&[400, 403, 409, 413, 415, 429])
        .keys(KeyedRequests::OfOperation)
        .command("exec submit");

    /// List executions
    LIST_EXECUTIONS = EXECUTION.get("/v1/executions", "listExecutions")
        .answers(&[json(200, "ExecutionList")])
        .fails(&[400])
        .command("exec list");

    /// Run a batch of programs
    CREATE_BATCH = EXECUTION.post("/v1/executions/batch", "createBatch")
        .takes("BatchRequest")
        .answers(&[json(202, "BatchAnswer")])
        .fails(&[400, 409, 413, 415, 429])
        .keys(KeyedRequests::OfOperation);

    /// Get an execution
    GET_EXECUTION = EXECUTION.get("/v1/executions/{id}", "getExecution")
        .answers(&[json(200, "ExecutionRecord")])
        .fails(&[400, 404])
        .command("exec get");

    /// Cancel an execution
    CANCEL_EXECUTION = EXECUTION.delete("/v1/executions/{id}", "cancelExecution")
        .answers(&[json(200, "ExecutionRecord")])
        .fails(&[404, 409])
        .command("exec cancel");

    /// Follow an execution live
    FOLLOW_EXECUTION = EXECUTION.get("/v1/executions/{id}/events", "followExecution")
        .answers(&[socket("ClientMessage"), events("ExecutionEvent")])
        .fails(&[400, 404, 426])
        .command("exec watch");

    /// Queue a dead execution again
    RETRY_EXECUTION = EXECUTION.post("/v1/executions/{id}/retry", "retryExecution")
        .answers(&[json(200, "ExecutionRecord")])
        .fails(&[404, 409])
        .command("queue retry");

    /// Get figures of the queue
    GET_QUEUE = QUEUE.get("/v1/queue", "getQueue")
        .answers(&[json(200, "QueueStats")])
        .fails(&[400, 403])
        .command("queue stats");

    /// Pause the queue
    PAUSE_QUEUE = QUEUE.post("/v1/queue/pause", "pauseQueue")
        .needs(OPERATOR)
        .answers(&[json(200, "QueueStats")])
        .fails(&[403])
        .command("queue pause");

    /// Resume the queue
    RESUME_QUEUE = QUEUE.post("/v1/queue/resume", "resumeQueue")
        .needs(OPERATOR)
        .answers(&[json(200, "QueueStats")])
        .fails(&[403])
        .command("queue resume");

    /// Cancel all waiting executions
    DRAIN_QUEUE = QUEUE.post("/v1/queue/drain", "drainQueue")
        .answers(&[json(200, "QueueChange")])
        .fails(&[400, 403])
        .command("queue drain");

    /// Queue all dead executions again
    RETRY_DEAD = QUEUE.post("/v1/queue/retry", "retryDead")
        .answers(&[json(200, "QueueChange")])
        .fails(&[400, 403])
        .command("queue retry");

    /// Get the webhook key of this token
    GET_WEBHOOK_SECRET = EXECUTION.get("/v1/webhooks/secret", "getWebhookSecret")
        .answers(&[json(200, "WebhookSecret")]);

    /// List languages
    LIST_LANGUAGES = EXECUTION.get("/v1/languages", "listLanguages")
        .needs(OperationRight::AnyToken)
        .answers(&[json(200, "LanguageList")]);
}
