//! Environment variables that clients inside look for. The first grant of a kind sets it. Pure.

use std::collections::BTreeMap;

use crate::kinds::ResolvedGrant;

/// Variable that many clients read; set where one database alone is granted.
const DATABASE_URL: &str = "DATABASE_URL";

/// Returns the variables that these grants need, each with its port.
pub(crate) fn environment(grants: &[(u16, &dyn ResolvedGrant)]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (port, grant) in grants {
        let own = grant.variables(*port);
        // Those of one kind are set together or not at all.
        if !own.iter().any(|(name, _)| variables.contains_key(*name)) {
            variables.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
    }
    let mut urls = grants.iter().filter_map(|(port, grant)| grant.database_url(*port));
    if let (Some(url), None) = (urls.next(), urls.next()) {
        variables.insert(DATABASE_URL.to_owned(), url);
    }
    variables
}
