//! Templates, their builds and tags, layers of steps, archives.

use api::TemplateBuildStatus;

use super::*;
use crate::store::BuildBounds;
use crate::store::rows::{
    SealedBlob, TemplateArchiveRow, TemplateBuildDetail, TemplateBuildRow, TemplateRow,
};

const BOUNDS: BuildBounds = BuildBounds { templates_max: 2, kept_max: 2 };

fn template(name: &str, tenant: &str) -> TemplateRow {
    TemplateRow {
        id: format!("tpl_{tenant}_{name}"),
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        created_ms: NOW,
        updated_ms: NOW,
    }
}

fn build(id: &str, of: &TemplateRow, created_ms: u64) -> TemplateBuildRow {
    TemplateBuildRow {
        id: id.to_owned(),
        template: of.id.clone(),
        tenant: of.tenant.clone(),
        status: TemplateBuildStatus::Waiting,
        detail: TemplateBuildDetail::default(),
        chain: Vec::new(),
        env: None,
        owner: None,
        created_ms,
        updated_ms: created_ms,
        finished_ms: None,
    }
}

fn of_layer(id: &str) -> LayerRow {
    LayerRow { id: id.to_owned(), tenant: "a".to_owned(), bytes: 5, created_ms: NOW }
}

/// Announces a build, runs it with a layer for each key, and ends it.
async fn built(store: &SessionStore, row: TemplateBuildRow, keys: &[&str], tags: &[&str]) {
    let of = template(row.template.strip_prefix("tpl_a_").unwrap(), "a");
    store.templates.announce(of, row.clone(), BOUNDS).await.unwrap();
    let mut row = TemplateBuildRow { owner: Some("here".to_owned()), ..row };
    assert!(store.templates.begin_build(row.clone(), 9, 0).await.unwrap());
    let wanted = keys.iter().map(|&key| key.to_owned()).collect();
    row.chain = store.templates.find_steps("a", &row.id, wanted).await.unwrap();
    for key in &keys[row.chain.len()..] {
        let layer = format!("l_{}_{key}", row.id);
        store.templates.insert_step(&row.id, (*key).to_owned(), of_layer(&layer)).await.unwrap();
        row.chain.push(layer);
    }
    row.status = TemplateBuildStatus::Ready;
    let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    assert!(store.templates.write_build(row, b"[]".to_vec(), tags).await.unwrap());
}

#[tokio::test]
async fn a_build_is_stored_as_it_is_and_ends_once() {
    check(async |store| {
        let of = template("t", "a");
        let row = build("b1", &of, NOW);
        store.templates.announce(of.clone(), row.clone(), BOUNDS).await.unwrap();
        assert_eq!(store.templates.find("a", "t").await.unwrap(), Some(of.clone()));
        assert_eq!(store.templates.find("a", &of.id).await.unwrap(), Some(of.clone()));
        assert_eq!(store.templates.find("b", "t").await.unwrap(), None);
        assert_eq!(store.templates.build("b", "b1").await.unwrap(), None);
        let begun = TemplateBuildRow {
            status: TemplateBuildStatus::Building,
            owner: Some("here".to_owned()),
            detail: TemplateBuildDetail { key: "k".to_owned(), ..TemplateBuildDetail::default() },
            ..row
        };
        assert!(store.templates.begin_build(begun.clone(), 1, 0).await.unwrap());
        assert!(!store.templates.begin_build(begun.clone(), 2, 0).await.unwrap(), "it began twice");
        assert_eq!(store.templates.build("a", "b1").await.unwrap(), Some(begun.clone()));
        let second = build("b2", &of, NOW + 1);
        store.templates.announce(of, second.clone(), BOUNDS).await.unwrap();
        let refused = store.templates.begin_build(second, 1, 0).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        assert_eq!(
            store.templates.builds_left("here", 0).await.unwrap(),
            std::slice::from_ref(&begun)
        );
        assert_eq!(
            store.templates.builds_left("", NOW + 1).await.unwrap(),
            std::slice::from_ref(&begun)
        );
        assert!(store.templates.builds_left("", NOW).await.unwrap().is_empty());
        let ended = TemplateBuildRow {
            status: TemplateBuildStatus::Ready,
            env: Some(SealedBlob(vec![0, 1, 2])),
            finished_ms: Some(NOW + 2),
            ..begun.clone()
        };
        let written =
            store.templates.write_build(ended.clone(), b"[1]".to_vec(), vec!["x".to_owned()]);
        assert!(written.await.unwrap());
        assert!(
            !store.templates.write_build(begun, Vec::new(), Vec::new()).await.unwrap(),
            "it went on"
        );
        assert_eq!(store.templates.build("a", "b1").await.unwrap(), Some(ended.clone()));
        assert_eq!(store.templates.build_log("b1").await.unwrap(), Some(b"[1]".to_vec()));
        let tags = store.templates.tags(&ended.template).await.unwrap();
        assert_eq!((tags[0].tag.as_str(), tags[0].build.as_str(), tags.len()), ("x", "b1", 1));
    })
    .await;
}

#[tokio::test]
async fn layers_of_steps_stay_while_a_build_stands_on_them() {
    check(async |store| {
        let (one, two) = (template("one", "a"), template("two", "a"));
        built(store, build("b1", &one, NOW), &["k1", "k2"], &["default"]).await;
        built(store, build("b2", &two, NOW), &["k1", "k3"], &["default"]).await;
        let chain = store.templates.build("a", "b2").await.unwrap().unwrap().chain;
        assert_eq!(chain, ["l_b1_k1", "l_b2_k3"]);
        assert_eq!(store.layers.bytes(chain).await.unwrap(), 10);
        let none = store.templates.find_steps("b", "b9", vec!["k1".to_owned()]).await.unwrap();
        assert!(none.is_empty(), "another tenant's");
        assert!(store.layers.take_unused(NOW + 1, 9).await.unwrap().is_empty());
        let released = store.templates.delete("a", "one").await.unwrap().unwrap();
        assert_eq!((released.builds, released.layers), (vec!["b1".into()], vec!["l_b1_k2".into()]));
        let gap = ["k1", "k2", "k3"].map(str::to_owned).to_vec();
        assert_eq!(store.templates.find_steps("a", "b9", gap).await.unwrap(), ["l_b1_k1"]);
        // A build that uses a layer keeps it.
        let released = store.templates.delete("a", "two").await.unwrap().unwrap();
        assert_eq!(released.layers, ["l_b2_k3"]);
        assert_eq!(store.templates.delete("a", "two").await.unwrap(), None);
        // The user is not an existing build.
        assert_eq!(store.templates.forget_uses().await.unwrap(), 1);
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), ["l_b1_k1"]);
    })
    .await;
}

#[tokio::test]
async fn templates_and_builds_are_bounded_and_tags_keep_builds() {
    check(async |store| {
        let of = template("t", "a");
        for (number, tag) in [("b0", Some("kept")), ("b1", None), ("b2", None), ("b3", None)] {
            let at = NOW + number.as_bytes()[1] as u64;
            built(store, build(number, &of, at), &[number], tag.as_slice()).await;
        }
        let found = store.templates.builds(&of.id, 9).await.unwrap();
        let found: Vec<&str> = found.iter().map(|build| build.id.as_str()).collect();
        assert_eq!(found, ["b3", "b2", "b0"]);
        assert_eq!(
            store.templates.untag(&of.id, vec!["kept".into(), "no".into()]).await.unwrap(),
            1
        );
        let other = template("u", "a");
        store.templates.announce(other.clone(), build("b5", &other, NOW), BOUNDS).await.unwrap();
        let third = template("v", "a");
        let refused =
            store.templates.announce(third.clone(), build("b6", &third, NOW), BOUNDS).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        let names: Vec<String> =
            store.templates.list("a").await.unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["t", "u"]);
    })
    .await;
}

#[tokio::test]
async fn archives_are_replaced_used_and_forgotten() {
    check(async |store| {
        let row = |objects: &str| TemplateArchiveRow {
            tenant: "a".to_owned(),
            name: "content:x".to_owned(),
            objects: objects.to_owned(),
            pieces: 2,
            bytes: 7,
            used_ms: NOW,
        };
        assert_eq!(store.archives.put(row("one")).await.unwrap(), None);
        assert_eq!(store.archives.put(row("two")).await.unwrap(), Some(row("one")));
        assert_eq!(store.archives.touch("b", "content:x", NOW).await.unwrap(), None);
        let used = TemplateArchiveRow { used_ms: NOW + 5, ..row("two") };
        assert_eq!(
            store.archives.touch("a", "content:x", NOW + 5).await.unwrap(),
            Some(used.clone())
        );
        assert!(store.archives.take_unused(NOW + 5, 9).await.unwrap().is_empty());
        assert_eq!(store.archives.take_unused(NOW + 6, 9).await.unwrap(), [used]);
        assert_eq!(store.archives.touch("a", "content:x", NOW).await.unwrap(), None);
    })
    .await;
}
