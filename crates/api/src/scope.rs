//! Scopes of tokens.

use std::fmt;
use std::str::FromStr;

/// A thing that a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenScope {
    /// Running programs, by every interface for that.
    Executions,
    /// Using sessions and sandboxes: to talk to them, to run commands, their files.
    Sessions,
    /// Agents: to deploy, change and delete agents and their credentials.
    Agents,
    /// Making, listing and revoking tokens of one's own tenant.
    Tokens,
    /// Databases behind the bouncer. Because they affect all tenants, the token must also be an
    /// operator's.
    Tenants,
    /// Tables and views of the catalog, as far as one has rights to them there.
    Catalog,
}

impl TokenScope {
    /// All of them.
    pub const ALL: [TokenScope; 6] = [
        TokenScope::Executions,
        TokenScope::Sessions,
        TokenScope::Agents,
        TokenScope::Tokens,
        TokenScope::Tenants,
        TokenScope::Catalog,
    ];

    /// Returns the name in files, options and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TokenScope::Executions => "executions",
            TokenScope::Sessions => "sessions",
            TokenScope::Agents => "agents",
            TokenScope::Tokens => "tokens",
            TokenScope::Tenants => "tenants",
            TokenScope::Catalog => "catalog",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error of a name that is not that of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScope(String);

impl fmt::Display for UnknownScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownScope(name) = self;
        write!(
            f,
            "`{name}` is not a scope; scopes are `executions`, `sessions`, `agents`, `tokens`, \
             `tenants` and `catalog`"
        )
    }
}

impl std::error::Error for UnknownScope {}

impl FromStr for TokenScope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<TokenScope, UnknownScope> {
        let named = TokenScope::ALL.into_iter().find(|scope| scope.name() == text);
        named.ok_or_else(|| UnknownScope(text.chars().take(40).collect()))
    }
}
