//! Object storage, and the key that seals secrets.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use node::objects::{ObjectStore, ObjectsUrl, SigningCredentials};
use node::sealed::Sealer;

use crate::config::{self, CoveConfig, Environment, ObjectsTable};

/// Default directory of objects, in the data directory.
const OBJECTS_DIRECTORY: &str = "objects";

/// Opens the object store.
pub(crate) fn open(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<ObjectStore> {
    let table = &config.objects;
    let url = match &table.url {
        Some(url) => config::resolve("objects.url", url, environment)?.parse(),
        None => Ok(ObjectsUrl::Directory(data_dir.join(OBJECTS_DIRECTORY))),
    };
    match url.context("objects.url")? {
        ObjectsUrl::Directory(path) => ObjectStore::in_directory(&path, config.store.durability)
            .context("failed to open the object store"),
        ObjectsUrl::S3(location) => {
            let credentials = credentials("objects", "url", table, environment)?;
            Ok(ObjectStore::in_s3(location, credentials))
        }
    }
}

/// Checks the location of objects, and that a bucket has credentials, without opening anything.
pub(crate) fn check(config: &CoveConfig, environment: &Environment) -> Result<()> {
    let Some(url) = &config.objects.url else { return Ok(()) };
    let url = config::resolve("objects.url", url, environment)?.parse();
    match url.context("objects.url")? {
        ObjectsUrl::Directory(_) => Ok(()),
        ObjectsUrl::S3(_) => credentials("objects", "url", &config.objects, environment).map(drop),
    }
}

/// Returns the sealer of secrets.
pub(crate) fn sealer(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<Sealer> {
    Ok(Sealer::new(&secrets_key(config, environment, data_dir)?))
}

/// Returns the key that seals secrets; creates it if it is missing.
pub(crate) fn secrets_key(
    config: &CoveConfig,
    environment: &Environment,
    data_dir: &Path,
) -> Result<[u8; 32]> {
    match &config.secrets_key {
        Some(text) => {
            let text = config::resolve("secrets_key", text, environment)?;
            Sealer::key_from_text(&text).context("secrets_key")
        }
        None => Sealer::key_of_data_dir(data_dir).context("failed to find the key of secrets"),
    }
}

/// Returns credentials from a table of the configuration, or else from the variables that other S3
/// clients read; all from one source, so that no id is combined with another one's key. `needs` is
/// the setting that requires them.
pub(crate) fn credentials(
    name: &str,
    needs: &str,
    table: &ObjectsTable,
    environment: &Environment,
) -> Result<SigningCredentials> {
    let resolve = |setting: &str, value: &Option<String>| {
        let setting = format!("{name}.{setting}");
        value.as_deref().map(|text| config::resolve(&setting, text, environment)).transpose()
    };
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    let configured = [
        resolve("access_key_id", &table.access_key_id)?,
        resolve("secret_access_key", &table.secret_access_key)?,
        resolve("session_token", &table.session_token)?,
    ];
    let from_table = configured.iter().any(Option::is_some);
    let [id, secret, session_token] = match from_table {
        true => configured,
        false => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"].map(variable),
    };
    let (Some(access_key_id), Some(secret_access_key)) = (id, secret) else {
        bail!(
            "{name}.{needs} needs a key: {name}.access_key_id and {name}.secret_access_key, or \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        );
    };
    Ok(SigningCredentials { access_key_id, secret_access_key, session_token })
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;
    use crate::config::Flags;

    /// Opens both with these settings and variables, and checks the result.
    fn check(variables: &[(&str, &str)], expected: Result<&str, &str>) {
        let scratch = Scratch::new();
        let variables = [("HOME", "/nowhere")].iter().chain(variables);
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = Environment::made_up(variables.collect());
        let config = CoveConfig::load(None, &environment, Flags::new()).unwrap();
        let opened = open(&config, &environment, scratch.path())
            .and_then(|objects| Ok((objects, sealer(&config, &environment, scratch.path())?)));
        let outcome =
            opened.map(|opened| format!("{opened:?}")).map_err(|error| format!("{error:#}"));
        let (Ok(text) | Err(text)) = &outcome;
        assert_eq!(outcome.is_ok(), expected.is_ok(), "{text}");
        let (Ok(part) | Err(part)) = expected;
        assert!(text.contains(part) && !text.contains("hidden"), "{text}");
    }

    #[test]
    fn objects_are_in_the_data_directory_unless_told_otherwise() {
        check(&[], Ok("/objects\""));
        check(&[("COVE_OBJECTS__URL", "objects")], Err("neither an absolute path nor"));
        check(&[("COVE_OBJECTS__URL", "env:NONE")], Err("objects.url: `NONE` is not set"));
        let url = ("COVE_OBJECTS__URL", "s3://bucket/x?endpoint=http://10.0.0.1:9000");
        check(&[url], Err("objects.url needs a key"));
        let (id, secret) = (("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden"));
        check(&[url, id, secret], Ok("s3://bucket/x/ at http://10.0.0.1:9000"));
        let own_id = ("COVE_OBJECTS__ACCESS_KEY_ID", "own");
        check(&[url, own_id, id, secret], Err("objects.url needs a key"));
        let own_secret = ("COVE_OBJECTS__SECRET_ACCESS_KEY", "env:AWS_SECRET_ACCESS_KEY");
        check(&[url, own_id, own_secret, id, secret], Ok("s3://bucket/x/"));
    }

    #[test]
    fn a_key_of_secrets_has_64_digits() {
        check(&[("COVE_SECRETS_KEY", &"hidden".repeat(3))], Err("64 hexadecimal digits"));
        check(&[("COVE_SECRETS_KEY", &"0af9".repeat(16))], Ok("key_id"));
    }
}
