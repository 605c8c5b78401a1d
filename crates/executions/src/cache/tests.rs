//! Retention of results, and which of many concurrent requests compiles.

use std::task::Poll;
use std::time::Duration;

use super::*;

fn compiled(bytes: usize) -> Arc<CompiledProgram> {
    let file =
        WorkspaceFile { path: "program".into(), content: vec![0; bytes].into(), executable: true };
    Arc::new(CompiledProgram {
        exit: ProgramExit { code: Some(0), ..ProgramExit::default() },
        files: vec![file],
    })
}

fn key(number: u8) -> CompileKey {
    CompileKey([number; 32])
}

/// Adds an entry of `bytes` bytes.
async fn put(cache: &CompileCache, number: u8, bytes: usize) {
    match cache.find(key(number)).await {
        CacheLookup::Lead(leader) => leader.publish(CompileEnd::Compiled(compiled(bytes))),
        other => panic!("{other:?}"),
    }
}

fn holds(cache: &CompileCache) -> Vec<u8> {
    let mut numbers: Vec<u8> = cache.state.lock().entries.keys().map(|key| key.0[0]).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn what_was_used_longest_ago_is_forgotten_first() {
    let cache = CompileCache::new(3 * (100 + ENTRY_BYTES), CacheSharing::Apart);
    for number in 1..=3 {
        put(&cache, number, 100).await;
    }
    assert!(matches!(cache.find(key(1)).await, CacheLookup::Hit(_)));
    put(&cache, 4, 100).await;
    assert_eq!(holds(&cache), [1, 3, 4]);
    put(&cache, 5, 200).await;
    assert_eq!(holds(&cache), [4, 5], "it takes the room of two");
    put(&cache, 6, 4000).await;
    assert_eq!(holds(&cache), [4, 5], "what can never fit displaces nothing");
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 6, 2));
    assert_eq!(stats.bytes, 300 + 2 * ENTRY_BYTES);
    assert!(cache.state.lock().flights.is_empty());
}

#[tokio::test]
async fn descriptors_are_bounded_like_bytes() {
    let cache = CompileCache::new(u64::MAX, CacheSharing::Apart);
    for number in 0..=255 {
        let files = std::iter::repeat_n(compiled(0).files[0].clone(), 3).collect();
        let exit = ProgramExit::default();
        match cache.find(key(number)).await {
            CacheLookup::Lead(leader) => {
                leader.publish(CompileEnd::Compiled(Arc::new(CompiledProgram { exit, files })));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cache.stats().entries, FILES_MAX / 3);
}

/// Starts `count` lookups of the same key and waits until they wait.
async fn followers(cache: &CompileCache, count: usize) -> Vec<tokio::task::JoinHandle<String>> {
    let mut tasks = Vec::new();
    let waiting = Arc::new(());
    for _ in 0..count {
        let (cache, waiting) = (cache.clone(), Arc::clone(&waiting));
        tasks.push(tokio::spawn(async move {
            let mut found = Box::pin(cache.find(key(1)));
            // Polled once, so that it waits already.
            let first = std::future::poll_fn(|cx| Poll::Ready(found.as_mut().poll(cx))).await;
            drop(waiting);
            let found = match first {
                Poll::Ready(found) => found,
                Poll::Pending => found.await,
            };
            match found {
                CacheLookup::Hit(_) => "hit".to_owned(),
                CacheLookup::Joined(CompileEnd::Compiled(_)) => "joined".to_owned(),
                CacheLookup::Joined(CompileEnd::Refused(exit)) => {
                    format!("refused {:?}", exit.code)
                }
                CacheLookup::Lead(leader) => {
                    leader.publish(CompileEnd::Compiled(compiled(1)));
                    "led".to_owned()
                }
            }
        }));
    }
    tokio::time::timeout(Duration::from_secs(10), async {
        while Arc::strong_count(&waiting) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    tasks
}

async fn answers(tasks: Vec<tokio::task::JoinHandle<String>>) -> Vec<String> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers.sort();
    answers
}

#[tokio::test]
async fn many_who_ask_at_once_compile_once() {
    let cache = CompileCache::new(1 << 20, CacheSharing::Apart);
    let CacheLookup::Lead(leader) = cache.find(key(1)).await else {
        panic!("nobody else compiles")
    };
    let tasks = followers(&cache, 5).await;
    leader.publish(CompileEnd::Compiled(compiled(1)));
    assert_eq!(answers(tasks).await, ["joined"; 5]);
    assert_eq!(cache.stats().misses, 1);
}

#[tokio::test]
async fn a_refusal_is_shared_with_those_who_wait_and_not_kept() {
    let cache = CompileCache::new(1 << 20, CacheSharing::Apart);
    let CacheLookup::Lead(leader) = cache.find(key(1)).await else {
        panic!("nobody else compiles")
    };
    let tasks = followers(&cache, 3).await;
    leader.publish(CompileEnd::Refused(Arc::new(ProgramExit {
        code: Some(1),
        ..ProgramExit::default()
    })));
    assert_eq!(answers(tasks).await, ["refused Some(1)"; 3]);
    assert!(matches!(cache.find(key(1)).await, CacheLookup::Lead(_)));
}

#[tokio::test]
async fn one_of_those_who_wait_takes_over_from_one_who_gives_up() {
    let cache = CompileCache::new(1 << 20, CacheSharing::Apart);
    let CacheLookup::Lead(leader) = cache.find(key(1)).await else {
        panic!("nobody else compiles")
    };
    let tasks = followers(&cache, 3).await;
    drop(leader);
    let answers = answers(tasks).await;
    assert_eq!(answers.iter().filter(|answer| *answer == "led").count(), 1, "{answers:?}");
}

#[test]
fn everything_that_matters_is_part_of_the_key() {
    let file = |path: &str, content: &str, executable| WorkspaceFile {
        path: path.to_owned(),
        content: content.as_bytes().to_vec().into(),
        executable,
    };
    let bytes_of =
        |bytes_of: &[&str]| bytes_of.iter().map(|word| word.as_bytes().to_vec()).collect();
    let command = |argv: &[&str], env: &[&str]| SandboxCommand {
        argv: bytes_of(argv),
        env: bytes_of(env),
        ..SandboxCommand::default()
    };
    let mut limited = command(&["cc"], &[]);
    limited.limits.memory_bytes += 1;
    let cache = CompileCache::new(1, CacheSharing::Apart);
    let keys = [
        cache.key("t", "v1", &command(&["cc"], &[]), &[file("a", "b", false)]),
        cache.key("u", "v1", &command(&["cc"], &[]), &[file("a", "b", false)]),
        cache.key("t", "v2", &command(&["cc"], &[]), &[file("a", "b", false)]),
        cache.key("t", "v1", &command(&["cc", ""], &[]), &[file("a", "b", false)]),
        cache.key("t", "v1", &command(&[], &["cc"]), &[file("a", "b", false)]),
        cache.key("t", "v1", &limited, &[file("a", "b", false)]),
        cache.key("t", "v1", &command(&["cc"], &[]), &[file("ab", "", false)]),
        cache.key("t", "v1", &command(&["cc"], &[]), &[file("a", "b", true)]),
        cache.key("t", "v1", &command(&["cc"], &[]), &[]),
    ];
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "key {index} is that of another");
    }
    let together = CompileCache::new(1, CacheSharing::Together);
    let key = |tenant| together.key(tenant, "v1", &command(&["cc"], &[]), &[]);
    assert_eq!(key("t"), key("u"));
}
