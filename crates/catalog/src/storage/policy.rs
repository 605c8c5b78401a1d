//! Session policies: the permissions of one table's credentials, in the policy language of the
//! token service.
//!
//! # References
//! - <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html>

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::scope::{FilePermission, TableScope};
use crate::error::{CatalogError, ErrorReason, Result};

/// Longest policy that token services accept, in bytes.
pub const POLICY_BYTES_MAX: usize = 2048;

const READ: &[&str] = &["s3:GetObject"];
const WRITE: &[&str] =
    &["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"];

/// Returns the policy for a table's locations. `role` determines Amazon's partition.
///
/// # Errors
/// `BadRequest` if the policy would be too long.
pub(super) fn session_policy(
    scope: &TableScope,
    permission: FilePermission,
    role: Option<&str>,
) -> Result<String> {
    let partition = role.and_then(|arn| arn.split(':').nth(1)).filter(|it| !it.is_empty());
    let arn = |resource: &str| format!("arn:{}:s3:::{resource}", partition.unwrap_or("aws"));
    let actions = match permission {
        FilePermission::Read => READ,
        FilePermission::Write => WRITE,
    };
    let mut buckets: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut objects = Vec::new();
    for (bucket, prefix) in scope.prefixes() {
        objects.push(arn(&format!("{bucket}/{prefix}/*")));
        let listed = buckets.entry(bucket).or_default();
        listed.extend([format!("{prefix}/"), format!("{prefix}/*")]);
    }
    let mut statements = vec![statement(json!(actions), json!(objects))];
    for (bucket, prefixes) in &buckets {
        let mut list = statement(json!(["s3:ListBucket"]), json!([arn(bucket)]));
        list["Condition"] = json!({"StringLike": {"s3:prefix": prefixes}});
        statements.push(list);
    }
    let buckets: Vec<String> = buckets.keys().map(|bucket| arn(bucket)).collect();
    statements.push(statement(json!(["s3:GetBucketLocation"]), json!(buckets)));
    let policy = json!({"Version": "2012-10-17", "Statement": statements}).to_string();
    if policy.len() > POLICY_BYTES_MAX {
        let message = "the table's locations are too long for credentials to be bound to them";
        return Err(CatalogError::new(ErrorReason::BadRequest, message));
    }
    Ok(policy)
}

fn statement(actions: Value, resources: Value) -> Value {
    let mut statement = json!({"Effect": "Allow"});
    statement["Action"] = actions;
    statement["Resource"] = resources;
    statement
}

#[cfg(test)]
mod tests {
    use super::super::scope::tests::scope;
    use super::*;

    #[test]
    fn a_policy_names_the_tables_places_and_nothing_else() {
        let scope = scope(&["s3://b/w/t", "s3://c/data"]);
        let found = session_policy(&scope, FilePermission::Read, None).unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        let list = |bucket: &str, prefix: &str| {
            json!({"Effect": "Allow", "Action": ["s3:ListBucket"],
                "Resource": [format!("arn:aws:s3:::{bucket}")],
                "Condition": {"StringLike": {"s3:prefix": [format!("{prefix}/"), format!("{prefix}/*")]}}})
        };
        let expected = json!({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": ["s3:GetObject"],
                "Resource": ["arn:aws:s3:::b/w/t/*", "arn:aws:s3:::c/data/*"]},
            list("b", "w/t"), list("c", "data"),
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"],
                "Resource": ["arn:aws:s3:::b", "arn:aws:s3:::c"]},
        ]});
        assert_eq!(found, expected);
        let role = Some("arn:aws-cn:iam::1:role/x");
        let found = session_policy(&scope, FilePermission::Write, role).unwrap();
        assert!(found.contains("arn:aws-cn:s3:::b/w/t/*") && !found.contains("arn:aws:"));
        for action in WRITE {
            assert!(found.contains(action), "{action}");
        }
        assert!(!found.contains("s3:*"));
    }

    #[test]
    fn a_policy_that_no_service_takes_is_not_asked_for() {
        let long = format!("s3://b/{}", ["x".repeat(250).as_str(); 6].join("/"));
        let error = session_policy(&scope(&[&long]), FilePermission::Read, None).unwrap_err();
        assert_eq!(error.kind, ErrorReason::BadRequest);
    }
}
