//! Contention for few places: bursts, and several tenants.

use std::future::pending;
use std::time::Duration;

use api::{CreateSession, SandboxState, SessionState};
use bytes::Bytes;
use node::auth::{NewToken, TokenPrincipal, TokenRegistry, TokenScopes};
use node::objects::{BucketStyle, ObjectStore, S3Location, SigningCredentials};
use sandbox::Engine;
use sessions::service::{CreateExtras, ListQuery, SandboxGuard};
use sessions::{SessionError, SessionsConfig};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time;

use crate::support::{Home, SESSIONS, SOON, Server, TENANT, agent, config, message, tests};

tests![
    a_burst_beyond_capacity_is_answered_at_once_and_fills_every_place,
    a_burst_of_idle_sessions_is_answered_at_once,
    a_create_at_capacity_does_not_wait_for_the_object_store,
    a_session_is_worked_with_while_its_disk_is_on_its_way,
    a_session_is_resumed_while_its_stop_stores_its_files,
    a_tenant_has_its_share_of_sandboxes_and_no_more,
    half_is_kept_for_others_where_there_are_others,
    a_tenant_is_told_of_its_own_sandboxes_only,
    a_tenant_keeps_no_more_than_it_may,
    nothing_new_is_made_on_a_full_disk,
    a_list_shows_the_state_that_was_answered,
];

/// Polling interval of counters.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Number of places in bursts.
const PLACES: usize = SESSIONS;

/// Creates `count` sandboxes concurrently, as E2B's clients do. Returns the created ones, and the
/// errors of the others.
async fn burst(server: &Server, count: usize) -> (Vec<SandboxGuard>, Vec<SessionError>) {
    let mut creating = JoinSet::new();
    for _ in 0..count {
        let sessions = server.sessions.clone();
        creating.spawn(async move {
            let (request, extras) = (CreateSession::default(), CreateExtras::default());
            sessions.create_held(TENANT, request, extras).await
        });
    }
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    let all = async {
        while let Some(created) = creating.join_next().await {
            match created.unwrap() {
                Ok(guard) => made.push(guard),
                Err(error) => refused.push(error),
            }
        }
    };
    time::timeout(SOON, all).await.expect("nobody waits for somebody who waits");
    (made, refused)
}

async fn a_burst_beyond_capacity_is_answered_at_once_and_fills_every_place(engine: Engine) {
    let config = SessionsConfig { resident_max: PLACES, capacity: PLACES, ..config() };
    let home = Home::new(engine, config);
    let server = home.start().await;
    for count in [PLACES + 3, 5 * PLACES] {
        let (made, refused) = burst(&server, count).await;
        let of_room = refused.iter().all(|error| matches!(error, SessionError::Capacity));
        assert!(of_room, "{refused:?}");
        assert_eq!((made.len(), refused.len()), (PLACES, count - PLACES));
        assert_eq!(server.counts().running, PLACES, "none was given up for another");
        for guard in &made {
            let session = server.queries().unwrap().get(TENANT, guard.session()).await.unwrap();
            assert_eq!(session.state, SessionState::Active);
        }
        let ids: Vec<String> = made.iter().map(|guard| guard.session().to_owned()).collect();
        drop(made);
        let mut ending = JoinSet::new();
        for id in ids {
            let sessions = server.sessions.clone();
            ending.spawn(async move { sessions.end(TENANT, &id).await.map(drop) });
        }
        while let Some(ended) = ending.join_next().await {
            ended.unwrap().unwrap();
        }
    }
    server.stop().await;
}

async fn a_burst_of_idle_sessions_is_answered_at_once(engine: Engine) {
    let home = Home::new(engine, SessionsConfig { resident_max: 3, ..config() });
    let server = home.start().await;
    let mut working = JoinSet::new();
    for _ in 0..24 {
        let sessions = server.sessions.clone();
        working.spawn(async move {
            let made = sessions.create(TENANT, CreateSession::default()).await?;
            // A session that was evicted meanwhile is resumed, and evicts another one.
            sessions.files(TENANT, &made.id).await.map(drop)
        });
    }
    let all = async {
        while let Some(worked) = working.join_next().await {
            let worked = worked.unwrap();
            assert!(matches!(worked, Ok(()) | Err(SessionError::Capacity)), "{worked:?}");
        }
    };
    time::timeout(SOON, all).await.expect("nobody waits for somebody who waits");
    server.stop().await;
}

/// An object store that reads requests and answers none; dropping it closes the connections.
struct SilentStore {
    /// First lines of the requests.
    asked: watch::Receiver<Vec<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for SilentStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn silent_object_store() -> (ObjectStore, SilentStore) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = S3Location {
        bucket: "bucket".to_owned(),
        prefix: String::new(),
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        region: "test-1".to_owned(),
        style: BucketStyle::Path,
        ca: None,
    };
    let credentials = SigningCredentials {
        access_key_id: "id".to_owned(),
        secret_access_key: "key".to_owned(),
        session_token: None,
    };
    let (asked, requests) = watch::channel(Vec::new());
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((connection, _)) = listener.accept().await {
            let asked = asked.clone();
            connections.spawn(async move {
                let mut connection = BufReader::new(connection);
                let mut line = String::new();
                drop(connection.read_line(&mut line).await);
                asked.send_modify(|all| all.push(line));
                pending::<()>().await;
            });
        }
    });
    (ObjectStore::in_s3(location, credentials), SilentStore { asked: requests, task })
}

async fn a_create_at_capacity_does_not_wait_for_the_object_store(engine: Engine) {
    let config = SessionsConfig { resident_max: 2, capacity: 2, ..config() };
    let mut home = Home::new(engine, config);
    let (objects, silent) = silent_object_store().await;
    home.objects = Some(objects);
    let server = home.start().await;
    // Each session after the first two evicts a resting one, whose disk must be moved.
    let mut made = Vec::new();
    for _ in 0..5 {
        let created = time::timeout(SOON, server.create(TENANT, CreateSession::default())).await;
        let session = created.expect("no create waits for the object store").unwrap();
        assert_eq!(server.out(&session.id, "echo here").await, "here\n");
        made.push(session.id);
    }
    // Two disks are being moved, and the third waits: it is still here, with its files.
    server.sh(&made[4], "echo kept > kept.txt").await;
    let resumed = time::timeout(SOON, server.resume(TENANT, &made[2])).await;
    resumed.expect("a disk that waits to be moved is at hand").unwrap();
    assert_eq!(server.out(&made[4], "cat kept.txt").await, "kept\n");
    drop(silent);
    server.stop().await;
}

async fn a_session_is_worked_with_while_its_disk_is_on_its_way(engine: Engine) {
    let config = SessionsConfig { resident_max: 2, capacity: 2, ..config() };
    let mut home = Home::new(engine, config);
    let (objects, mut silent) = silent_object_store().await;
    home.objects = Some(objects);
    let server = home.start().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        let id = server.plain().await;
        server.out(&id, "echo kept > kept.txt").await;
        made.push(id);
    }
    // One session was evicted, and its disk as well.
    let is_piece = |line: &String| line.starts_with("PUT ") && line.contains("/pieces/");
    let on_its_way = silent.asked.wait_for(|asked| asked.iter().any(is_piece));
    drop(time::timeout(SOON, on_its_way).await.expect("the disk is on its way").unwrap());
    let mut cold = Vec::new();
    for id in made {
        if server.queries().unwrap().get(TENANT, &id).await.unwrap().sandbox == SandboxState::Cold {
            cold.push(id);
        }
    }
    let [id] = cold.as_slice() else { panic!("{cold:?}") };
    server.resume(TENANT, id).await.unwrap();
    // No request waited for a timeout and a retry of the object store.
    let mut asked = silent.asked.borrow().clone();
    let count = asked.len();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), count, "{asked:?}");
    assert_eq!(server.out(id, "cat kept.txt").await, "kept\n");
    assert_eq!(server.counts().resumed_local, 1);
    drop(silent);
    server.stop().await;
}

async fn a_session_is_resumed_while_its_stop_stores_its_files(engine: Engine) {
    let mut home = Home::new(engine, config());
    let (objects, mut silent) = silent_object_store().await;
    home.objects = Some(objects);
    let server = home.start().await;
    let id = server.plain().await;
    server.out(&id, "echo kept > kept.txt").await;
    let stopping = {
        let (sessions, id) = (server.sessions.clone(), id.clone());
        tokio::spawn(async move { sessions.stop(TENANT, &id).await })
    };
    let is_piece = |line: &String| line.starts_with("PUT ") && line.contains("/pieces/");
    let on_its_way = silent.asked.wait_for(|asked| asked.iter().any(is_piece));
    drop(time::timeout(SOON, on_its_way).await.expect("its disk is on its way").unwrap());
    assert_eq!(
        server.queries().unwrap().get(TENANT, &id).await.unwrap().state,
        SessionState::Stopped
    );
    let resumed = time::timeout(SOON, server.resume(TENANT, &id)).await;
    let resumed = resumed.expect("its files are on the disk of this server").unwrap();
    assert_eq!(resumed.state, SessionState::Active);
    assert_eq!(server.counts().resumed_local, 1);
    assert_eq!(server.out(&id, "cat kept.txt").await, "kept\n");
    let overtaken = stopping.await.unwrap().unwrap_err();
    assert!(matches!(overtaken, SessionError::Conflict(_)), "{overtaken:?}");
    assert!(overtaken.to_string().contains("resumed"), "{overtaken}");
    drop(silent);
    server.stop().await;
}

async fn create_held(server: &Server, tenant: &str) -> Result<SandboxGuard, SessionError> {
    server.create_held(tenant, CreateSession::default(), CreateExtras::default()).await
}

async fn a_tenant_has_its_share_of_sandboxes_and_no_more(engine: Engine) {
    let config = SessionsConfig { resident_max: 4, resident_max_per_tenant: 2, ..config() };
    let home = Home::new(engine, config);
    let server = home.start().await;
    let hog =
        [create_held(&server, "hog").await.unwrap(), create_held(&server, "hog").await.unwrap()];
    let refused = create_held(&server, "hog").await.unwrap_err();
    assert!(matches!(refused, SessionError::TooMany(_)), "{refused:?}");
    assert!(refused.to_string().contains("resident_max_per_tenant"), "{refused}");
    let others = [
        create_held(&server, "other").await.unwrap(),
        create_held(&server, "other").await.unwrap(),
    ];
    // Its resting sandboxes are evicted for its next one, and no other tenant's are.
    let [first, second] = hog;
    let resting = first.session().to_owned();
    drop(first);
    let third = create_held(&server, "hog").await.unwrap();
    let paused = server.queries().unwrap().get("hog", &resting).await.unwrap();
    assert_eq!(paused.state, SessionState::Paused);
    let refused = server.resume("hog", &resting).await.unwrap_err();
    assert!(matches!(refused, SessionError::TooMany(_)), "{refused:?}");
    let paused = server.queries().unwrap().get("hog", &resting).await.unwrap();
    assert_eq!(paused.state, SessionState::Paused, "there may be room later");
    drop((second, third, others));
    server.resume("hog", &resting).await.unwrap();
    server.stop().await;
}

async fn half_is_kept_for_others_where_there_are_others(engine: Engine) {
    let mut home = Home::new(engine, SessionsConfig { resident_max: 4, ..config() });
    let tokens = TokenRegistry::open(home.path()).unwrap();
    let token = |tenant| NewToken {
        name: tenant,
        operator: false,
        tenant: Some(tenant),
        scopes: TokenScopes::ALL,
        lifetime: None,
    };
    tokens.create_as(&token(TENANT)).unwrap();
    home.tokens = Some(tokens.clone());
    let server = home.start().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(create_held(&server, TENANT).await.unwrap());
    }
    drop(held.split_off(1));
    tokens.create_as(&token("other")).unwrap();
    held.push(create_held(&server, TENANT).await.unwrap());
    let refused = create_held(&server, TENANT).await.unwrap_err();
    assert!(matches!(refused, SessionError::TooMany(_)), "{refused:?}");
    held.push(create_held(&server, "other").await.unwrap());
    drop(held);
    server.stop().await;
}

async fn a_tenant_is_told_of_its_own_sandboxes_only(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let _held = create_held(&server, "a").await.unwrap();
    server.create("b", CreateSession::default()).await.unwrap();
    let told = |tenant: &str, operator: bool| {
        let who = TokenPrincipal {
            tenant: tenant.into(),
            operator,
            ..TokenPrincipal::without_token("tok_x", "x")
        };
        let counts = server.counts_for(&who);
        (counts.total, counts.running, counts.warm)
    };
    assert_eq!(
        (told("a", false), told("b", false), told("c", false)),
        ((1, 1, 0), (1, 0, 1), (0, 0, 0))
    );
    assert_eq!(told("c", true), (2, 1, 1));
    server.stop().await;
}

async fn a_list_shows_the_state_that_was_answered(engine: Engine) {
    let home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    let listed = async |state| {
        let query = ListQuery { states: vec![state], limit: 10, ..ListQuery::default() };
        let list = server.queries().unwrap().list(TENANT, query).await.unwrap();
        list.sessions.iter().any(|session| session.id == id)
    };
    for round in 0..40 {
        server.pause(TENANT, &id).await.unwrap();
        assert!(listed(SessionState::Paused).await, "round {round}");
        assert!(!listed(SessionState::Active).await, "round {round}");
        server.resume(TENANT, &id).await.unwrap();
        assert!(listed(SessionState::Active).await, "round {round}");
        assert!(!listed(SessionState::Paused).await, "round {round}");
    }
    server.stop().await;
}

/// Checks that everything that takes a tenant's storage is rejected.
async fn check_nothing_new(server: &Server, id: &str, is_right: impl Fn(&SessionError) -> bool) {
    let content = Bytes::from_static(b"x");
    for refused in [
        server.create(TENANT, CreateSession::default()).await.map(drop),
        server.fork(TENANT, id, 1).await.map(drop),
        server.copies().unwrap().snapshot(TENANT, id, None).await.map(drop),
        server.attachments().unwrap().add(TENANT, id, "a", None, content).await.map(drop),
        server.agents().unwrap().deploy(TENANT, agent("late", &[("a", "a")])).await.map(drop),
    ] {
        assert!(refused.as_ref().is_err_and(&is_right), "{refused:?}");
    }
    // Existing sessions can be used and ended.
    assert_eq!(server.out(id, "echo on").await, "on\n");
}

async fn a_tenant_keeps_no_more_than_it_may(engine: Engine) {
    let config = SessionsConfig {
        stored_bytes_max_per_tenant: 8 << 20,
        disk_bytes_max_per_tenant: 3 * (64 << 20),
        snapshots_max_per_tenant: 1,
        ..config()
    };
    let home = Home::new(engine, config);
    let server = home.start().await;
    let id = server.plain().await;
    let is_of = |setting: &'static str| {
        move |error: &SessionError| {
            matches!(error, SessionError::TooMany(_)) && error.to_string().contains(setting)
        }
    };
    // Limit on the sum of disk sizes.
    let forks = server.fork(TENANT, &id, 2).await.unwrap();
    for refused in [
        server.create(TENANT, CreateSession::default()).await.map(drop),
        server.fork(TENANT, &id, 1).await.map(drop),
    ] {
        assert!(refused.as_ref().is_err_and(is_of("disk_bytes_max_per_tenant")), "{refused:?}");
    }
    for fork in forks {
        server.end(TENANT, &fork.id).await.unwrap();
    }
    server.copies().unwrap().snapshot(TENANT, &id, None).await.unwrap();
    let refused = server.copies().unwrap().snapshot(TENANT, &id, None).await.map(drop);
    assert!(refused.as_ref().is_err_and(is_of("snapshots_max_per_tenant")), "{refused:?}");
    // Limit on stored bytes.
    let much = Bytes::from(vec![1; 9 << 20]);
    let refused = server.attachments().unwrap().add(TENANT, &id, "a", None, much).await.map(drop);
    assert!(refused.as_ref().is_err_and(is_of("stored_bytes_max_per_tenant")), "{refused:?}");
    server.out(&id, "head -c 9000000 /dev/urandom > much; sync").await;
    let until_counted = async {
        let add =
            || server.attachments().unwrap().add(TENANT, &id, "a", None, Bytes::from_static(b"x"));
        while add().await.is_ok() {
            time::sleep(LOOK_AGAIN).await;
        }
    };
    time::timeout(SOON, until_counted).await.expect("it is counted again");
    check_nothing_new(&server, &id, is_of("stored_bytes_max_per_tenant")).await;
    // Other tenants are not affected.
    server.create("other", CreateSession::default()).await.unwrap();
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}

async fn nothing_new_is_made_on_a_full_disk(engine: Engine) {
    let mut home = Home::new(engine, config());
    let server = home.start().await;
    let id = server.plain().await;
    server.stop().await;
    home.config.disk_free_bytes_min = u64::MAX;
    let server = home.start().await;
    server.resume(TENANT, &id).await.unwrap();
    let is_full = |error: &SessionError| matches!(error, SessionError::DiskFull(_));
    check_nothing_new(&server, &id, is_full).await;
    let refused =
        server.conversations().unwrap().send(TENANT, &id, message("hello")).await.map(drop);
    assert!(refused.as_ref().is_err_and(is_full), "{refused:?}");
    server.end(TENANT, &id).await.unwrap();
    server.stop().await;
}
