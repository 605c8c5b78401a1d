//! State after a crash at any point.

use std::fs;

use super::*;

#[tokio::test]
async fn a_commit_that_never_reached_the_store_did_not_happen() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    let made = stage.table(&t).await;
    let directory = stage.path(location(&made)).parent().unwrap().to_owned();
    // The file is written, but the store is closed before the pointer moves.
    stage.store.close().await;
    let lost = stage.commit(&t, &setting("k", "v")).await;
    assert_eq!(refusal(lost).0, ErrorReason::CommitStateUnknown);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nobody knows: the file stays");

    let next = stage.again().await;
    drop(stage);
    assert_eq!(next.catalog.recover().await.unwrap(), RecoveryReport { looked_at: 1, written: 0 });
    let entry = next.load(&t).await.unwrap();
    assert_eq!((location(&entry), property(&entry, "k")), (location(&made), None));
    let changed = next.commit(&t, &setting("k", "v")).await.unwrap();
    assert_eq!(version(&changed), 2);
}

#[tokio::test]
async fn files_that_were_lost_with_the_power_are_written_again() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let idents = ["gone", "short", "packed", "torn", "whole"].map(|name| ident(&["a"], name));
        let mut paths = Vec::new();
        for (number, ident) in idents.iter().enumerate() {
            let codec = if matches!(number, 2 | 3) { "gzip" } else { "none" };
            let properties = json!({"write.metadata.compression-codec": codec});
            let entry = stage.commit(ident, &creation(&properties)).await.unwrap();
            paths.push(stage.path(location(&entry)));
        }
        let [gone, short, packed, torn, whole] = &paths[..] else { panic!("{paths:?}") };
        let before = fs::read(short).unwrap();
        fs::remove_file(gone).unwrap();
        fs::write(short, &before[..7]).unwrap();
        fs::remove_file(packed).unwrap();
        fs::write(torn, "").unwrap();
        let modified = fs::metadata(whole).unwrap().modified().unwrap();

        let next = stage.again().await;
        let found = next.catalog.recover().await.unwrap();
        assert_eq!(found, RecoveryReport { looked_at: 5, written: 4 });
        assert_eq!(fs::read(short).unwrap(), before);
        assert_eq!(fs::metadata(whole).unwrap().modified().unwrap(), modified);
        for ident in &idents {
            let entry = next.load(ident).await.unwrap();
            let text = documents::read(&next.warehouse, location(&entry)).await.unwrap();
            assert_eq!(text, entry.document());
        }
        assert_eq!(next.catalog.recover().await.unwrap().written, 0);
        next.store.close().await;
    })
    .await;
}
