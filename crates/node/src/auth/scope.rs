//! Sets of scopes of tokens.

use std::fmt;

use api::TokenScope;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of scopes. In files it is a list of names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenScopes(u8);

impl TokenScopes {
    /// All scopes; the default of a token. It includes scopes that later versions add.
    pub const ALL: TokenScopes = TokenScopes(u8::MAX);

    /// No scope.
    pub const NONE: TokenScopes = TokenScopes(0);

    /// Returns whether the set contains the scope.
    #[must_use]
    pub const fn has(self, scope: TokenScope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Returns whether `others` contains the whole set: no caller can grant more than it has.
    #[must_use]
    pub const fn is_within(self, others: TokenScopes) -> bool {
        self.0 & !others.0 == 0
    }

    /// Returns the scopes that `others` contains as well.
    #[must_use]
    pub const fn intersection(self, others: TokenScopes) -> TokenScopes {
        TokenScopes(self.0 & others.0)
    }

    /// Returns the scopes of the set.
    pub fn iter(self) -> impl Iterator<Item = TokenScope> {
        TokenScope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }

    /// Returns whether the set is complete, so that a file can omit it.
    pub(super) fn is_all(&self) -> bool {
        *self == TokenScopes::ALL
    }
}

impl Default for TokenScopes {
    fn default() -> Self {
        TokenScopes::ALL
    }
}

impl FromIterator<TokenScope> for TokenScopes {
    fn from_iter<I: IntoIterator<Item = TokenScope>>(scopes: I) -> TokenScopes {
        TokenScopes(scopes.into_iter().fold(0, |bits, scope| bits | bit(scope)))
    }
}

impl fmt::Debug for TokenScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(TokenScope::name)).finish()
    }
}

impl fmt::Display for TokenScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{scope}")?;
        }
        Ok(())
    }
}

impl Serialize for TokenScopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(TokenScope::name))
    }
}

impl<'de> Deserialize<'de> for TokenScopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenScopes, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().map(|name| name.parse::<TokenScope>().map_err(de::Error::custom)).collect()
    }
}

/// Returns the bit of a scope in a set.
const fn bit(scope: TokenScope) -> u8 {
    match scope {
        TokenScope::Executions => 1,
        TokenScope::Sessions => 2,
        TokenScope::Agents => 4,
        TokenScope::Tokens => 8,
        TokenScope::Tenants => 16,
        TokenScope::Catalog => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_the_names_it_was_read_from() {
        for (text, names) in [
            (r#"["sessions","executions"]"#, "executions,sessions"),
            (r#"["agents"]"#, "agents"),
            ("[]", ""),
        ] {
            let scopes: TokenScopes = serde_json::from_str(text).unwrap();
            assert_eq!(scopes.to_string(), names);
            let again: TokenScopes =
                serde_json::from_str(&serde_json::to_string(&scopes).unwrap()).unwrap();
            assert_eq!(again, scopes);
        }
        let error = serde_json::from_str::<TokenScopes>(r#"["root"]"#).unwrap_err().to_string();
        assert!(error.starts_with("`root` is not a scope"), "{error}");
    }

    #[test]
    fn nobody_gives_away_what_he_has_not() {
        let few: TokenScopes = [TokenScope::Sessions, TokenScope::Agents].into_iter().collect();
        assert!(
            few.is_within(TokenScopes::ALL)
                && few.is_within(few)
                && TokenScopes::NONE.is_within(few)
        );
        assert!(!TokenScopes::ALL.is_within(few));
        assert!(few.has(TokenScope::Agents) && !few.has(TokenScope::Tokens));
        assert!(TokenScope::ALL.into_iter().all(|scope| TokenScopes::ALL.has(scope)));
        assert_eq!(format!("{few:?}"), r#"{"sessions", "agents"}"#);
    }
}
