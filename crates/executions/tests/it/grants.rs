//! Programs can use their grants while they run, and only then.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{
    DatabaseGrant, ErrorCode, Execution, ExecutionMode, ExecutionRequest, Grant, JudgeProgram,
    ModelGrant, OutputComparison, TestCase, Verdict,
};
use executions::{ExecutionError, ExecutionService, ProgramIo};
use node::auth::TokenPrincipal;
use tokio::time;

use crate::gateway::Echo;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
type Test = (&'static str, fn(Fixture) -> Running);

macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[Test] =
            &[$((stringify!($name), |fixture| Box::pin($name(fixture)))),*];
    };
}

tests![
    a_program_reaches_what_it_was_granted,
    an_interpreter_that_waits_reaches_it_too,
    test_cases_have_grants_and_their_checker_has_none,
    an_interactor_has_none,
    what_runs_where_it_was_compiled_has_them_then,
    what_was_compiled_is_the_same_with_and_without,
    what_cannot_be_given_is_refused,
    what_is_gone_when_it_is_to_run_is_refused_then,
    whoever_leaves_closes_the_gate,
];

/// The service with a gateway, and one without.
pub(crate) struct Fixture {
    pub(crate) service: ExecutionService,
    pub(crate) alone: ExecutionService,
    pub(crate) gateway: Arc<Echo>,
}

impl Fixture {
    async fn try_run(&self, request: ExecutionRequest) -> Result<Execution, ExecutionError> {
        let ran = self.service.execute("somebody", request, ProgramIo::default(), &mut ()).await;
        assert_eq!(self.gateway.open.load(Ordering::SeqCst), 0, "a gate outlives its program");
        ran
    }

    async fn run(&self, request: ExecutionRequest) -> Execution {
        self.try_run(request).await.unwrap()
    }

    fn opened(&self) -> usize {
        self.gateway.opened.load(Ordering::SeqCst)
    }
}

fn postgres(port: Option<u16>) -> Grant {
    let grant = DatabaseGrant { tenant: "shop".to_owned(), port, ..DatabaseGrant::default() };
    Grant::Postgres(grant)
}

/// Returns a shell script, with a grant.
fn shell(script: &str) -> ExecutionRequest {
    let argv = ["/bin/bash", "-c", script].map(str::to_owned);
    ExecutionRequest {
        argv: Some(argv.into()),
        grants: vec![postgres(None)],
        ..ExecutionRequest::default()
    }
}

fn source(language: &str, source: &str) -> ExecutionRequest {
    ExecutionRequest {
        language: Some(language.to_owned()),
        source: Some(source.to_owned()),
        grants: vec![postgres(None)],
        ..ExecutionRequest::default()
    }
}

const ASK: &str = "cat < /dev/tcp/$PGHOST/5432";

async fn a_program_reaches_what_it_was_granted(fixture: Fixture) {
    let execution = fixture.run(shell(ASK)).await;
    let expected = format!("5432 {} of somebody\n", execution.id);
    assert_eq!(execution.outcome.stdout, expected, "{execution:?}");
    let mut request = shell("for port in $PORTS; do head -c 4 < /dev/tcp/localhost/$port; done");
    request.grants = vec![postgres(Some(2000)), postgres(None), postgres(Some(1500))];
    assert_eq!(fixture.run(request).await.outcome.stdout, "200054321500");
    // The caller's own variables take precedence.
    let mut request = shell("echo $PGHOST $PORTS");
    request.env.insert("PGHOST".to_owned(), "elsewhere".to_owned());
    assert_eq!(fixture.run(request).await.outcome.stdout, "elsewhere 5432\n");
    assert_eq!(fixture.opened(), 3);
    // Without grants there is no loopback.
    let without = ExecutionRequest { grants: Vec::new(), ..shell(ASK) };
    let outcome = fixture.run(without).await.outcome;
    assert_eq!((outcome.verdict, outcome.stdout.as_str()), (Verdict::Re, ""), "{outcome:?}");
    assert_eq!(fixture.opened(), 3);
}

async fn an_interpreter_that_waits_reaches_it_too(fixture: Fixture) {
    let text = "import os, socket\n\
                s = socket.create_connection((os.environ['PGHOST'], 5432)); print(s.recv(4))";
    for (fresh, mode) in [
        (false, ExecutionMode::Zygote),
        (false, ExecutionMode::Zygote),
        (true, ExecutionMode::Fresh),
    ] {
        let execution = fixture.run(ExecutionRequest { fresh, ..source("python", text) }).await;
        assert_eq!(execution.outcome.stdout, "b'5432'\n", "{execution:?}");
        assert_eq!(execution.mode, mode);
    }
}

async fn test_cases_have_grants_and_their_checker_has_none(fixture: Fixture) {
    let case = |stdin: &str| TestCase { stdin: Some(stdin.to_owned()), ..TestCase::default() };
    let checker = "grep -q 5432 \"$1\" || exit 1; cat < /dev/tcp/127.0.0.1/5432 && exit 1; exit 0";
    let argv = ["/bin/bash", "-c", checker].map(str::to_owned);
    let checker = JudgeProgram { argv: Some(argv.into()), ..JudgeProgram::default() };
    let request = ExecutionRequest {
        tests: vec![case("a"), case("b"), case("c")],
        comparison: Some(OutputComparison::Checker(Box::new(checker))),
        ..shell(ASK)
    };
    let execution = fixture.run(request).await;
    let verdicts: Vec<_> = execution.tests.iter().map(|test| test.outcome.verdict).collect();
    assert_eq!(verdicts, [Verdict::Ok; 3], "{execution:?}");
    assert_eq!(fixture.opened(), 3);
}

async fn an_interactor_has_none(fixture: Fixture) {
    let interactor = "cat < /dev/tcp/127.0.0.1/5432 && exit 1; echo $PGHOST; read line; \
                      [[ $line == 5432* ]]";
    let argv = ["/bin/bash", "-c", interactor].map(str::to_owned);
    let interactor = JudgeProgram { argv: Some(argv.into()), ..JudgeProgram::default() };
    let script = format!("read line; [[ -z $line ]] || exit 3; {ASK}");
    let request = ExecutionRequest { interactor: Some(interactor), ..shell(&script) };
    let execution = fixture.run(request).await;
    assert_eq!(execution.outcome.verdict, Verdict::Ok, "{execution:?}");
    assert_eq!(fixture.opened(), 1);
}

async fn what_runs_where_it_was_compiled_has_them_then(fixture: Fixture) {
    let execution = fixture.run(source("stays", "head -c 4 < /dev/tcp/$PGHOST/5432")).await;
    assert_eq!(execution.stages.len(), 2);
    assert_eq!(execution.outcome.stdout, "5432", "{execution:?}");
    assert_eq!(fixture.opened(), 1);
}

async fn what_was_compiled_is_the_same_with_and_without(fixture: Fixture) {
    let text = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n\
                const char *host = getenv(\"PGHOST\"); puts(host ? host : \"none\"); return 0; }";
    let without = ExecutionRequest { grants: Vec::new(), ..source("c", text) };
    let first = fixture.run(without).await;
    assert_eq!(first.outcome.stdout, "none\n", "{first:?}");
    let second = fixture.run(source("c", text)).await;
    assert_eq!(
        (second.outcome.stdout.as_str(), second.mode),
        ("localhost\n", ExecutionMode::Cached)
    );
}

async fn what_cannot_be_given_is_refused(fixture: Fixture) {
    let model = Grant::Model(ModelGrant::default());
    for (grants, field) in [
        (vec![postgres(Some(80))], "grants[0].port"),
        (vec![postgres(None), postgres(Some(0))], "grants[1].port"),
        (vec![postgres(None), model.clone(), postgres(None)], "grants[2].port"),
        ((2000..2100).map(|port| postgres(Some(port))).collect(), "grants"),
    ] {
        let error = fixture.try_run(ExecutionRequest { grants, ..shell(ASK) }).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert_eq!(error.detail().field.as_deref(), Some(field));
    }
    let mut request = shell(ASK);
    let error =
        fixture.alone.execute("somebody", request.clone(), ProgramIo::default(), &mut ()).await;
    assert_eq!(error.unwrap_err().detail().field.as_deref(), Some("grants"));
    let who = TokenPrincipal::without_token("somebody", "somebody");
    let error = fixture.alone.authorize(&who, &mut request).unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("grants"));
    fixture.service.authorize(&who, &mut request).unwrap();
    let mut request = ExecutionRequest { grants: vec![postgres(None), model], ..request };
    let error = fixture.service.authorize(&who, &mut request).unwrap_err();
    assert_eq!((error.code(), error.detail().message), (ErrorCode::Forbidden, "not yours".into()));
    assert_eq!(error.detail().field.as_deref(), Some("grants[1]"));
    fixture.service.authorize(&TokenPrincipal { operator: true, ..who }, &mut request).unwrap();
    assert_eq!(fixture.opened(), 0);
}

async fn what_is_gone_when_it_is_to_run_is_refused_then(fixture: Fixture) {
    *fixture.gateway.gone_after.lock() = Some(1);
    let error = fixture.try_run(shell(ASK)).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("grants[0].tenant"));
    assert_eq!((fixture.gateway.resolved.load(Ordering::SeqCst), fixture.opened()), (2, 0));
}

async fn whoever_leaves_closes_the_gate(fixture: Fixture) {
    let service = fixture.service.clone();
    let request = shell(&format!("{ASK}; sleep 60"));
    let running = tokio::spawn(async move {
        service.execute("somebody", request, ProgramIo::default(), &mut ()).await
    });
    while fixture.opened() == 0 {
        time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(fixture.gateway.open.load(Ordering::SeqCst), 0);
    fixture.run(shell(ASK)).await;
}
