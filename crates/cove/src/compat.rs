//! Compatibility interfaces: below `/compat/` of the server, and on their own listeners.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use bouncer::Bouncer;
use bouncer::faces::dbbouncer;
use executions::Jobs;
use executions::faces::{gojudge, judge0, piston, sandbox_fusion};
use node::auth::{TokenPrincipal, TokenRegistry, TokenScope};
use node::cluster::PeerForwarder;
use node::drain::DrainHandle;
use node::http::{
    self, BoundListener, CompatFace, FaceAccess, FastHead, HttpShell, ListenerSite, TokenSchemes,
};
use node::http::{RouteTable, get};
use sessions::faces::{ash, e2b};

use crate::cluster;
use crate::config::CompatConfig;
use crate::scrape::MetricsPage;

/// Path that they are mounted below.
pub(crate) const ROOT: &str = "/compat/";

/// Compatibility interface.
pub(crate) struct CompatInterface {
    /// Path of the interface; the last segment is its name.
    prefix: &'static str,
    routes: Router,
    /// Routes for other nodes.
    for_peers: Router,
    /// Renders errors in the shape of the interface.
    render: fn(&http::HttpError) -> Response,
    /// Authentication schemes by which its clients can send a token.
    schemes: TokenSchemes,
    /// Address of its own listener, if it has one.
    listen: Option<String>,
}

impl CompatInterface {
    fn name(&self) -> &'static str {
        self.prefix.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the protection of the interface. All of them run programs.
    fn face(&self, access: FaceAccess) -> CompatFace {
        CompatFace {
            access,
            render: Some(self.render),
            scope: Some(TokenScope::Executions),
            schemes: self.schemes,
            challenge: None,
        }
    }
}

/// Returns all interfaces.
pub(crate) fn faces(
    config: &CompatConfig,
    jobs: &Jobs,
    nodes: Option<PeerForwarder>,
) -> Vec<CompatInterface> {
    let CompatConfig { piston, judge0, go_judge, sandbox_fusion, .. } = config.clone();
    let service = || jobs.service().clone();
    let (of_gojudge, for_peers) = gojudge::routes(service(), go_judge.settings, nodes);
    vec![
        CompatInterface {
            prefix: "/compat/piston",
            routes: piston::routes(service(), piston.settings),
            for_peers: Router::new(),
            render: piston::render_error,
            schemes: TokenSchemes::Bearer,
            listen: piston.listen,
        },
        CompatInterface {
            prefix: "/compat/judge0",
            routes: judge0::routes(service(), jobs.clone(), judge0.settings),
            for_peers: Router::new(),
            render: judge0::render_error,
            schemes: TokenSchemes::Bearer,
            listen: judge0.listen,
        },
        CompatInterface {
            prefix: "/compat/go-judge",
            routes: of_gojudge,
            for_peers,
            render: gojudge::render_error,
            schemes: TokenSchemes::Bearer,
            listen: go_judge.listen,
        },
        CompatInterface {
            prefix: "/compat/sandbox-fusion",
            routes: sandbox_fusion::routes(service(), sandbox_fusion.settings),
            for_peers: Router::new(),
            render: sandbox_fusion::render_error,
            // Its clients have no token parameter, but accept a URL with a password.
            schemes: TokenSchemes::BearerOrBasic,
            listen: sandbox_fusion.listen,
        },
    ]
}

/// Returns whether a request, or the WebSocket that it opens, runs programs while its caller waits.
/// Submissions of Judge0 are jobs even if their callers wait.
pub(crate) fn runs_programs(request: FastHead<'_>) -> bool {
    let FastHead { method, uri, .. } = request;
    let Some(path) = uri.path().strip_prefix(ROOT) else { return false };
    let face = path.split('/').next().unwrap_or_default();
    let path = path.strip_prefix(face).unwrap_or_default();
    match face {
        "go-judge" => gojudge::runs_programs(method, path),
        "sandbox-fusion" => sandbox_fusion::runs_programs(method, path),
        "piston" => piston::runs_programs(method, path),
        _ => false,
    }
}

/// Routes for other nodes to request data that these interfaces keep for their callers.
pub(crate) fn for_peers(faces: &[CompatInterface]) -> Router {
    faces.iter().fold(Router::new(), |routes, face| routes.merge(face.for_peers.clone()))
}

/// Returns Ash's interface, at its own paths of the main listener, and its protection there.
pub(crate) fn ash(
    config: &CompatConfig,
    sessions: sessions::Sessions,
    drain: &DrainHandle,
) -> Result<(Router, Vec<(&'static str, CompatFace)>)> {
    let routes = ash::routes(sessions, config.ash.clone(), drain).context("failed to seed ids")?;
    let face = |scope| CompatFace { render: Some(ash::render_error), scope, ..CompatFace::NATIVE };
    let shapes = vec![
        ("/api", face(Some(TokenScope::Sessions))),
        ("/api/agents", face(Some(TokenScope::Agents))),
    ];
    Ok((routes, shapes))
}

/// Opens E2B's interface, which requires its own listener, because its clients derive some
/// addresses from the root. It authorizes every request itself. The second router is for other
/// nodes.
pub(crate) async fn e2b(
    config: &CompatConfig,
    shell: &HttpShell,
    sessions: sessions::Sessions,
    tokens: &TokenRegistry,
) -> Result<(Option<(BoundListener, ListenerSite)>, Router)> {
    let Some(address) = &config.e2b.listen else { return Ok((None, Router::new())) };
    let listener = BoundListener::bind(address).await.context("failed to listen for e2b")?;
    let routes = e2b::routes(sessions, tokens.clone(), config.e2b.settings.clone());
    let (routes, for_peers) = routes.context("failed to make keys for e2b")?;
    tracing::info!(face = "e2b", address = %listener.address(), "listening");
    let face = CompatFace {
        access: FaceAccess::Own,
        render: Some(e2b::render_error),
        ..CompatFace::NATIVE
    };
    let shell = shell.clone().streaming(&e2b::ROUTES);
    Ok((Some((listener, shell.wrap_face(cluster::E2B_LISTENER, routes, face))), for_peers))
}

/// Opens DBBouncer's interface, which requires its own listener, because its paths are short.
/// Tenants require a token; health and metrics are open, as in DBBouncer.
pub(crate) async fn dbbouncer(
    config: &CompatConfig,
    shell: &HttpShell,
    bouncer: Option<&Bouncer>,
    drain: &DrainHandle,
    metrics: MetricsPage,
) -> Result<Option<(BoundListener, ListenerSite)>> {
    let Some(address) = &config.dbbouncer.listen else { return Ok(None) };
    let bouncer = bouncer
        .context("compat.dbbouncer.listen: the bouncer is not enabled, or its address is in use")?;
    let listener = BoundListener::bind(address).await.context("failed to listen for dbbouncer")?;
    let metrics = get(move |headers: HeaderMap| async move { metrics.response(&headers).await });
    let routes = dbbouncer::routes(bouncer.clone(), drain).at("/metrics", metrics);
    tracing::info!(face = "dbbouncer", address = %listener.address(), "listening");
    let render = Some(dbbouncer::render_error as fn(&http::HttpError) -> Response);
    let face = CompatFace { render, scope: Some(TokenScope::Tenants), ..CompatFace::NATIVE };
    // Every node can serve all of its requests.
    let shell = shell.clone().forwarding(None);
    let site = ListenerSite::from(shell.wrap_with(routes, vec![(dbbouncer::PROTECTED, face)]));
    Ok(Some((listener, site.with_errors(render))))
}

/// Mounts the interfaces beside the native routes, and returns the protection of each.
pub(crate) fn mount(
    routes: Router,
    faces: &[CompatInterface],
) -> (Router, Vec<(&'static str, CompatFace)>) {
    let mounted = faces
        .iter()
        .fold(routes, |routes, foreign| routes.nest(foreign.prefix, foreign.routes.clone()));
    let shapes = faces.iter().map(|foreign| (foreign.prefix, foreign.face(FaceAccess::Token)));
    (mounted, shapes.collect())
}

/// Opens the interfaces' own listeners.
pub(crate) async fn listen(
    faces: Vec<CompatInterface>,
    config: &CompatConfig,
    shell: &HttpShell,
) -> Result<Vec<(BoundListener, ListenerSite)>> {
    let mut listeners = Vec::new();
    for foreign in faces {
        let name = foreign.name();
        let Some(address) = &foreign.listen else { continue };
        let listener = BoundListener::bind(address).await;
        let listener = listener.with_context(|| format!("failed to listen for {name}"))?;
        let nobody = TokenPrincipal::without_token(&format!("compat_{name}"), name);
        let access = match config.insecure_open {
            true => FaceAccess::Open(nobody),
            false => FaceAccess::Loopback(nobody),
        };
        tracing::info!(face = name, address = %listener.address(), open = config.insecure_open, "listening");
        let face = foreign.face(access);
        listeners.push((listener, shell.wrap_face(name, foreign.routes, face)));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;

    #[test]
    fn requests_that_run_programs_are_known() {
        let headers = HeaderMap::new();
        let runs = |method: &Method, path: &str| {
            let uri = path.parse().unwrap();
            runs_programs(FastHead { method, uri: &uri, headers: &headers })
        };
        for (method, path, expected) in [
            (Method::POST, "/compat/piston/api/v2/execute", true),
            (Method::POST, "/compat/piston/api/v2/piston/execute?x=1", true),
            (Method::GET, "/compat/piston/api/v2/connect", true),
            (Method::GET, "/compat/piston/api/v2/execute", false),
            (Method::GET, "/compat/piston/api/v2/runtimes", false),
            (Method::POST, "/compat/piston/execute", false),
            (Method::POST, "/compat/go-judge/run", true),
            (Method::GET, "/compat/go-judge/ws", true),
            (Method::GET, "/compat/go-judge/stream", true),
            (Method::POST, "/compat/go-judge/file", false),
            (Method::POST, "/compat/sandbox-fusion/run_code", true),
            (Method::POST, "/compat/sandbox-fusion/run_jupyter", true),
            (Method::POST, "/compat/judge0/submissions?wait=true", false),
            (Method::POST, "/compat/", false),
            (Method::POST, "/v1/executions?wait=true", false),
        ] {
            assert_eq!(runs(&method, path), expected, "{method} {path}");
        }
    }
}
