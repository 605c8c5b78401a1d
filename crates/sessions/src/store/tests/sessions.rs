//! Sessions: stored content, visibility, and write access.

use api::SessionState::{Active, Ended, Paused, Stopped};

use super::*;

const MANY: u64 = 1_000;

#[tokio::test]
async fn a_session_comes_back_as_it_was() {
    check(async |store| {
        layer(store, "l_1").await;
        layer(store, "l_2").await;
        let full = SessionRow {
            agent_id: Some("ag_1".to_owned()),
            agent_name: Some("writer".to_owned()),
            agent_version: Some(7),
            parent: Some("ses_0".to_owned()),
            face: Some("e2b".to_owned()),
            options: AgentOptions { model: Some("m".to_owned()), ..AgentOptions::default() },
            limits: SessionLimits { processes: Some(9), ..SessionLimits::default() },
            metadata: [("k\0".to_owned(), "v\u{1a}".to_owned())].into(),
            env: Some(SealedBlob(vec![0, 255, 3])),
            credential: Some("cred_1".to_owned()),
            on_disconnect: OnDisconnect::Interrupt,
            idle_s: Some(60),
            on_deadline: OnDeadline::Pause,
            extra: json!({"a": [1, null, "\0"]}),
            state: Active,
            chain: vec!["l_1".to_owned(), "l_2".to_owned()],
            disk: Some("d_1".to_owned()),
            disk_server: Some("here".to_owned()),
            manifest: Some("disks/d_1/3".to_owned()),
            agent_session: Some("\0é".to_owned()),
            turns: 4,
            last_seq: 12,
            deadline_ms: Some(NOW + 9),
            message: Some("no\0".to_owned()),
            template: Some(SessionTemplate {
                name: "web".to_owned(),
                start: Some("x".to_owned()),
                ..SessionTemplate::default()
            }),
            ..session("ses_1", "a")
        };
        for row in [full, session("ses_2", "a")] {
            let inserted = store.insert_session(row.clone(), MANY).await.unwrap();
            let expected =
                SessionRow { epoch: 1, seq_start: 0, seq_ceiling: SEQ_BLOCK, ..row.clone() };
            assert_eq!(inserted, expected);
            assert_eq!(store.session("a", &row.id).await.unwrap().unwrap(), expected);
            let changed = SessionRow {
                state: Stopped,
                metadata: [("n".to_owned(), String::new())].into(),
                chain: vec!["l_2".to_owned()],
                idle_s: None,
                message: None,
                turns: 5,
                last_seq: 11,
                owner: Some("not written".to_owned()),
                ..expected.clone()
            };
            assert!(store.update(&changed).await.unwrap());
            let expected = SessionRow {
                last_seq: expected.last_seq.max(11),
                owner: expected.owner,
                ..changed
            };
            assert_eq!(store.session("a", &row.id).await.unwrap().unwrap(), expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_tenant_sees_nothing_of_another() {
    check(async |store| {
        let mine = store.insert_session(session("ses_1", "a"), MANY).await.unwrap();
        assert_eq!(store.session("b", &mine.id).await.unwrap(), None);
        let list = store.sessions("b", SessionFilter { limit: 9, ..Default::default() }).await;
        assert_eq!(list.unwrap(), []);
        let change = |row: &mut SessionRow| {
            row.turns = 99;
            Ok(())
        };
        let refused = store.modify("b", &mine.id, change).await;
        assert!(matches!(refused, Err(SessionError::NotFound("session"))), "{refused:?}");
        assert_eq!(store.remove_session("b", &mine.id).await.unwrap(), [""; 0]);
        assert_eq!(store.count_sessions("b").await.unwrap(), 0);
        assert_eq!(store.session("a", &mine.id).await.unwrap().unwrap(), mine);
    })
    .await;
}

#[tokio::test]
async fn a_list_has_what_its_filter_says_newest_first() {
    check(async |store| {
        let metadata = |value: &str| BTreeMap::from([("of".to_owned(), value.to_owned())]);
        for number in 0..6_u32 {
            let row = SessionRow {
                state: if number % 2 == 0 { Active } else { Paused },
                agent_name: (number > 2).then(|| "writer".to_owned()),
                face: (number == 5).then(|| "e2b".to_owned()),
                metadata: metadata(if number < 4 { "x" } else { "y" }),
                ..session(&format!("ses_{number}"), "a")
            };
            store.insert_session(row, MANY).await.unwrap();
        }
        store.insert_session(session("ses_9", "b"), MANY).await.unwrap();
        let all = SessionFilter { limit: 100, ..SessionFilter::default() };
        let cases: [(SessionFilter, &[u32]); 8] = [
            (all.clone(), &[5, 4, 3, 2, 1, 0]),
            (SessionFilter { limit: 2, ..all.clone() }, &[5, 4]),
            (SessionFilter { before: Some("ses_4".into()), limit: 2, ..all.clone() }, &[3, 2]),
            (SessionFilter { states: vec![Paused, Ended], ..all.clone() }, &[5, 3, 1]),
            (SessionFilter { agent: Some("writer".into()), ..all.clone() }, &[5, 4, 3]),
            (SessionFilter { metadata: metadata("y"), ..all.clone() }, &[5, 4]),
            (SessionFilter { face: Some(None), metadata: metadata("y"), ..all.clone() }, &[4]),
            (SessionFilter { face: Some(Some("e2b".into())), ..all.clone() }, &[5]),
        ];
        for (filter, expected) in cases {
            let found = store.sessions("a", filter.clone()).await.unwrap();
            let expected: Vec<String> = expected.iter().map(|it| format!("ses_{it}")).collect();
            assert_eq!(ids(&found), expected, "{filter:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_no_more_sessions_than_it_may() {
    check(async |store| {
        for number in 0..3 {
            let row = session(&format!("ses_{number}"), "a");
            store.insert_session(row, 3).await.unwrap();
        }
        let refused = store.insert_session(session("ses_3", "a"), 3).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        // Sessions of another tenant and ended ones do not count.
        store.insert_session(session("ses_4", "b"), 3).await.unwrap();
        let end = |row: &mut SessionRow| {
            row.state = Ended;
            Ok(())
        };
        store.modify("a", "ses_1", end).await.unwrap();
        store.insert_session(session("ses_5", "a"), 3).await.unwrap();
        // A failed insertion takes no place.
        let again = store.insert_session(session("ses_4", "b"), 3).await;
        assert!(matches!(again, Err(SessionError::Internal(_))), "{again:?}");
        store.insert_session(session("ses_6", "b"), 3).await.unwrap();
        store.insert_session(session("ses_7", "b"), 3).await.unwrap();
    })
    .await;
}

/// Sessions of a lost node are claimed in few statements by the first claimant, except those whose
/// only files are on its disk.
#[tokio::test]
async fn sessions_of_a_lost_node_are_claimed_together() {
    check(async |store| {
        let nodes = NodeRegistry::open(&store.access.store).await.unwrap();
        register(store, "here", NOW).await;
        let mut row = session("ses_0", "a");
        row.disk_server = Some("here".to_owned());
        for (number, (disk, manifest, state)) in [
            (Some("d"), Some("m"), Active),
            (Some("d"), None, Active),
            (Some("d"), None, Paused),
            (None, None, Stopped),
            (Some("d"), Some("m"), Ended),
        ]
        .into_iter()
        .enumerate()
        {
            row.id = format!("ses_{number}");
            row.last_active_ms = NOW + u64::try_from(number).unwrap();
            (row.disk, row.manifest) = (disk.map(str::to_owned), manifest.map(str::to_owned));
            row.state = state;
            store.insert_session(row.clone(), MANY).await.unwrap();
        }
        let node = LostNode { id: "here".into(), incarnation: "here 1".into(), seen_ms: NOW };
        let lost = |moves_files| LostSessions { node: node.clone(), moves_files };
        assert_eq!(store.sessions_of_lost(&lost(false)).await.unwrap(), ["ses_3", "ses_1"]);
        let found = store.sessions_of_lost(&lost(true)).await.unwrap();
        assert_eq!(found, ["ses_3", "ses_1", "ses_0"]);
        let claim = async |run: &NodeIdentity, lost: LostSessions, now_ms| {
            let all = (0..5).map(|number| format!("ses_{number}")).collect();
            let mut rows = store.claim_lost(&lost, run, all, at(now_ms)).await.unwrap();
            rows.sort_by(|one, other| one.id.cmp(&other.id));
            rows
        };
        let there = node_of("there");
        assert_eq!(claim(&there, lost(true), NOW).await, [], "it is there");
        assert!(nodes.expire("here", "here 1").await.unwrap());
        let taken = claim(&there, lost(false), NOW).await;
        assert_eq!(ids(&taken), ["ses_1", "ses_3"]);
        // A claim waits for newer files on the lost node's disk if the terms require that.
        let terms = ClaimTerms { patience: Duration::from_millis(5), ..at(NOW + 4) };
        assert_eq!(store.claim("ses_0", &there, 1, terms).await.unwrap(), None);
        assert!(!terms.may_move_files(NOW));
        let taken = claim(&there, lost(true), NOW).await;
        let before = &taken[0];
        assert_eq!((ids(&taken), before.epoch), (vec!["ses_0"], 2));
        assert_eq!((before.seq_start, before.seq_ceiling), (SEQ_BLOCK, 2 * SEQ_BLOCK));
        assert_eq!(store.session("a", "ses_0").await.unwrap().as_ref(), Some(before));
        assert_eq!(claim(&node_of("third"), lost(true), NOW).await, [], "once");
        // A session that is useless there waits for its node.
        assert!(!store.give_back("ses_1", 1, "here").await.unwrap());
        assert!(store.give_back("ses_1", 2, "here").await.unwrap());
        let owned = store.epochs_of_server("here").await.unwrap();
        assert_eq!(owned, [("ses_1".to_owned(), 2), ("ses_2".to_owned(), 1)].into());
        // The node's next run continues with its sessions.
        let again = NodeIdentity { incarnation: "here 2".into(), ..node_of("here") };
        nodes.register(&again, &NodeDescription::default(), true, NOW).await.unwrap();
        assert_eq!(claim(&there, lost(true), NOW + 1_000_000).await, []);
    })
    .await;
}

#[tokio::test]
async fn a_claim_moves_a_session_once_and_only_from_who_is_gone() {
    check(async |store| {
        let lease = u64::try_from(NODE_LEASE.as_millis()).unwrap();
        let row = store.insert_session(session("ses_1", "a"), MANY).await.unwrap();
        register(store, "here", NOW).await;
        // The owner is alive, so only it may claim.
        assert_eq!(
            store.claim("ses_1", &node_of("there"), 1, at(NOW + lease - 1)).await.unwrap(),
            None
        );
        assert_eq!(
            store.claim("ses_1", &node_of("there"), 2, at(NOW + lease)).await.unwrap(),
            None
        );
        let again = store.claim("ses_1", &node_of("here"), 1, at(NOW)).await.unwrap().unwrap();
        let expected = SessionRow {
            epoch: 2,
            seq_start: row.seq_ceiling,
            seq_ceiling: row.seq_ceiling + SEQ_BLOCK,
            ..row
        };
        assert_eq!(again, expected);
        assert_eq!(store.session("a", "ses_1").await.unwrap().unwrap(), expected);
        // The owner was not seen for the duration of the lease.
        let theirs =
            store.claim("ses_1", &node_of("there"), 2, at(NOW + lease)).await.unwrap().unwrap();
        assert_eq!((theirs.owner.as_deref(), theirs.epoch), (Some("there"), 3));
        // The former owner cannot write any more.
        assert!(!store.update(&again).await.unwrap());
        assert!(!store.release("ses_1", 2).await.unwrap());
        // The node `there` was never registered.
        let back = store.claim("ses_1", &node_of("here"), 3, at(NOW)).await.unwrap().unwrap();
        assert!(store.release("ses_1", back.epoch).await.unwrap());
        let free = store.session("a", "ses_1").await.unwrap().unwrap();
        assert_eq!((free.owner, free.epoch), (None, 4));
        register(store, "here", NOW).await;
        assert!(store.claim("ses_1", &node_of("there"), 4, at(NOW)).await.unwrap().is_some());
        register(store, "there", NOW).await;
        assert_eq!(store.claim("ses_1", &node_of("here"), 5, at(NOW)).await.unwrap(), None);
        NodeRegistry::open(&store.access.store)
            .await
            .unwrap()
            .leave(&node_of("there"))
            .await
            .unwrap();
        assert!(store.claim("ses_1", &node_of("here"), 5, at(NOW)).await.unwrap().is_some());
        let gone = store.claim("ses_2", &node_of("here"), 1, at(NOW)).await;
        assert!(matches!(gone, Err(SessionError::NotFound("session"))), "{gone:?}");
        let end = |row: &mut SessionRow| {
            row.state = Ended;
            Ok(())
        };
        store.modify("a", "ses_1", end).await.unwrap();
        let ended = store.claim("ses_1", &node_of("here"), 6, at(NOW)).await;
        assert!(matches!(ended, Err(SessionError::Ended)), "{ended:?}");
    })
    .await;
}

/// A copied directory has its server's name, and so has a server that was suspended while its copy
/// started.
#[tokio::test]
async fn a_run_that_was_replaced_claims_nothing() {
    check(async |store| {
        let nodes = NodeRegistry::open(&store.access.store).await.unwrap();
        let (first, copy) = (
            node_of("here"),
            NodeIdentity { incarnation: "another".to_owned(), ..node_of("here") },
        );
        register(store, "here", NOW).await;
        store.insert_session(session("ses_1", "a"), MANY).await.unwrap();
        assert_eq!(store.claim("ses_1", &copy, 1, at(NOW + 5)).await.unwrap(), None);
        assert!(store.claim("ses_1", &first, 1, at(NOW + 5)).await.unwrap().is_some());
        let description = NodeDescription::default();
        let replaced = nodes.register(&copy, &description, false, NOW).await.unwrap();
        assert_eq!(replaced, NodeRegistration::Done);
        assert_eq!(store.claim("ses_1", &first, 2, at(NOW + 5)).await.unwrap(), None);
        assert!(store.claim("ses_1", &copy, 2, at(NOW + 5)).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_claim_at_once_one_wins_each_time() {
    check(async |store| {
        store.insert_session(session("ses_1", "a"), MANY).await.unwrap();
        store.release("ses_1", 1).await.unwrap();
        for epoch in 1..10 {
            let claims = (0..8).map(|server| {
                let store = store.clone();
                tokio::spawn(async move {
                    store
                        .claim("ses_1", &node_of(&format!("server_{server}")), epoch, at(NOW))
                        .await
                })
            });
            let mut winners = Vec::new();
            for claim in claims.collect::<Vec<_>>() {
                winners.extend(claim.await.unwrap().unwrap());
            }
            assert_eq!(winners.len(), 1);
            let row = store.session("a", "ses_1").await.unwrap().unwrap();
            assert_eq!(row, winners[0]);
            assert_eq!(row.epoch, epoch + 1);
        }
    })
    .await;
}

#[tokio::test]
async fn sessions_are_found_by_server_deadline_and_age() {
    check(async |store| {
        for (number, state) in [Active, Stopped, Ended, Ended].into_iter().enumerate() {
            let age = u64::try_from(number).unwrap();
            let row = SessionRow {
                state,
                disk_server: (number != 0).then(|| "there".to_owned()),
                deadline_ms: (number != 2).then_some(NOW + 10 - age),
                last_active_ms: NOW - age,
                owner: (number != 1).then(|| "here".to_owned()),
                ..session(&format!("ses_{number}"), "a")
            };
            store.insert_session(row, MANY).await.unwrap();
        }
        let here = store.sessions_of_server("here").await.unwrap();
        assert_eq!(ids(&here), ["ses_0"]);
        let disks = store.sessions_on_disks_of("there").await.unwrap();
        assert_eq!(ids(&disks), ["ses_1"]);
        assert_eq!(ids(&store.sessions_due(NOW + 8, 9).await.unwrap()), [""; 0]);
        assert_eq!(ids(&store.sessions_due(NOW + 9, 9).await.unwrap()), ["ses_1"]);
        assert_eq!(ids(&store.sessions_due(NOW + 99, 9).await.unwrap()), ["ses_1", "ses_0"]);
        assert_eq!(ids(&store.sessions_ended(NOW - 2, 9).await.unwrap()), ["ses_3"]);
        assert_eq!(ids(&store.sessions_ended(NOW, 1).await.unwrap()), ["ses_3"]);
        assert_eq!(store.count_sessions("a").await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_removed_session_leaves_nothing_but_what_it_used() {
    check(async |store| {
        layer(store, "l_1").await;
        let row = SessionRow {
            chain: vec!["l_1".to_owned()],
            metadata: [("a".to_owned(), "b".to_owned())].into(),
            ..session("ses_1", "a")
        };
        store.insert_session(row, MANY).await.unwrap();
        store.insert_session(session("ses_2", "a"), MANY).await.unwrap();
        let part = |session: &str| SessionBatch {
            session: session.to_owned(),
            epoch: 1,
            events: (1..=12_000).map(|seq| super::events::row(session, seq)).collect(),
            usage: vec![UsageRow {
                session: session.to_owned(),
                turn: "t".to_owned(),
                tenant: "a".to_owned(),
                ..UsageRow::default()
            }],
            ..SessionBatch::default()
        };
        let batch = WriteBatch { parts: vec![part("ses_1"), part("ses_2")] };
        assert_eq!(store.write_batch(Arc::new(batch)).await.unwrap(), [0; 0]);
        let attachment = AttachmentRow {
            id: "att_1".to_owned(),
            tenant: "a".to_owned(),
            session: "ses_1".to_owned(),
            name: "n".to_owned(),
            media_type: None,
            bytes: 1,
            object: "attachments/1".to_owned(),
            created_ms: NOW,
        };
        store.attachments.insert(attachment, 9).await.unwrap();
        assert_eq!(store.remove_session("a", "ses_1").await.unwrap(), ["attachments/1"]);
        assert_eq!(store.session("a", "ses_1").await.unwrap(), None);
        assert_eq!(super::events::last(store, "ses_1").await, 0);
        assert_eq!(store.attachments.find("a", "att_1").await.unwrap(), None);
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), ["l_1"]);
        assert_eq!(store.usage.list("a", UsageFilter::default(), 9).await.unwrap().len(), 2);
        assert_eq!(super::events::last(store, "ses_2").await, 12_000);
        // A second removal changes nothing.
        assert_eq!(store.remove_session("a", "ses_1").await.unwrap(), [""; 0]);
    })
    .await;
}

/// The sessions that a draining node has to hand over.
#[tokio::test]
async fn sessions_of_a_server_are_counted_and_the_oldest_come_first() {
    check(async |store| {
        for (number, used_ms) in [(1, NOW + 30), (2, NOW + 10), (3, NOW + 20), (4, NOW)] {
            let id = format!("ses_{number}");
            let row = SessionRow { last_active_ms: used_ms, ..session(&id, "a") };
            store.insert_session(row, MANY).await.unwrap();
        }
        let end = |row: &mut SessionRow| {
            row.state = Ended;
            Ok(())
        };
        store.modify("a", "ses_4", end).await.unwrap();
        let held = store.sessions_held("here", 2).await.unwrap();
        let oldest: Vec<_> =
            held.oldest.iter().map(|it| (it.id.as_str(), it.tenant.as_str(), it.used_ms)).collect();
        assert_eq!(oldest, [("ses_2", "a", NOW + 10), ("ses_3", "a", NOW + 20)]);
        assert_eq!(held.count, 3);
        assert_eq!(store.sessions_held("there", 2).await.unwrap().count, 0);
    })
    .await;
}
