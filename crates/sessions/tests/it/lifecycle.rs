//! Life cycle of sessions, including pauses, evictions and other servers.

use api::{CreateSession, SandboxState, SessionLimits, SessionState};
use sandbox::Engine;
use sessions::service::{CreateExtras, DeadlineAction, ListQuery};
use sessions::{SessionError, SessionsConfig, SnapshotPolicy};

use crate::support::{Home, SESSIONS, TENANT, config, guest_init_of, kill, tests};

tests![
    a_session_is_made_worked_with_and_ended,
    another_tenant_finds_nothing,
    files_and_state_survive_pause_stop_and_restart,
    a_sandbox_that_dies_pauses_its_session,
    who_waits_the_longest_gives_way_and_comes_back,
    many_at_once_all_succeed,
    what_cannot_be_made_leaves_nothing,
    a_fork_has_everything_and_touches_nothing,
    a_fork_of_what_has_ended_leaves_no_disk,
    a_snapshot_is_what_new_sessions_start_from,
    idle_sessions_give_up_their_sandboxes,
    cold_disks_go_to_the_object_store,
    files_of_a_session_at_work_go_to_the_object_store_at_intervals,
    deadlines_pause_and_end,
    another_server_goes_on_with_what_was_stopped,
    what_was_stopped_stays_on_the_disk_of_a_server_that_is_alone,
];

async fn a_session_is_made_worked_with_and_ended(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    let session = server.queries().unwrap().get(TENANT, &id).await.unwrap();
    assert_eq!((session.state, session.sandbox), (SessionState::Active, SandboxState::Warm));
    assert_eq!(server.out(&id, "echo hello; pwd; id -un").await, "hello\n/workspace\nuser\n");
    let session = server.queries().unwrap().get(TENANT, &id).await.unwrap();
    assert_eq!(session.sandbox, SandboxState::Waiting);
    let failed = server.sh(&id, "echo bad >&2; exit 3").await;
    assert_eq!((failed.exit_code, failed.stderr.as_str()), (Some(3), "bad\n"));
    let metrics = server.queries().unwrap().metrics(TENANT, &id).await.unwrap().unwrap();
    assert!(metrics.disk_total_bytes > 32 << 20 && metrics.memory_bytes > 0, "{metrics:?}");

    let ended = server.end(TENANT, &id).await.unwrap();
    assert_eq!((ended.state, ended.sandbox), (SessionState::Ended, SandboxState::Cold));
    assert!(matches!(server.resume(TENANT, &id).await, Err(SessionError::Ended)));
    assert_eq!(server.counts().total, 0);
    let disks = std::fs::read_dir(home.path().join("srv_test/sessions/disks")).unwrap().count();
    assert!(disks <= home.config.ready, "{disks} disks are left");
    server.stop().await;
}

async fn another_tenant_finds_nothing(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    for error in [
        server.queries().unwrap().get("tenant-b", &id).await.map(drop),
        server.end("tenant-b", &id).await.map(drop),
        server.resume("tenant-b", &id).await.map(drop),
        server.files("tenant-b", &id).await.map(drop),
        server.sandbox("tenant-b", &id).await.map(drop),
        server.conversations().unwrap().events("tenant-b", &id, 0).await.map(drop),
        server.fork("tenant-b", &id, 1).await.map(drop),
    ] {
        assert!(matches!(error, Err(SessionError::NotFound("session"))), "{error:?}");
    }
    let theirs =
        server.queries().unwrap().list("tenant-b", ListQuery { limit: 10, ..ListQuery::default() });
    assert!(theirs.await.unwrap().sessions.is_empty());
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}

async fn files_and_state_survive_pause_stop_and_restart(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    // W12: no file is dropped because of its name.
    server
        .out(
            &id,
            "mkdir -p .git node_modules/x; echo 1 >.git/HEAD; echo 2 >node_modules/x/y; \
        echo 3 >yarn.lock; echo 4 >~/home",
        )
        .await;
    let all = "cat .git/HEAD node_modules/x/y yarn.lock ~/home";
    server.pause(TENANT, &id).await.unwrap();
    assert_eq!(
        server.queries().unwrap().get(TENANT, &id).await.unwrap().state,
        SessionState::Paused
    );
    let refused = server.commands().unwrap().run(
        TENANT,
        &id,
        api::SessionExec { command: Some("true".to_owned()), ..api::SessionExec::default() },
    );
    assert!(matches!(refused.await, Err(SessionError::Conflict(_))));
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, all).await, "1\n2\n3\n4\n");
    assert_eq!(server.counts().resumed_warm, 1);

    let stopped = server.stop_session(&id).await;
    assert_eq!((stopped.state, stopped.sandbox), (SessionState::Stopped, SandboxState::Cold));
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, all).await, "1\n2\n3\n4\n");
    assert_eq!(server.counts().resumed_local, 1);

    server.stop().await;
    let server = home.start().await;
    let session = server.queries().unwrap().get(TENANT, &id).await.unwrap();
    assert_eq!((session.state, session.id.as_str()), (SessionState::Paused, id.as_str()));
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, all).await, "1\n2\n3\n4\n");
    server.stop().await;
}

async fn a_sandbox_that_dies_pauses_its_session(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    server.out(&id, "echo kept >file").await;
    let guard = server.sandbox(TENANT, &id).await.unwrap();
    let ended = guard.ended();
    let exec = api::SessionExec {
        command: Some("exec sleep 1357.911".to_owned()),
        ..api::SessionExec::default()
    };
    let (long, ()) = tokio::join!(server.commands().unwrap().run(TENANT, &id, exec), async {
        server.until("it runs", || async { guest_init_of("1357.911").is_some() }).await;
        kill(guest_init_of("1357.911").unwrap());
    });
    // W6: pending requests in the session receive the error at once.
    assert!(matches!(long, Err(SessionError::SandboxEnded(_))), "{long:?}");
    ended.await;
    drop(guard);
    let paused = || async {
        server.queries().unwrap().get(TENANT, &id).await.unwrap().state == SessionState::Paused
    };
    server.until("the session is paused", paused).await;
    // W4: the session does not count as alive.
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, "cat file").await, "kept\n");
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}

async fn who_waits_the_longest_gives_way_and_comes_back(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { resident_max: 2, ..config() });
    let server = home.start().await;
    let (a, b) = (server.plain().await, server.plain().await);
    server.out(&a, "echo a >file").await;
    server.out(&b, "echo b >file").await;
    let c = server.plain().await;
    let state = |id: String| {
        let server = &server;
        async move { server.queries().unwrap().get(TENANT, &id).await.unwrap() }
    };
    assert_eq!(state(a.clone()).await.state, SessionState::Paused);
    assert_eq!(state(b.clone()).await.state, SessionState::Active);
    // Sandboxes at work are never evicted: with both at work there is no room.
    let (_b, _c) =
        (server.sandbox(TENANT, &b).await.unwrap(), server.sandbox(TENANT, &c).await.unwrap());
    assert!(matches!(server.resume(TENANT, &a).await, Err(SessionError::Capacity)));
    assert!(matches!(
        server.create(TENANT, CreateSession::default()).await,
        Err(SessionError::Capacity)
    ));
    drop((_b, _c));
    server.resume(TENANT, &a).await.unwrap();
    assert_eq!(server.out(&a, "cat file").await, "a\n");
    assert_eq!(state(b.clone()).await.state, SessionState::Paused);
    let counts = server.counts();
    assert_eq!((counts.cold, counts.total), (1, 3), "{counts:?}");
    server.stop().await;
}

async fn many_at_once_all_succeed(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { ready: 0, ..config() });
    let server = home.start().await;
    let made = (0..SESSIONS).map(|_| server.create(TENANT, CreateSession::default()));
    let made = futures_util::future::join_all(made).await;
    for session in made {
        let id = session.unwrap().id;
        assert_eq!(server.out(&id, "echo x").await, "x\n");
    }
    server.stop().await;
}

async fn what_cannot_be_made_leaves_nothing(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { sessions_max_per_tenant: 1, ..config() });
    let server = home.start().await;
    server.plain().await;
    let refused = server.create(TENANT, CreateSession::default()).await;
    assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
    let field = |request: CreateSession| {
        let server = &server;
        async move { server.create(TENANT, request).await.map(|session| session.id) }
    };
    let unknown = CreateSession { agent: Some("none".to_owned()), ..CreateSession::default() };
    assert!(matches!(field(unknown).await, Err(SessionError::NotFound("agent"))));
    let unknown = CreateSession { snapshot: Some("none".to_owned()), ..CreateSession::default() };
    assert!(matches!(field(unknown).await, Err(SessionError::NotFound("snapshot"))));
    let large = SessionLimits { memory_bytes: Some(u64::MAX), ..SessionLimits::default() };
    let large = CreateSession { limits: large, ..CreateSession::default() };
    assert!(matches!(field(large).await, Err(SessionError::Refused(_))));
    let counts = server.counts();
    assert_eq!((counts.total, counts.warming), (1, 0), "{counts:?}");
    server.stop().await;
}

async fn a_fork_has_everything_and_touches_nothing(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let env = [("OWN".to_owned(), "value".to_owned())].into();
    let parent = server.create(TENANT, CreateSession { env, ..CreateSession::default() });
    let parent = parent.await.unwrap().id;
    server.out(&parent, "echo one >file; echo two >~/home; rm -f gone").await;
    let forks = server.fork(TENANT, &parent, 2).await.unwrap();
    for fork in &forks {
        assert_eq!(fork.parent.as_deref(), Some(parent.as_str()));
        assert_eq!(fork.state, SessionState::Active);
        assert_eq!(server.out(&fork.id, "cat file ~/home; echo $OWN").await, "one\ntwo\nvalue\n");
        server.out(&fork.id, "echo changed >file; rm ~/home").await;
    }
    assert_eq!(server.out(&parent, "cat file ~/home").await, "one\ntwo\n");
    // Likewise for a session without a sandbox.
    server.stop_session(&parent).await;
    let cold = server.fork(TENANT, &parent, 1).await.unwrap().remove(0);
    assert_eq!(server.out(&cold.id, "cat file ~/home").await, "one\ntwo\n");
    // A fork of a fork includes the fork's changes, and does not need the parent.
    server.end(TENANT, &parent).await.unwrap();
    let grandchild = server.fork(TENANT, &forks[0].id, 1).await.unwrap().remove(0);
    let seen = server.out(&grandchild.id, "cat file; ls ~").await;
    assert_eq!(seen, "changed\n");
    server.stop().await;
}

async fn a_fork_of_what_has_ended_leaves_no_disk(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { ready: 0, ..config() });
    let server = home.start().await;
    let id = server.plain().await;
    server.end(TENANT, &id).await.unwrap();
    let forked = server.fork(TENANT, &id, 1).await;
    assert!(matches!(forked, Err(SessionError::Ended)), "{forked:?}");
    let disks = home.path().join("srv_test/sessions/disks");
    assert_eq!(std::fs::read_dir(disks).unwrap().count(), 0);
    server.stop().await;
}

async fn a_snapshot_is_what_new_sessions_start_from(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    server.out(&id, "echo then >file").await;
    let snapshot =
        server.copies().unwrap().snapshot(TENANT, &id, Some("name".to_owned())).await.unwrap();
    server.out(&id, "echo now >file").await;
    server.end(TENANT, &id).await.unwrap();
    let all = server.copies().unwrap().snapshots(TENANT, None, None, 10).await.unwrap();
    assert_eq!(all, std::slice::from_ref(&snapshot));
    assert!(
        server.copies().unwrap().snapshots("tenant-b", None, None, 10).await.unwrap().is_empty()
    );
    let from = CreateSession { snapshot: Some(snapshot.id.clone()), ..CreateSession::default() };
    assert!(matches!(
        server.create("tenant-b", from.clone()).await,
        Err(SessionError::NotFound("snapshot"))
    ));
    let new = server.create(TENANT, from.clone()).await.unwrap().id;
    assert_eq!(server.out(&new, "cat file").await, "then\n");
    server.copies().unwrap().delete_snapshot(TENANT, &snapshot.id).await.unwrap();
    assert!(server.create(TENANT, from).await.is_err());
    assert_eq!(server.out(&new, "cat file").await, "then\n");
    server.stop().await;
}

async fn idle_sessions_give_up_their_sandboxes(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let patient = server.plain().await;
    let request = CreateSession { idle_s: Some(1), ..CreateSession::default() };
    let impatient = server.create(TENANT, request).await.unwrap().id;
    server.out(&impatient, "echo x >file").await;
    server.out(&patient, "true").await;
    let paused = || async {
        let session = server.queries().unwrap().get(TENANT, &impatient).await.unwrap();
        session.state == SessionState::Paused && session.sandbox == SandboxState::Cold
    };
    server.until("it is swept", paused).await;
    let other = server.queries().unwrap().get(TENANT, &patient).await.unwrap();
    assert_eq!((other.state, other.sandbox), (SessionState::Active, SandboxState::Waiting));
    server.resume(TENANT, &impatient).await.unwrap();
    assert_eq!(server.out(&impatient, "cat file").await, "x\n");
    server.stop().await;
}

async fn cold_disks_go_to_the_object_store(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { cold_s: 1, ready: 0, ..config() });
    let server = home.start().await;
    let id = server.plain().await;
    server
        .out(
            &id,
            "echo kept >file; mkdir .git; head -c 3000000 /dev/urandom >big; \
        sha256sum <big >sum",
        )
        .await;
    server.stop_session(&id).await;
    let disks = home.path().join("srv_test/sessions/disks");
    let gone = || async { std::fs::read_dir(&disks).unwrap().count() == 0 };
    server.until("its disk is moved", gone).await;
    assert_eq!(server.counts().total, 0);
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(
        server.out(&id, "cat file; sha256sum <big | cmp - sum && ls -d .git").await,
        "kept\n.git\n"
    );
    assert_eq!(server.counts().resumed_remote, 1);
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}

async fn files_of_a_session_at_work_go_to_the_object_store_at_intervals(engine: Engine) {
    let config = SessionsConfig {
        snapshots: SnapshotPolicy::Every,
        snapshot_every_s: 1,
        ready: 0,
        ..config()
    };
    let home = Home::new(engine, config);
    let server = home.start().await;
    let id = server.plain().await;
    server.out(&id, "echo kept >file").await;
    let disks = home.path().join("objects/disks");
    let manifests = || {
        let disks = std::fs::read_dir(&disks).into_iter().flatten().flatten();
        let files = disks.filter_map(|disk| std::fs::read_dir(disk.path()).ok()).flatten();
        let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("m_")).collect::<Vec<_>>()
    };
    server.until("its files are stored", || async { !manifests().is_empty() }).await;
    // Again, after the session was used.
    let first = manifests();
    server.out(&id, "echo more >file").await;
    let is_newer = || async {
        let now = manifests();
        !now.is_empty() && now.iter().all(|name| !first.contains(name))
    };
    server.until("its files are stored again", is_newer).await;
    server.end(TENANT, &id).await.unwrap();
    assert_eq!(manifests(), Vec::<String>::new());
    server.stop().await;
}

async fn deadlines_pause_and_end(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    let soon = || Some(node::clock::wall_ms() + 200);
    server.set_deadline(TENANT, &id, soon(), DeadlineAction::Pause).await.unwrap();
    let is = |state: SessionState, id: String| {
        let server = &server;
        move || {
            let id = id.clone();
            async move { server.queries().unwrap().get(TENANT, &id).await.unwrap().state == state }
        }
    };
    server.until("it is paused", is(SessionState::Paused, id.clone())).await;
    server.resume(TENANT, &id).await.unwrap();
    let later = node::clock::wall_ms() + 3_600_000;
    server.set_deadline(TENANT, &id, Some(later), DeadlineAction::End).await.unwrap();
    server.set_deadline(TENANT, &id, soon(), DeadlineAction::End).await.unwrap();
    server.until("it has ended", is(SessionState::Ended, id)).await;
    let extras = CreateExtras { deadline_ms: soon(), ..CreateExtras::default() };
    let other = server.create_as(TENANT, CreateSession::default(), extras).await.unwrap().id;
    server.until("it has ended, too", is(SessionState::Ended, other)).await;
    server.stop().await;
}

async fn another_server_goes_on_with_what_was_stopped(engine: Engine) {
    let home = Home::new(engine, config());
    let (one, two) = (home.start_as("srv_one").await, home.start_as("srv_two").await);
    let id = one.plain().await;
    one.out(&id, "echo one >file").await;
    let refused = two.resume(TENANT, &id).await;
    assert!(matches!(refused, Err(SessionError::Conflict(_))), "{refused:?}");
    one.stop_session(&id).await;
    two.resume(TENANT, &id).await.unwrap();
    assert_eq!(two.out(&id, "cat file; echo two >file; cat file").await, "one\ntwo\n");
    assert!(matches!(
        one.resume(TENANT, &id).await,
        Err(SessionError::OnAnotherServer { is_node: false })
    ));
    two.stop_session(&id).await;
    // The older files on the first server's disk are not used.
    one.resume(TENANT, &id).await.unwrap();
    assert_eq!(one.out(&id, "cat file").await, "two\n");
    one.stop().await;
    two.stop().await;
}

/// No other server could continue the session, and the object store is on the same disk.
async fn what_was_stopped_stays_on_the_disk_of_a_server_that_is_alone(engine: Engine) {
    use std::os::unix::fs::MetadataExt as _;
    let home = Home::new(engine, SessionsConfig { ready: 0, ..config() });
    let server = home.start().await;
    let id = server.plain().await;
    let fill = "echo kept >file; head -c 8000000 /dev/urandom >big; sync; rm big";
    server.out(&id, fill).await;
    let stopped = server.stop_session(&id).await;
    assert_eq!((stopped.state, stopped.sandbox), (SessionState::Stopped, SandboxState::Cold));
    assert!(!home.path().join("objects/disks").exists(), "it was stored a second time");
    let disks = std::fs::read_dir(home.path().join("srv_test/sessions/disks")).unwrap();
    let taken: Vec<u64> =
        disks.map(|disk| disk.unwrap().metadata().unwrap().blocks() * 512).collect();
    assert!(matches!(taken[..], [one] if one < 4 << 20), "deleted files take room: {taken:?}");
    server.stop().await;
    let server = home.start().await;
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, "cat file").await, "kept\n");
    // A session without a sandbox at the time of the stop.
    server.pause(TENANT, &id).await.unwrap();
    server.stop().await;
    let server = home.start().await;
    server.stop_session(&id).await;
    server.resume(TENANT, &id).await.unwrap();
    assert_eq!(server.out(&id, "cat file").await, "kept\n");
    assert_eq!(server.counts().resumed_local, 1);
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}
