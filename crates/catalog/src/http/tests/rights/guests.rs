//! Guests need the same rights as other principals, and have fewer operations.

use super::super::guests::Guest;
use super::*;

#[test]
fn every_operation_asks_a_guest_for_its_right() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("other", "t");
    // Write access comes last, because it drops the objects.
    for (writes, namespaces) in
        [(false, &["n"][..]), (false, &["other"]), (true, &["other"]), (false, &[]), (true, &[])]
    {
        let guest = Guest::of(&server, "main", namespaces, writes);
        for operation in operations() {
            let (op, method) = (operation.op, operation.method.name());
            let target = path(operation);
            let has_body = matches!(method, "POST" | "PUT" | "PATCH");
            let response = guest.ask(method, &target, has_body.then(|| body(&server, op)).as_ref());
            let about = format!("{writes} {namespaces:?} {op:?} {}", response.text());
            if !op.is_for_guests() {
                assert!(matches!(response.status, 403..=405), "{about}");
                continue;
            }
            // Operations without a namespace require access to the whole warehouse.
            let is_about_all = matches!(op, CatalogOperation::CreateNamespace);
            let is_there = match namespaces {
                [] => true,
                [one] => *one == "n" && !is_about_all,
                _ => false,
            };
            let may = match need(op) {
                Need::ToBeKnown => true,
                // Lists require only a visible object below.
                Need::To(AccessRight::Read) if op == CatalogOperation::ListNamespaces => true,
                Need::To(AccessRight::Read) => is_there,
                Need::To(AccessRight::Write | AccessRight::Manage) => is_there && writes,
                _ => false,
            };
            assert_eq!(response.status != 403, may, "{about}");
            assert!(response.status != 401 && response.status < 500, "{about}");
            if !may && method != "HEAD" {
                assert_refused(&response, 403, "ForbiddenException");
            }
        }
    }
}

#[test]
fn only_what_icebergs_clients_need_is_for_guests() {
    for operation in operations() {
        let is_icebergs = operation.path.starts_with("/v1/") && operation.op.is_advertised();
        let is_config = operation.op == CatalogOperation::Config;
        assert!(!operation.op.is_for_guests() || is_icebergs || is_config, "{:?}", operation.op);
    }
    for op in [
        CatalogOperation::Token,
        CatalogOperation::Sign,
        CatalogOperation::LoadCredentials,
        CatalogOperation::Changes,
        CatalogOperation::ListWarehouses,
    ] {
        assert!(!op.is_for_guests(), "{op:?}");
    }
}
