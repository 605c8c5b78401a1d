//! Layers, snapshots, credentials, attachments, usage, documents.

use node::sealed::Sealer;

use super::*;

#[tokio::test]
async fn a_layer_stays_for_as_long_as_anybody_stands_on_it() {
    check(async |store| {
        for id in ["l_1", "l_2", "l_3"] {
            layer(store, id).await;
            // Repeated, as after a lost answer.
            layer(store, id).await;
        }
        let chain = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let row = SessionRow { chain: chain(&["l_1", "l_2"]), ..session("ses_1", "a") };
        store.insert_session(row, 9).await.unwrap();
        let snapshot = SnapshotRow {
            id: "snap_1".to_owned(),
            tenant: "a".to_owned(),
            session: "ses_1".to_owned(),
            name: Some("n".to_owned()),
            chain: chain(&["l_1"]),
            bytes: 7,
            template: Some(SessionTemplate { name: "web".to_owned(), ..Default::default() }),
            created_ms: NOW,
        };
        store.snapshots.insert(snapshot.clone(), 1).await.unwrap();
        let more = SnapshotRow { id: "snap_more".to_owned(), ..snapshot.clone() };
        let refused = store.snapshots.insert(more, 1).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        assert_eq!(store.layers.list("l_1", 1).await.unwrap(), ["l_2"]);
        assert_eq!(store.layers.take_unused(NOW, 9).await.unwrap(), [""; 0], "too young");
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), ["l_3"]);
        assert_eq!(store.layers.list("", 9).await.unwrap(), ["l_1", "l_2"]);
        // Missing layers cannot be used.
        let row = SessionRow { chain: chain(&["l_1", "l_3"]), ..session("ses_2", "a") };
        let refused = store.insert_session(row, 9).await;
        assert!(matches!(refused, Err(SessionError::NotFound("layer"))), "{refused:?}");
        assert_eq!(store.session("a", "ses_2").await.unwrap(), None);

        assert_eq!(store.snapshots.find("a", "snap_1").await.unwrap().unwrap(), snapshot);
        assert_eq!(store.snapshots.find("b", "snap_1").await.unwrap(), None);
        assert!(!store.snapshots.delete("b", "snap_1").await.unwrap());
        let list = store.snapshots.list("a", Some("ses_1"), Some("snap_2"), 9).await.unwrap();
        assert_eq!(list, [snapshot]);
        assert_eq!(store.snapshots.list("a", Some("ses_2"), None, 9).await.unwrap(), []);
        assert_eq!(store.snapshots.list("a", None, Some("snap_1"), 9).await.unwrap(), []);
        assert_eq!(store.snapshots.list("b", None, None, 9).await.unwrap(), []);

        let leave = |row: &mut SessionRow| {
            row.chain = vec!["l_2".to_owned()];
            Ok(())
        };
        store.modify("a", "ses_1", leave).await.unwrap();
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), [""; 0]);
        assert!(store.snapshots.delete("a", "snap_1").await.unwrap());
        assert!(!store.snapshots.delete("a", "snap_1").await.unwrap());
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), ["l_1"]);
    })
    .await;
}

#[tokio::test]
async fn secrets_open_for_their_own_row_alone() {
    let secrets = SecretStore::new(Sealer::new(&[7; 32]));
    let env = BTreeMap::from([("KEY".to_owned(), "value".to_owned())]);
    let sealed = secrets.seal_env("a", "ses_1", &env).unwrap();
    assert_eq!(secrets.seal_env("a", "ses_1", &BTreeMap::new()).unwrap(), None);
    assert_eq!(secrets.open_env("a", "ses_1", None).unwrap(), BTreeMap::new());
    assert_eq!(secrets.open_env("a", "ses_1", sealed.as_ref()).unwrap(), env);
    for (tenant, id) in [("b", "ses_1"), ("a", "ses_2"), ("a/ses_1", ""), ("", "a/ses_1")] {
        let refused = secrets.open_env(tenant, id, sealed.as_ref());
        assert!(matches!(refused, Err(SessionError::Internal(_))), "{tenant} {id}");
    }
    let large = BTreeMap::from([("K".to_owned(), "x".repeat(1 << 20))]);
    let refused = secrets.seal_env("a", "ses_1", &large);
    assert!(matches!(&refused, Err(SessionError::Refused(it)) if it.field == "env"), "{refused:?}");
    assert!(!format!("{sealed:?} {secrets:?}").contains("value"));

    check(async |store| {
        let row = |id: &str, tenant: &str| CredentialRow {
            id: id.to_owned(),
            tenant: tenant.to_owned(),
            kind: "anthropic".to_owned(),
            label: "mine\0".to_owned(),
            secret: secrets.seal_credential(tenant, id, b"sk-1").unwrap(),
            created_ms: NOW,
            last_used_ms: None,
        };
        let (one, two) = (row("cred_1", "a"), row("cred_2", "a"));
        store.credentials.insert(one.clone(), 2).await.unwrap();
        store.credentials.insert(two.clone(), 2).await.unwrap();
        let refused = store.credentials.insert(row("cred_3", "a"), 2).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        store.credentials.touch("b", "cred_1", NOW + 1).await.unwrap();
        store.credentials.touch("a", "cred_2", NOW + 2).await.unwrap();
        let two = CredentialRow { last_used_ms: Some(NOW + 2), ..two };
        assert_eq!(store.credentials.list("a").await.unwrap(), [one.clone(), two]);
        assert_eq!(store.credentials.list("b").await.unwrap(), []);
        assert_eq!(store.credentials.find("b", "cred_1").await.unwrap(), None);
        let found = store.credentials.find("a", "cred_1").await.unwrap().unwrap();
        assert_eq!(secrets.open_credential(&found).unwrap().expose(), b"sk-1");
        let stolen = CredentialRow { tenant: "b".to_owned(), ..found };
        assert!(secrets.open_credential(&stolen).is_err());
        assert!(!store.credentials.delete("b", "cred_1").await.unwrap());
        assert!(store.credentials.delete("a", "cred_1").await.unwrap());
        assert_eq!(store.credentials.find("a", "cred_1").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn attachments_are_counted_and_their_tenants() {
    check(async |store| {
        let row = |id: &str| AttachmentRow {
            id: id.to_owned(),
            tenant: "a".to_owned(),
            session: "ses_1".to_owned(),
            name: "n\0.txt".to_owned(),
            media_type: Some("text/plain".to_owned()),
            bytes: 3,
            object: format!("attachments/{id}"),
            created_ms: NOW,
        };
        store.attachments.insert(row("att_1"), 2).await.unwrap();
        store.attachments.insert(row("att_2"), 2).await.unwrap();
        let refused = store.attachments.insert(row("att_3"), 2).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        let both = [row("att_1"), row("att_2")];
        assert_eq!(store.attachments.of_session("a", "ses_1").await.unwrap(), both);
        assert_eq!(store.attachments.of_session("b", "ses_1").await.unwrap(), []);
        assert_eq!(store.attachments.find("b", "att_1").await.unwrap(), None);
        assert_eq!(store.attachments.delete("b", "att_1").await.unwrap(), None);
        assert_eq!(store.attachments.delete("a", "att_1").await.unwrap(), Some(row("att_1")));
        assert_eq!(store.attachments.find("a", "att_1").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn usage_is_summed_and_no_agent_can_spoil_the_sum() {
    check(async |store| {
        let row = |session: &str, turn: &str, at_ms: u64| UsageRow {
            session: session.to_owned(),
            turn: turn.to_owned(),
            tenant: "a".to_owned(),
            agent: Some("writer".to_owned()),
            at_ms,
            model: Some("m".to_owned()),
            input_tokens: 10,
            output_tokens: 20,
            cache_read_tokens: 3,
            cache_write_tokens: 4,
            cost_usd: 0.5,
            tool_calls: 2,
            duration_ms: 100,
        };
        let wild = UsageRow {
            input_tokens: u64::MAX,
            cost_usd: f64::NAN,
            agent: None,
            ..row("ses_2", "t", NOW + 20)
        };
        let two = row("ses_1", "t2", NOW + 10);
        for (session, usage) in [
            ("ses_1", vec![row("ses_1", "t1", NOW), two.clone()]),
            // A repetition counts once.
            ("ses_1", vec![UsageRow { input_tokens: 99, ..row("ses_1", "t1", NOW) }]),
            ("ses_2", vec![wild]),
        ] {
            if store.session("a", session).await.unwrap().is_none() {
                store.insert_session(super::session(session, "a"), 9).await.unwrap();
            }
            let part = SessionBatch {
                session: session.to_owned(),
                epoch: 1,
                usage,
                ..SessionBatch::default()
            };
            store.write_batch(Arc::new(WriteBatch { parts: vec![part] })).await.unwrap();
        }
        let one = UsageFilter { session: Some("ses_1".to_owned()), ..UsageFilter::default() };
        let sum = store.usage.sum("a", one.clone()).await.unwrap();
        let expected = UsageSum {
            turns: 2,
            input_tokens: 20,
            output_tokens: 40,
            cache_read_tokens: 6,
            cache_write_tokens: 8,
            cost_usd: 1.0,
            tool_calls: 4,
            duration_ms: 200,
        };
        assert_eq!(sum, expected);
        let later = UsageFilter { from_ms: Some(NOW + 10), to_ms: Some(NOW + 20), ..one };
        assert_eq!(store.usage.list("a", later, 9).await.unwrap(), [two]);
        let all = store.usage.sum("a", UsageFilter::default()).await.unwrap();
        assert_eq!((all.turns, all.cost_usd, all.input_tokens), (3, 1.0, 20 + (1 << 32)));
        let of = UsageFilter { agent: Some("writer".to_owned()), ..UsageFilter::default() };
        assert_eq!(store.usage.sum("a", of).await.unwrap(), expected);
        let nothing = store.usage.sum("b", UsageFilter::default()).await.unwrap();
        assert_eq!(nothing, UsageSum::default());
    })
    .await;
}

#[tokio::test]
async fn documents_are_kept_by_tenant_and_kind() {
    check(async |store| {
        let row = |tenant: &str, kind: &str, id: &str, parent: Option<&str>| DocumentRow {
            tenant: tenant.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            body: json!({"of": [tenant, kind, id]}),
            created_ms: NOW,
            updated_ms: NOW,
        };
        for (tenant, kind, id, parent) in [
            ("a", "case", "1", Some("p")),
            ("a", "case", "2", None),
            ("a", "case", "3", Some("p")),
            ("a", "run", "1", None),
            ("b", "case", "1", Some("p")),
        ] {
            store.documents.put(row(tenant, kind, id, parent)).await.unwrap();
        }
        let cases =
            DocumentFilter { kind: "case".to_owned(), limit: 9, ..DocumentFilter::default() };
        let found = |rows: Vec<DocumentRow>| -> Vec<String> {
            assert!(rows.iter().all(|row| row.tenant == "a"));
            rows.into_iter().map(|row| row.id).collect()
        };
        assert_eq!(found(store.documents.list("a", cases.clone()).await.unwrap()), ["1", "2", "3"]);
        let of = DocumentFilter { parent: Some("p".to_owned()), ..cases.clone() };
        assert_eq!(found(store.documents.list("a", of).await.unwrap()), ["1", "3"]);
        let next = DocumentFilter { after: Some("1".to_owned()), limit: 1, ..cases };
        assert_eq!(found(store.documents.list("a", next).await.unwrap()), ["2"]);
        let changed = DocumentRow {
            body: json!("new"),
            created_ms: NOW + 5,
            updated_ms: NOW + 5,
            ..row("a", "case", "1", None)
        };
        store.documents.put(changed.clone()).await.unwrap();
        let expected = DocumentRow { created_ms: NOW, ..changed };
        assert_eq!(store.documents.find("a", "case", "1").await.unwrap().unwrap(), expected);
        let theirs = row("b", "case", "1", Some("p"));
        assert_eq!(store.documents.find("b", "case", "1").await.unwrap().unwrap(), theirs);
        assert!(!store.documents.delete("c", "case", "1").await.unwrap());
        assert!(store.documents.delete("a", "case", "1").await.unwrap());
        assert_eq!(store.documents.find("a", "case", "1").await.unwrap(), None);
        assert_eq!(store.documents.find("b", "case", "1").await.unwrap().unwrap(), theirs);
    })
    .await;
}
