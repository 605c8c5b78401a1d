//! Required right of each operation: every operation with every right.

mod guests;
mod homes;
mod listing;

use super::*;
use crate::access::PrincipalGrant;
use crate::service::AccessRight;

/// Requirement of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Need {
    /// None.
    Nothing,
    /// Authentication.
    ToBeKnown,
    /// This right to the whole warehouse.
    To(AccessRight),
    /// An operator's token.
    ToOperate,
}

/// Without a wildcard: new operations have to be added here.
fn need(op: CatalogOperation) -> Need {
    match op {
        CatalogOperation::Token | CatalogOperation::RevokeToken => Need::Nothing,
        CatalogOperation::Config | CatalogOperation::Changes | CatalogOperation::ListWarehouses => {
            Need::ToBeKnown
        }
        CatalogOperation::ListNamespaces
        | CatalogOperation::LoadNamespace
        | CatalogOperation::NamespaceExists
        | CatalogOperation::ListTables
        | CatalogOperation::LoadTable
        | CatalogOperation::TableExists
        | CatalogOperation::LoadCredentials
        | CatalogOperation::Sign
        | CatalogOperation::ReportMetrics
        | CatalogOperation::PlanScan
        | CatalogOperation::FetchPlan
        | CatalogOperation::CancelPlan
        | CatalogOperation::FetchTasks
        | CatalogOperation::ListFunctions
        | CatalogOperation::LoadFunction
        | CatalogOperation::ListDropped
        | CatalogOperation::LoadProtection
        | CatalogOperation::LoadRetention
        | CatalogOperation::Inspect
        | CatalogOperation::TableStats
        | CatalogOperation::Search
        | CatalogOperation::ListViews
        | CatalogOperation::LoadView
        | CatalogOperation::ViewExists => Need::To(AccessRight::Read),
        CatalogOperation::CreateNamespace
        | CatalogOperation::UpdateNamespace
        | CatalogOperation::CreateTable
        | CatalogOperation::CommitTable
        | CatalogOperation::RegisterTable
        | CatalogOperation::CommitTransaction
        | CatalogOperation::CreateView
        | CatalogOperation::ReplaceView
        | CatalogOperation::PutFunction
        | CatalogOperation::RegisterView => Need::To(AccessRight::Write),
        CatalogOperation::DropNamespace
        | CatalogOperation::DropTable
        | CatalogOperation::UnregisterTable
        | CatalogOperation::RenameTable
        | CatalogOperation::Undrop
        | CatalogOperation::PurgeDropped
        | CatalogOperation::Protect
        | CatalogOperation::SetRetention
        | CatalogOperation::ListMaintenance
        | CatalogOperation::StartMaintenance
        | CatalogOperation::LoadMaintenance
        | CatalogOperation::CancelMaintenance
        | CatalogOperation::DropView
        | CatalogOperation::LoadWarehouse
        | CatalogOperation::DropFunction
        | CatalogOperation::RenameView => Need::To(AccessRight::Manage),
        CatalogOperation::ListGrants
        | CatalogOperation::Grant
        | CatalogOperation::Revoke
        | CatalogOperation::ListPolicies
        | CatalogOperation::PutPolicy
        | CatalogOperation::PreviewPolicy
        | CatalogOperation::DeletePolicy => Need::To(AccessRight::Grant),
        CatalogOperation::ListClients
        | CatalogOperation::CreateClient
        | CatalogOperation::RotateClient
        | CatalogOperation::DeleteClient
        | CatalogOperation::ListKeys
        | CatalogOperation::CreateKey
        | CatalogOperation::RotateKey
        | CatalogOperation::DeleteKey
        | CatalogOperation::ListRoles
        | CatalogOperation::CreateRole
        | CatalogOperation::ChangeMembers
        | CatalogOperation::DeleteRole
        | CatalogOperation::Audit
        | CatalogOperation::CreateWarehouse
        | CatalogOperation::UpdateWarehouse
        | CatalogOperation::DeleteWarehouse => Need::ToOperate,
        CatalogOperation::Polaris(op) => need_of_polaris(op),
    }
}

/// Like [`need`].
fn need_of_polaris(op: PolarisOp) -> Need {
    match op {
        PolarisOp::ListCatalogs => Need::ToBeKnown,
        PolarisOp::GetCatalog => Need::To(AccessRight::Manage),
        PolarisOp::ListCatalogRoles
        | PolarisOp::GetCatalogRole
        | PolarisOp::ListGrants
        | PolarisOp::AddGrant
        | PolarisOp::RevokeGrant => Need::To(AccessRight::Grant),
        PolarisOp::CreateCatalog
        | PolarisOp::UpdateCatalog
        | PolarisOp::DeleteCatalog
        | PolarisOp::ListPrincipals
        | PolarisOp::CreatePrincipal
        | PolarisOp::GetPrincipal
        | PolarisOp::UpdatePrincipal
        | PolarisOp::DeletePrincipal
        | PolarisOp::RotateCredentials
        | PolarisOp::ResetCredentials
        | PolarisOp::ListRolesOfPrincipal
        | PolarisOp::AssignPrincipalRole
        | PolarisOp::RevokePrincipalRole
        | PolarisOp::ListPrincipalRoles
        | PolarisOp::CreatePrincipalRole
        | PolarisOp::GetPrincipalRole
        | PolarisOp::UpdatePrincipalRole
        | PolarisOp::DeletePrincipalRole
        | PolarisOp::ListPrincipalsOfRole
        | PolarisOp::ListCatalogRolesOfRole
        | PolarisOp::AssignCatalogRole
        | PolarisOp::RevokeCatalogRole
        | PolarisOp::CreateCatalogRole
        | PolarisOp::UpdateCatalogRole
        | PolarisOp::DeleteCatalogRole
        | PolarisOp::ListRolesOfCatalogRole => Need::ToOperate,
    }
}

/// Returns a body that is valid enough for the authorization of the operation.
fn body(server: &Server, op: CatalogOperation) -> Value {
    let ident = |name: &str| json!({"namespace": ["n"], "name": name});
    let commit = json!({"requirements": [], "updates": []});
    match op {
        CatalogOperation::CreateNamespace => json!({"namespace": ["n"]}),
        CatalogOperation::CreateTable => new_table("t"),
        CatalogOperation::CommitTable => commit,
        CatalogOperation::CommitTransaction => json!({"table-changes": [
            {"identifier": ident("t"), "requirements": [], "updates": []}
        ]}),
        CatalogOperation::RegisterTable | CatalogOperation::RegisterView => {
            let warehouse = server.catalog.default_warehouse().unwrap();
            let location = format!("{}/no/1.metadata.json", warehouse.root());
            json!({"name": "x", "metadata-location": location})
        }
        CatalogOperation::RenameTable | CatalogOperation::RenameView => {
            json!({"source": ident("t"), "destination": ident("u")})
        }
        CatalogOperation::PutPolicy => json!({"principal": "*", "namespace": ["n"], "table": "t",
            "row-filter": true}),
        CatalogOperation::PreviewPolicy => json!({"principal": "tenant:x", "policy":
            {"principal": "*", "namespace": ["n"], "table": "t", "row-filter": true}}),
        CatalogOperation::CreateView => new_view("v"),
        CatalogOperation::PutFunction => {
            let metadata = testkit::documents::function_metadata();
            json!({"namespace": ["n"], "name": "g", "metadata": metadata})
        }
        CatalogOperation::ReplaceView => commit,
        CatalogOperation::ReportMetrics => json!({"report-type": "scan-report"}),
        CatalogOperation::CreateClient
        | CatalogOperation::CreateKey
        | CatalogOperation::CreateRole => json!({"name": "x"}),
        CatalogOperation::Grant | CatalogOperation::Revoke => {
            json!({"principal": "tenant:x", "rights": ["grant"]})
        }
        CatalogOperation::Polaris(PolarisOp::AddGrant | PolarisOp::RevokeGrant) => {
            json!({"grant": {"type": "catalog", "privilege": "CATALOG_MANAGE_ACCESS"}})
        }
        CatalogOperation::Undrop => json!({"id": "tb_0"}),
        CatalogOperation::Protect => json!({"namespace": ["n"], "protected": false}),
        CatalogOperation::SetRetention => json!({"undrop-seconds": null}),
        CatalogOperation::StartMaintenance => {
            json!({"actions": ["clean-metadata"], "dry-run": true})
        }
        _ => json!({}),
    }
}

fn path(operation: &OperationEntry) -> String {
    let mut path = operation.path.to_owned();
    for (part, value) in [
        ("{prefix}", "main"),
        ("{namespace}", "n"),
        ("{table}", "t"),
        ("{view}", "v"),
        ("{plan-id}", "p"),
        ("{function}", "f"),
        ("{client}", "cl_0"),
        ("{key}", "ck_0"),
        ("{role}", "r"),
        ("{dropped}", "tb_0"),
        ("{policy}", "p"),
        ("{warehouse}", "main"),
        ("{aspect}", "snapshots"),
        ("{job}", "mj_0"),
        ("{principal}", "nobody"),
        ("{catalog-role}", "r"),
    ] {
        path = path.replace(part, value);
    }
    if operation.op == CatalogOperation::LoadProtection {
        path.push_str("?namespace=n");
    }
    path
}

/// Returns the token of a client with this right to the warehouse, or to a namespace of it.
pub(super) fn token(
    server: &Server,
    right: Option<AccessRight>,
    namespace: Option<&str>,
) -> String {
    server.runtime.block_on(async {
        let access = &server.access;
        let made = access.clients().create_client(&operator(), "x", false).await.unwrap();
        if let Some(right) = right {
            let grant = PrincipalGrant {
                principal: made.client.principal.clone(),
                namespace: namespace.map(|it| iceberg::ident::NamespaceIdent::new([it]).unwrap()),
                name: None,
                rights: [right].into_iter().collect(),
            };
            let warehouse = server.catalog.default_warehouse().unwrap();
            access.grant(&operator(), &warehouse, &grant).await.unwrap();
        }
        let (id, secret) = (&made.client.client_id, &made.client_secret);
        access.tokens().token_for(id, secret, None).await.unwrap().token
    })
}

#[test]
fn the_description_has_every_operation_with_the_right_that_it_needs() {
    let text = include_str!("../../../../api/openapi.json");
    let document: Value = serde_json::from_str(text).unwrap();
    let mut count = 0;
    for entry in operations().iter().filter(|it| !matches!(it.op, CatalogOperation::Polaris(_))) {
        let (path, method) = (format!("/catalog{}", entry.path), entry.method.name());
        let described = &document["paths"][&path][method.to_lowercase()];
        assert!(described.is_object(), "{method} {path} is not described");
        let word = match need(entry.op) {
            Need::Nothing => {
                assert_eq!(described["security"], json!([]), "{method} {path}");
                String::new()
            }
            Need::ToBeKnown => "any token".to_owned(),
            Need::To(right) => format!("`{right:?}`").to_lowercase(),
            Need::ToOperate => "operators".to_owned(),
        };
        let says = described["description"].as_str().unwrap();
        assert!(says.contains(&word), "{method} {path} needs {word}: {says}");
        count += 1;
    }
    let described = document["paths"].as_object().unwrap().iter();
    let described = described.filter(|(path, _)| path.starts_with("/catalog/"));
    let described: usize = described.map(|(_, methods)| methods.as_object().unwrap().len()).sum();
    assert_eq!(described, count, "an operation is described that does not exist");
}

#[test]
fn every_operation_asks_for_its_right() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("other", "t");
    let has = |right: Option<AccessRight>, wanted: AccessRight| {
        let rights: crate::access::RightSet = right.into_iter().collect();
        rights.allow(wanted)
    };
    let rights =
        [None, Some(AccessRight::Read), Some(AccessRight::Write), Some(AccessRight::Grant)];
    // Manage comes last, because it drops the objects.
    let rights = rights.into_iter().chain([Some(AccessRight::Manage)]);
    for right in rights {
        let everywhere = token(&server, right, None);
        let elsewhere = token(&server, right, Some("other"));
        for operation in operations() {
            let need = need(operation.op);
            let (method, path) = (operation.method.name(), path(operation));
            let body =
                matches!(method, "POST" | "PUT" | "PATCH").then(|| body(&server, operation.op));
            let about = format!("{right:?} {:?}", operation.op);
            let nobody = server.ask_as(None, method, &path, body.as_ref());
            let is_known = server.ask_as(Some(&everywhere), method, &path, body.as_ref());
            let is_elsewhere = server.ask_as(Some(&elsewhere), method, &path, body.as_ref());
            match need {
                Need::Nothing => {
                    let is_refused = |status| matches!(status, 400 | 401);
                    assert!(is_refused(nobody.status) && is_refused(is_known.status), "{about}");
                    continue;
                }
                _ => assert_eq!(nobody.status, 401, "{about} {}", nobody.text()),
            }
            let (here, there) = match need {
                Need::Nothing | Need::ToBeKnown => (true, true),
                // Lists require only a readable object below.
                Need::To(wanted)
                    if matches!(
                        operation.op,
                        CatalogOperation::ListNamespaces | CatalogOperation::Search
                    ) =>
                {
                    (has(right, wanted), has(right, wanted))
                }
                Need::To(wanted) => (has(right, wanted), false),
                Need::ToOperate => (false, false),
            };
            for (response, may) in [(&is_known, here), (&is_elsewhere, there)] {
                assert_eq!(response.status != 403, may, "{about} {}", response.text());
                assert!(response.status != 401 && response.status < 500, "{about}");
                if !may && method != "HEAD" {
                    assert_refused(response, 403, "ForbiddenException");
                }
            }
        }
    }
}

#[test]
fn what_clients_are_told_of_is_there_and_nothing_else() {
    let server = Server::start();
    server.fill("n", "t");
    let config = server.ask("GET", "/v1/config", None).json();
    let endpoints = config["endpoints"].as_array().unwrap();
    for operation in operations() {
        let text = format!("{} {}", operation.method.name(), operation.path);
        let is_advertised = endpoints.iter().any(|it| *it == json!(text));
        assert_eq!(is_advertised, operation.op.is_advertised(), "{text}");
        let (method, path) = (operation.method.name(), path(operation));
        let response =
            server.ask(method, &path, matches!(method, "POST" | "PUT").then(|| json!({})).as_ref());
        let is_missing = response.status == 406;
        if is_advertised {
            assert!(!is_missing, "{text}");
        } else if operation.path.starts_with("/v1/{prefix}") {
            assert_refused(&response, 406, "UnsupportedOperationException");
        }
    }
    assert_eq!(endpoints.len(), 33);
}

#[test]
fn a_right_to_a_table_is_none_to_its_neighbours() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("n", "u");
    let token = token(&server, None, None);
    let who = server.ask("GET", "/management/v1/clients", None).json();
    let principal = who["clients"][0]["principal"].clone();
    let grant = json!({"principal": principal, "namespace": ["n"], "name": "t",
        "rights": ["write"]});
    let answer = server.ask("POST", "/management/v1/main/grants", Some(&grant));
    assert_eq!(answer.status, 204, "{}", answer.text());
    let commit = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": "v"}}
    ]});
    let tables = "/v1/main/namespaces/n/tables";
    for (method, path, expected) in [
        ("GET", format!("{tables}/t"), 200),
        ("POST", format!("{tables}/t"), 200),
        ("DELETE", format!("{tables}/t"), 403),
        ("GET", format!("{tables}/u"), 403),
        ("POST", format!("{tables}/u"), 403),
        ("GET", tables.to_owned(), 200),
        ("HEAD", "/v1/main/namespaces/n".to_owned(), 204),
        ("GET", "/v1/main/namespaces/n".to_owned(), 403),
    ] {
        let body = matches!(method, "POST" | "PUT").then_some(&commit);
        let response = server.ask_as(Some(&token), method, &path, body);
        assert_eq!(response.status, expected, "{method} {path} {}", response.text());
    }
    let both = json!({"table-changes": [
        {"identifier": {"namespace": ["n"], "name": "t"}, "requirements": [], "updates": []},
        {"identifier": {"namespace": ["n"], "name": "u"}, "requirements": [], "updates": []},
    ]});
    let path = "/v1/main/transactions/commit";
    assert_eq!(server.ask_as(Some(&token), "POST", path, Some(&both)).status, 403);
    let taken = server.ask("POST", "/management/v1/main/grants/revoke", Some(&grant));
    assert_eq!(taken.status, 204, "{}", taken.text());
    assert_eq!(server.ask_as(Some(&token), "GET", &format!("{tables}/t"), None).status, 403);
}
