//! Work that is done before a transaction, on both engines.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn work_before_a_transaction_is_done_first_and_once() {
    check(async |fresh| {
        let (done, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (work, look) = (Arc::clone(&done), Arc::clone(&done));
        let noted = Arc::clone(&seen);
        let before = move || {
            work.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let added = fresh.store.transact_after("after", before, move |it| {
            noted.store(look.load(Ordering::SeqCst), Ordering::SeqCst);
            add(it, 1, 1)
        });
        assert_eq!(added.await.unwrap(), 1);
        let counts = (done.load(Ordering::SeqCst), seen.load(Ordering::SeqCst));
        assert_eq!((counts, count(&fresh.store).await), ((1, 1), 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_begins_after_work_that_failed() {
    check(async |fresh| {
        let refused = || Err(SqlStoreError::refuse(Enough(1)));
        let failed = fresh.store.transact_after("after", refused, |it| add(it, 1, 1)).await;
        assert_eq!(failed.unwrap_err().refusal::<Enough>().unwrap(), Enough(1));
        let failed = fresh.store.transact_after("after", || panic!("no disk"), |it| add(it, 1, 1));
        assert!(matches!(failed.await, Err(SqlStoreError::Panicked(text)) if text == "no disk"));
        assert_eq!(count(&fresh.store).await, 0);
        fresh.store.close().await;
        let closed = fresh.store.transact_after("after", || Ok(()), |it| add(it, 1, 1)).await;
        assert!(matches!(closed, Err(SqlStoreError::Closed)));
    })
    .await;
}

#[test]
fn sqlite_is_compiled_to_flush_the_data_and_not_each_time_stamp() {
    // Flags of its compilation: SQLite itself does not report them.
    let flags = option_env!("LIBSQLITE3_FLAGS").unwrap_or_default();
    let is_set = flags.split_whitespace().any(|flag| flag == "-DHAVE_FDATASYNC");
    assert!(is_set, "LIBSQLITE3_FLAGS is `{flags}`: `.cargo/config.toml` is not in force");
}
