//! Agents and their versions.

use super::*;

#[tokio::test]
async fn every_deployment_is_a_version_and_the_active_one() {
    check(async |store| {
        layer(store, "l_1").await;
        let (first, version) = agent("writer", "a");
        let deployed = store.agents.deploy(first.clone(), version.clone(), 2).await.unwrap();
        assert!(deployed.is_new);
        let expected = AgentRow { active_version: 1, last_version: 1, ..first.clone() };
        assert_eq!(deployed.agent, expected);
        let second = AgentRow {
            id: "not taken".to_owned(),
            description: Some("d\0".to_owned()),
            env: Some(SealedBlob(vec![1])),
            env_names: vec!["A".to_owned()],
            created_ms: NOW + 5,
            updated_ms: NOW + 5,
            ..first.clone()
        };
        let full = VersionRow {
            runtime: AgentRuntime::Command { argv: vec!["x".to_owned()] },
            chain: vec!["l_1".to_owned()],
            folder: Some("agents/1".to_owned()),
            listing: json!([{"path": "a"}]),
            files: 3,
            bytes: 4,
            install_output: Some("\0ok".to_owned()),
            created_ms: NOW + 5,
            ..version.clone()
        };
        // Its environment could not be opened.
        let refused = store.agents.deploy(second.clone(), full.clone(), 2).await;
        assert!(matches!(refused, Err(SessionError::Conflict(_))), "{refused:?}");
        let second = AgentRow { id: first.id.clone(), ..second };
        let deployed = store.agents.deploy(second.clone(), full.clone(), 2).await.unwrap();
        assert!(!deployed.is_new);
        let expected = AgentRow {
            id: first.id.clone(),
            created_ms: NOW,
            active_version: 2,
            last_version: 2,
            ..second
        };
        assert_eq!(deployed.agent, expected);
        assert_eq!(store.agents.find("a", "writer").await.unwrap().unwrap(), expected);
        assert_eq!(store.agents.by_id(&first.id).await.unwrap().unwrap(), expected);
        let mine = |number: u32, row: VersionRow| VersionRow {
            agent_id: first.id.clone(),
            version: number,
            ..row
        };
        let versions = store.agents.versions(&first.id).await.unwrap();
        assert_eq!(versions, [mine(2, full), mine(1, version.clone())]);
        assert_eq!(
            store.agents.version(&first.id, 1).await.unwrap().unwrap(),
            mine(1, version.clone())
        );
        assert_eq!(store.agents.version(&first.id, 3).await.unwrap(), None);

        let (other, version) = agent("Z", "a");
        store.agents.deploy(other, version.clone(), 2).await.unwrap();
        let names: Vec<String> =
            store.agents.list("a").await.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["Z", "writer"]);
        let (third, version) = agent("third", "a");
        let refused = store.agents.deploy(third, version, 2).await;
        assert!(matches!(refused, Err(SessionError::TooMany(_))), "{refused:?}");
        let (theirs, version) = agent("writer", "b");
        store.agents.deploy(theirs, version, 2).await.unwrap();
        assert_eq!(store.agents.list("b").await.unwrap().len(), 1);
        assert_eq!(store.agents.all().await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_agent_is_changed_and_removed_by_its_tenant_alone() {
    check(async |store| {
        layer(store, "l_1").await;
        let (row, version) = agent("writer", "a");
        let based = VersionRow {
            chain: vec!["l_1".to_owned()],
            folder: Some("agents/1".to_owned()),
            ..version.clone()
        };
        let id = row.id.clone();
        store.agents.deploy(row.clone(), based, 9).await.unwrap();
        store.agents.deploy(row, version, 9).await.unwrap();
        let choose = |version: u32| {
            move |row: &mut AgentRow| {
                row.active_version = version;
                row.description = Some("changed".to_owned());
                Ok(())
            }
        };
        let refused = store.agents.update("b", "writer", choose(1)).await;
        assert!(matches!(refused, Err(SessionError::NotFound("agent"))), "{refused:?}");
        let refused = store.agents.update("a", "writer", choose(3)).await;
        assert!(matches!(refused, Err(SessionError::NotFound("version"))), "{refused:?}");
        let changed = store.agents.update("a", "writer", choose(1)).await.unwrap();
        assert_eq!(changed.active_version, 1);
        assert_eq!(store.agents.find("a", "writer").await.unwrap().unwrap(), changed);
        let refused = store.agents.delete_version(&id, 1).await;
        assert!(matches!(refused, Err(SessionError::Conflict(_))), "{refused:?}");
        assert_eq!(store.agents.delete_version(&id, 2).await.unwrap().unwrap().version, 2);
        assert_eq!(store.agents.delete_version(&id, 2).await.unwrap(), None);

        assert_eq!(store.agents.delete("b", "writer").await.unwrap(), None);
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), [""; 0]);
        let (gone, folders) = store.agents.delete("a", "writer").await.unwrap().unwrap();
        assert_eq!((gone, folders), (changed, vec!["agents/1".to_owned()]));
        assert_eq!(store.agents.find("a", "writer").await.unwrap(), None);
        assert_eq!(store.agents.versions(&id).await.unwrap(), []);
        assert_eq!(store.layers.take_unused(NOW + 1, 9).await.unwrap(), ["l_1"]);
    })
    .await;
}
