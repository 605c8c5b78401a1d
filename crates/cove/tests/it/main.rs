//! Tests of the real binary with honest and hostile clients.
//!
//! | file | claim |
//! |---|---|
//! | `suite.rs` | verdicts of `tests/cases/*.toml`, alone and under load; nothing is left behind |
//! | `verdicts.rs` | the result document: verdicts, precedence, figures, languages, argv, files, outputs |
//! | `judge.rs` | test cases, checkers, interactors, and cached compilations |
//! | `gojudge.rs` | go-judge's clients receive the expected answers |
//! | `reload.rs` | a running server reloads its configuration |
//! | `requests.rs` | invalid input is rejected with a 4xx that names the error |
//! | `revocation.rs` | everything that a token has opened ends when it is revoked |
//! | `answers.rs` | clients that do not read their answers hold a bounded amount of memory |
//! | `admission.rs` | overload is rejected and passes; the run of a disconnected client ends |
//! | `routes.rs` | every route of every interface rejects tokens without the required scope |
//! | `lifecycle.rs` | start, drain, `kill -9`, tokens, one server per data directory |
//! | `jobs.rs` | executions are accepted, listed, cancelled, expire; the queue's limits |
//! | `live.rs` | events, input and terminals of executions; slow and misbehaving clients |
//! | `drain.rs` | a draining node hands its sessions over, while clients continue to use them |
//! | `durability.rs` | accepted executions end exactly once, with any process killed |
//! | `balanced.rs` | third-party clients, at three servers behind a balancer |
//! | `backends.rs` | every back end has the same guarantees; two servers; BullMQ's producers |
//! | `queue_failover.rs` | a replica of Redis becomes the master of the queue |
//! | `backup.rs` | backup under load; a restored server has every successful operation |
//! | `upgrade.rs` | data directories of earlier versions are migrated; later ones may be rejected |
//! | `webhooks.rs` | events are delivered: signed, retried, never to internal addresses |
//! | `piston.rs`, `judge0.rs` | other systems' interfaces, by tables and by the clients of others |
//! | `sdk_typescript.rs` | the published TypeScript SDK, in each runtime, with faults |
//! | `sandbox_fusion.rs` | verdicts for reward functions: its client and verl's, load, hostile programs |
//! | `e2b.rs` | E2B's clients, unmodified, and behaviour that they do not cover |
//! | `interpreter.rs` | cells keep their definitions; results, limits, interrupts, E2B's clients |
//! | `interpreter_forks.rs` | forked contexts, interpreters parked in advance, their metrics |
//! | `interpreter_attacks.rs` | hostile cells end only their own context |
//! | `e2b_ports.rs` | a sandbox's id gives access to its programs, not to its grants |
//! | `integrations.rs` | recipes: unmodified agent frameworks, with a stand-in for the model |
//! | `sdk_python.rs` | the packaged Python SDK: its tests, its documentation, its types |
//! | `ash.rs` | Ash's clients, unmodified, and behaviour that they do not cover |
//! | `sessions_faults.rs` | faults around a session, and the consequences that must not follow |
//! | `sessions_limits.rs` | limits of sessions, and the order of eviction |
//! | `sessions_crash.rs` | a server is killed repeatedly; no answered request is lost |
//! | `sessions_isolation.rs` | sessions cannot reach the server, keys, host, other sessions |
//! | `sessions_shared.rs` | servers that share a store and an object store |
//! | `sessions_claude.rs` | the real command line of Claude, with a stand-in for the model |
//! | `integrations_agents.rs` | recipes for Inspect, the AI SDK, CrewAI, LlamaIndex and Claude Code, by their pages |
//! | `gateway.rs`, `gateway_*.rs` | permitted and rejected access of sandboxes by their grants |
//! | `managed_agents.rs` | `cove worker anthropic`; `managed_plane.rs` is the control plane |
//! | `takeover.rs` | sessions of a lost node continue on others, each on only one |
//! | `templates.rs` | templates: steps, layers, rejections, sessions that start from one |
//! | `templates_mirrors.rs` | packages in templates from local mirrors; the builders of E2B's clients |
//! | `cli_remote.rs` | `cove exec`, `cove queue`, `cove run --server`: a server used from a terminal |
//! | `console.rs` | identity of a token, console sign-in, and its end |
//! | `system.rs` | operators' view: checks, configuration, tokens, host names of the console |
//! | `monitoring.rs`, `promql.rs` | dashboard and alerts use existing metrics; each alert fires |
//! | `history.rs` | measured values appear in the first response, for permitted tenants |
//! | `console_browser.rs` | the console's screens in a real browser: keys, both themes, hostile names, a crash |
//! | `kubernetes.rs` | the chart is valid for Kubernetes and Cove; three nodes by compose |
//! | `kubernetes_drain.rs` | a node drains with its Kubernetes node; other drains are kept |
//! | `packages.rs` | packages are built, installed into a separate system, used and removed |
//! | `tutorials.rs` | every block of the documentation's tutorials |
//! | `demo.rs` | `cove demo` creates sample data, once, and removes it |
//! | `command_line.rs` | `cove run`, `doctor`, `languages`, `token` |
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod admission;
mod answers;
mod ash;
mod asynchronous;
mod backends;
mod backup;
mod balanced;
mod balanced_faults;
mod cases;
mod cli_remote;
mod cluster;
mod cluster_bouncer;
mod cluster_faults;
mod cluster_fence;
mod cluster_homes;
mod command_line;
mod console;
mod console_browser;
mod demo;
mod drain;
mod durability;
mod e2b;
mod e2b_ports;
mod foreign;
mod gateway;
mod gateway_amounts;
mod gateway_data;
mod gateway_drivers;
mod gateway_egress;
mod gateway_flood;
mod gateway_hashes;
mod gateway_lake;
mod gateway_lake_sql;
mod gateway_models;
mod gateway_outside;
mod gateway_secrets;
#[path = "../go.rs"]
mod go;
mod gojudge;
mod history;
mod https;
mod integrations;
mod integrations_agents;
mod interpreter;
mod interpreter_attacks;
mod interpreter_forks;
mod jobs;
mod judge;
mod judge0;
mod kubernetes;
mod kubernetes_api;
mod kubernetes_drain;
mod lifecycle;
mod live;
mod live_socket;
mod managed_agents;
mod managed_plane;
mod mcp;
mod mcp_auth;
mod monitoring;
mod packages;
mod piston;
mod promql;
mod queue_failover;
mod reload;
mod requests;
mod revocation;
mod routes;
mod sandbox_fusion;
mod sdk_python;
mod sdk_typescript;
mod sessions_claude;
mod sessions_crash;
mod sessions_faults;
mod sessions_http;
mod sessions_isolation;
mod sessions_limits;
mod sessions_shared;
mod sessions_support;
#[path = "../shared.rs"]
mod shared;
mod suite;
mod support;
mod system;
mod takeover;
mod templates;
mod templates_executions;
mod templates_mirrors;
mod traces;
mod tutorials;
mod upgrade;
mod verdicts;
mod webhooks;
