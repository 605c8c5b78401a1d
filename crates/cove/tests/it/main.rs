//! The real binary under honest and hostile use.
//!
//! | file | claim |
//! |---|---|
//! | `suite.rs` | every program of `tests/cases/*.toml` gets its verdict and leaves nothing, alone and in a crowd |
//! | `verdicts.rs` | the result document: verdicts, precedence, figures, languages, argv, files, outputs |
//! | `judge.rs` | test cases, checkers, interactors, and compilations that are done once |
//! | `gojudge.rs` | go-judge's clients get what they expect |
//! | `reload.rs` | the configuration is read again while a server runs |
//! | `requests.rs` | bad input gets a 4xx that says what is wrong |
//! | `revocation.rs` | a revoked token ends all that it has opened |
//! | `answers.rs` | clients that do not read their answers hold a bounded amount of memory |
//! | `admission.rs` | overload is refused and passes; a client that leaves takes its run with it |
//! | `routes.rs` | every route of every face refuses what a token is not for |
//! | `lifecycle.rs` | start, drain, `kill -9`, tokens, one server per data directory |
//! | `jobs.rs` | what is submitted is accepted, listed, cancelled, expires; the queue's limits |
//! | `live.rs` | events, input and terminals of what runs; slow and rude clients |
//! | `drain.rs` | a node that drains hands its sessions over, while clients go on with them |
//! | `durability.rs` | what was accepted ends exactly once, whatever dies |
//! | `balanced.rs` | clients that others wrote, at three servers behind a balancer |
//! | `backends.rs` | the same in SQLite, PostgreSQL and Redis; two servers; BullMQ's producers |
//! | `queue_failover.rs` | a replica of Redis becomes the master of the queue |
//! | `backup.rs` | a server that works is backed up, and a restored one has what was answered |
//! | `upgrade.rs` | the data directory of an earlier version is opened; that of a later one is not |
//! | `webhooks.rs` | ends are told: signed, tried again, never inside |
//! | `piston.rs`, `judge0.rs` | other systems' interfaces, by tables and by the clients of others |
//! | `sdk_typescript.rs` | the TypeScript SDK as it is published, in each runtime, over faults |
//! | `sandbox_fusion.rs` | reward functions get verdicts: its client and verl's, load, hostile programs |
//! | `e2b.rs` | E2B's clients, unmodified, and what they do not show |
//! | `interpreter.rs` | cells keep what they define; results, limits, interrupts, E2B's clients |
//! | `interpreter_forks.rs` | contexts that are forked, interpreters that are parked ahead, their metrics |
//! | `interpreter_attacks.rs` | hostile cells bring down their own context and nothing else |
//! | `e2b_ports.rs` | who knows a sandbox's id reaches its programs, and nothing that it was granted |
//! | `integrations.rs` | recipes: frameworks of agents, unmodified, with a stand-in for the model |
//! | `sdk_python.rs` | the Python SDK as it is packed: its tests, its documentation, its types |
//! | `ash.rs` | Ash's clients, unmodified, and what they do not show |
//! | `sessions_faults.rs` | what goes wrong around a session, and what must not come of it |
//! | `sessions_limits.rs` | what a session is held to, and who gives way to whom |
//! | `sessions_crash.rs` | a server is killed again and again: nothing answered is lost, nothing is left |
//! | `sessions_isolation.rs` | what a session must not reach: server, keys, host, other sessions |
//! | `sessions_shared.rs` | servers that share a store and an object store |
//! | `sessions_claude.rs` | the real command line of Claude, with a stand-in for the model |
//! | `integrations_agents.rs` | recipes for Inspect, the AI SDK, CrewAI, LlamaIndex and Claude Code, as their pages say |
//! | `gateway.rs`, `gateway_*.rs` | what code in sandboxes reaches by its grants, and what it does not |
//! | `managed_agents.rs` | `cove worker anthropic`: tools of agents that are kept elsewhere; `managed_plane.rs` is the other end |
//! | `takeover.rs` | sessions of a node that is lost go on at others, and nowhere twice |
//! | `templates.rs` | templates: steps, layers, refusals, sessions that start from one |
//! | `templates_mirrors.rs` | packages in templates from local mirrors; the builders of E2B's clients |
//! | `cli_remote.rs` | `cove exec`, `cove queue`, `cove run --server`: a server seen from a terminal |
//! | `console.rs` | who a token is, signing in at the console, and what ends that |
//! | `system.rs` | a server seen by its operators: what it says of itself |
//! | `monitoring.rs`, `promql.rs` | the dashboard and the alerts ask for what a server shows; each alert fires |
//! | `history.rs` | what a server measured is there at the first look, and for whom it is |
//! | `console_browser.rs` | the console's screens in a real browser: keys, both themes, hostile names, a crash |
//! | `kubernetes.rs` | the chart is what Kubernetes takes and what Cove understands; three nodes by compose |
//! | `kubernetes_drain.rs` | a node drains with its machine, and no other drain is undone |
//! | `packages.rs` | packages are made, installed into a system of their own, used and removed |
//! | `tutorials.rs` | the tutorials of the documentation, every block of them |
//! | `demo.rs` | `cove demo` makes something to look at, once, and takes it away |
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
