//! Clients of a tenant whose limits belong to this node alone, or of which it has a part.

use api::{TenantLimitsSpec, TenantSpec, TenantUserSpec};

use super::*;
use crate::config::BouncerConfig;
use crate::tenants::{SharedSettings, TenantDefinition, TenantRegistry};

/// Maximum clients of the tenant, and of its user `few`.
const TENANT_MAX: u32 = 4;
const USER_MAX: u32 = 2;

fn route(user: &str) -> TenantRoute {
    let users = [("many", None), ("few", Some(USER_MAX))].map(|(name, clients_max)| {
        let (name, password) = (name.to_owned(), Some("x".to_owned()));
        TenantUserSpec { name, password, clients_max, ..TenantUserSpec::default() }
    });
    let limits = TenantLimitsSpec { clients_max: Some(TENANT_MAX), ..TenantLimitsSpec::default() };
    let spec = TenantSpec {
        name: "shop".to_owned(),
        server: "db".to_owned(),
        users: users.to_vec(),
        limits,
        ..TenantSpec::default()
    };
    let definitions = [TenantDefinition::of_api(spec).unwrap()];
    let settings = SharedSettings::new(&BouncerConfig::default());
    let routing = TenantRegistry::default().build(&settings, &definitions).unwrap();
    let tenant = Arc::clone(routing.named("shop").unwrap());
    let user = tenant.user(user);
    TenantRoute { tenant, user }
}

fn arrival(route: &TenantRoute) -> ClientArrival<'_> {
    ClientArrival { route, is_guest: false, clients_max: 100 }
}

/// Returns a client that is counted at once.
fn counted(population: &Arc<ClientCount>, route: &TenantRoute) -> CountedClient {
    match population.enter(&arrival(route), None) {
        Ok(ClientEntry::Counted(client)) => client,
        other => panic!("{other:?}"),
    }
}

/// Returns a client that waits.
fn waiting(population: &Arc<ClientCount>, route: &TenantRoute) -> WaitingClient {
    match population.enter(&arrival(route), None) {
        Ok(ClientEntry::Waits(client)) => client,
        other => panic!("{other:?}"),
    }
}

/// Grants parts of the limits of the tenant and of `few`, with the known usage of other nodes.
fn grant(population: &ClientCount, route: &TenantRoute, grants: [LimitGrant; 2]) -> bool {
    let (id, arrivals) = (route.tenant.id, population.usage().arrivals);
    let groups =
        [(ClientGroup::Tenant(id), TENANT_MAX), (ClientGroup::User(id, "few".into()), USER_MAX)];
    let shared = groups.map(|(group, limit)| SharedClientLimit { group, limit, arrivals });
    population.set_parts(&shared.into_iter().zip(grants).collect::<Vec<_>>())
}

fn part(part: u32) -> LimitGrant {
    LimitGrant { part, used_elsewhere: 0, round: 1, heard_elsewhere: 0 }
}

#[test]
fn a_node_that_has_its_limits_for_itself_refuses_at_once() {
    let population = Arc::<ClientCount>::default();
    let (many, few) = (route("many"), route("few"));
    let first = counted(&population, &few);
    let _second = counted(&population, &few);
    let refused = population.enter(&arrival(&few), None).unwrap_err();
    assert_eq!(refused, ClientLimit::User(USER_MAX));
    let _others = [counted(&population, &many), counted(&population, &many)];
    let refused = population.enter(&arrival(&many), None).unwrap_err();
    assert_eq!(refused, ClientLimit::Tenant(TENANT_MAX));
    drop(first);
    counted(&population, &few);
    let all = ClientArrival { clients_max: 3, ..arrival(&many) };
    assert_eq!(population.enter(&all, None).unwrap_err(), ClientLimit::All(3));
    assert_eq!(population.usage(), ClientUsage::default());
}

#[test]
fn clients_wait_until_there_is_a_part_for_them() {
    let population = Arc::new(ClientCount::shared());
    let (many, few) = (route("many"), route("few"));
    let waits = waiting(&population, &few);
    let groups = population.usage().groups;
    assert_eq!(groups.len(), 2);
    assert!(groups.values().all(|it| (it.bound, it.used, it.waiting) == (0, 0, 1)));
    // The tenant's limit allows it, but the user's does not.
    assert!(grant(&population, &few, [part(3), part(0)]));
    let Ok(ClientEntry::Waits(waits)) = population.enter(&arrival(&few), Some(waits)) else {
        panic!("it is counted");
    };
    assert_eq!(waits.limit, ClientLimit::User(USER_MAX));
    let of_many = counted(&population, &many);
    assert!(grant(&population, &few, [part(3), part(1)]));
    let Ok(ClientEntry::Counted(of_few)) = population.enter(&arrival(&few), Some(waits)) else {
        panic!("it is not counted");
    };
    assert!(!grant(&population, &few, [part(2), part(1)]), "nobody waits");
    let tenant = ClientGroup::Tenant(few.tenant.id);
    assert_eq!(population.usage().groups[&tenant], ClientUse { bound: 2, used: 2, waiting: 0 });
    // A released place goes to the next client, as long as the part is not reduced.
    drop(of_many);
    let of_many = counted(&population, &many);
    drop(waiting(&population, &many));
    // A part that is not listed any more is withdrawn.
    drop((of_many, of_few));
    assert!(!population.set_parts(&[]));
    drop(waiting(&population, &many));
}

#[test]
fn a_client_is_refused_once_all_nodes_have_said_that_the_limit_is_reached() {
    let population = Arc::new(ClientCount::shared());
    let many = route("many");
    let _demand = population.demand();
    drop(waiting(&population, &many));
    grant(&population, &many, [part(1), part(0)]);
    let _inside = counted(&population, &many);
    let retry = |waits| population.enter(&arrival(&many), Some(waits));
    let waits = waiting(&population, &many);
    let elsewhere = |used_elsewhere, round, heard_elsewhere| {
        let granted = LimitGrant { part: 1, used_elsewhere, round, heard_elsewhere };
        grant(&population, &many, [granted, part(0)]);
    };
    // The others' reports precede the request, and their usage may have decreased since.
    elsewhere(3, 5, 4);
    let Ok(ClientEntry::Waits(waits)) = retry(waits) else { panic!("it does not wait") };
    // The store is unavailable.
    elsewhere(0, 0, 0);
    let Ok(ClientEntry::Waits(waits)) = retry(waits) else { panic!("it does not wait") };
    // Their usage has decreased.
    elsewhere(2, 7, 6);
    let Ok(ClientEntry::Waits(waits)) = retry(waits) else { panic!("it does not wait") };
    let later = waiting(&population, &many);
    elsewhere(3, 9, 6);
    let Ok(ClientEntry::Waits(later)) = retry(later) else { panic!("it does not wait") };
    let Ok(ClientEntry::Waits(waits)) = retry(waits) else { panic!("it does not wait") };
    elsewhere(3, 11, 10);
    assert_eq!(retry(waits).unwrap_err(), ClientLimit::Tenant(TENANT_MAX));
    assert_eq!(retry(later).unwrap_err(), ClientLimit::Tenant(TENANT_MAX));
    // Later clients are not refused because of earlier reports.
    drop(waiting(&population, &many));
}

#[test]
fn sandboxes_count_among_those_of_their_tenant() {
    let population = Arc::new(ClientCount::shared());
    let few = route("few");
    let guest = ClientArrival { is_guest: true, ..arrival(&few) };
    let Ok(ClientEntry::Waits(waits)) = population.enter(&guest, None) else {
        panic!("the limit of the tenant is shared");
    };
    grant(&population, &few, [part(TENANT_MAX), part(0)]);
    let Ok(ClientEntry::Counted(_one)) = population.enter(&guest, Some(waits)) else {
        panic!("the limit of the grant is not shared");
    };
    let Ok(ClientEntry::Counted(_two)) = population.enter(&guest, None) else {
        panic!("its limit is not reached");
    };
    assert_eq!(population.enter(&guest, None).unwrap_err(), ClientLimit::User(USER_MAX));
    let usage = population.usage().groups;
    assert_eq!(usage[&ClientGroup::Tenant(few.tenant.id)].used, 2);
    assert!(
        usage.iter().all(|(group, it)| matches!(group, ClientGroup::Tenant(_)) || it.used == 0)
    );
}

#[test]
fn a_client_of_the_process_before_is_counted_without_a_part() {
    let population = Arc::new(ClientCount::shared());
    let few = route("few");
    let adopted = [population.adopt(&arrival(&few)), population.adopt(&arrival(&few))];
    assert!(adopted.iter().all(Result::is_ok));
    assert_eq!(population.adopt(&arrival(&few)).unwrap_err(), ClientLimit::User(USER_MAX));
}
