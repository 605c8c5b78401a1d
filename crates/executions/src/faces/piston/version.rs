//! Versions of runtimes and the selectors that choose among them, by the rules of node-semver.
//!
//! A selector is alternatives joined by `||`; an alternative is comparators that must all match.
//! The short forms (`3.x`, `~1.2`, `^1.2.3`, `1.2 - 2`) each expand to two comparators.

/// Longest selector that is parsed.
pub(super) const SELECTOR_BYTES_MAX: usize = 256;

/// A version. A pre-release precedes the release of the same numbers; pre-releases of the same
/// numbers are not distinguished, because no tool of a host is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::faces) struct RuntimeVersion {
    numbers: [u64; 3],
    release: bool,
}

impl RuntimeVersion {
    /// Parses the first version in a tool's output: `gcc (Debian 12.2.0-14) 12.2.0` has two, and
    /// the first one with a point counts. Missing parts are 0.
    pub(in crate::faces) fn in_text(text: &str) -> Option<RuntimeVersion> {
        let mut numbers_only = None;
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        for word in numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            let parts: Vec<u64> = word.split('.').map_while(|part| part.parse().ok()).collect();
            let part = |index| parts.get(index).copied().unwrap_or(0);
            let version = RuntimeVersion { numbers: [part(0), part(1), part(2)], release: true };
            if parts.len() > 1 {
                return Some(version);
            }
            if numbers_only.is_none() && !parts.is_empty() {
                numbers_only = Some(version);
            }
        }
        numbers_only
    }

    /// Returns the lowest version with these numbers, pre-releases included.
    fn before(numbers: [u64; 3]) -> RuntimeVersion {
        RuntimeVersion { numbers, release: false }
    }
}

impl std::fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Returns whether `version` matches `selector`. An invalid selector matches no version.
pub(super) fn satisfies(version: RuntimeVersion, selector: &str) -> bool {
    if selector.len() > SELECTOR_BYTES_MAX {
        return false;
    }
    selector.split("||").any(|alternative| {
        range(alternative).is_some_and(|bounds| bounds.iter().all(|bound| bound.holds(version)))
    })
}

/// End of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
enum VersionBound {
    AtLeast(RuntimeVersion),
    Above(RuntimeVersion),
    AtMost(RuntimeVersion),
    Below(RuntimeVersion),
    Never,
}

impl VersionBound {
    fn holds(self, version: RuntimeVersion) -> bool {
        match self {
            VersionBound::AtLeast(bound) => version >= bound,
            VersionBound::Above(bound) => version > bound,
            VersionBound::AtMost(bound) => version <= bound,
            VersionBound::Below(bound) => version < bound,
            VersionBound::Never => false,
        }
    }
}

/// A version whose last parts may be open: `3`, `3.x`, `*`.
#[derive(Clone, Copy, Debug)]
struct PartialVersion {
    major: Option<u64>,
    minor: Option<u64>,
    patch: Option<u64>,
    release: bool,
}

impl PartialVersion {
    fn parse(text: &str) -> Option<PartialVersion> {
        let text = text.strip_prefix(['v', '=']).unwrap_or(text);
        // The part after `+` is a build, which is ignored.
        let text = text.split_once('+').map_or(text, |(version, _build)| version);
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
        if pre.is_some_and(|pre| {
            pre.is_empty()
                || !pre.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        }) {
            return None;
        }
        let mut parts = numbers.split('.').map(|part| match part {
            "x" | "X" | "*" => Some(None),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().map(Some)
            }
            _ => None,
        });
        let major = parts.next()??;
        let minor = parts.next().unwrap_or(Some(None))?;
        let patch = parts.next().unwrap_or(Some(None))?;
        if parts.next().is_some() {
            return None;
        }
        // After an open part, all parts are open.
        let minor = major.and(minor);
        let patch = minor.and(patch);
        Some(PartialVersion { major, minor, patch, release: pre.is_none() })
    }

    /// Returns the lowest version that it matches.
    fn lowest(self) -> RuntimeVersion {
        let numbers = [self.major, self.minor, self.patch].map(|part| part.unwrap_or(0));
        RuntimeVersion { numbers, release: self.release }
    }

    /// Returns the lowest version above all that it matches; None if it matches all.
    fn above(self) -> Option<RuntimeVersion> {
        let major = self.major?;
        Some(RuntimeVersion::before(match (self.minor, self.patch) {
            (None, _) => [major.checked_add(1)?, 0, 0],
            (Some(minor), None) => [major, minor.checked_add(1)?, 0],
            (Some(minor), Some(patch)) => [major, minor, patch.checked_add(1)?],
        }))
    }
}

/// Parses the bounds of one alternative.
fn range(text: &str) -> Option<Vec<VersionBound>> {
    if let Some((from, to)) = text.split_once(" - ") {
        let (from, to) = (PartialVersion::parse(from.trim())?, PartialVersion::parse(to.trim())?);
        let mut bounds = vec![VersionBound::AtLeast(from.lowest())];
        bounds.extend(operator("<=", to)?);
        return Some(bounds);
    }
    let mut bounds = Vec::new();
    // White space may follow an operator: `>= 3.8`.
    let mut waiting = "";
    for word in text.split_whitespace() {
        let split = word.find(|c: char| !"<>=~^".contains(c)).unwrap_or(word.len());
        let (own, version) = word.split_at(split);
        if version.is_empty() {
            if !waiting.is_empty() {
                return None;
            }
            waiting = own;
            continue;
        }
        let operator_of_word = match (waiting, own) {
            ("", own) => own,
            (waiting, "") => waiting,
            _ => return None,
        };
        waiting = "";
        bounds.extend(operator(operator_of_word, PartialVersion::parse(version)?)?);
    }
    waiting.is_empty().then_some(bounds)
}

fn operator(operator: &str, partial: PartialVersion) -> Option<Vec<VersionBound>> {
    let lowest = partial.lowest();
    let from = VersionBound::AtLeast(lowest);
    let up_to = |above: Option<RuntimeVersion>| above.map(VersionBound::Below);
    let exact = partial.patch.is_some();
    Some(match operator {
        "" | "=" | "==" if exact => vec![from, VersionBound::AtMost(lowest)],
        "" | "=" | "==" => std::iter::once(from).chain(up_to(partial.above())).collect(),
        ">=" => vec![from],
        ">" if exact => vec![VersionBound::Above(lowest)],
        ">" => vec![partial.above().map_or(VersionBound::Never, VersionBound::AtLeast)],
        "<" if partial.major.is_none() => vec![VersionBound::Never],
        "<" => vec![VersionBound::Below(RuntimeVersion {
            release: exact && partial.release,
            ..lowest
        })],
        "<=" if exact => vec![VersionBound::AtMost(lowest)],
        "<=" => up_to(partial.above()).into_iter().collect(),
        "~" | "~>" => {
            let above = PartialVersion { patch: None, ..partial }.above();
            std::iter::once(from).chain(up_to(above)).collect()
        }
        "^" => std::iter::once(from).chain(up_to(caret(partial))).collect(),
        _ => return None,
    })
}

/// Returns the version at which the left-most number that is not 0 changes.
fn caret(partial: PartialVersion) -> Option<RuntimeVersion> {
    let above = match (partial.major?, partial.minor, partial.patch) {
        (0, Some(0), Some(_)) => partial,
        (0, Some(_), _) => PartialVersion { patch: None, ..partial },
        _ => PartialVersion { minor: None, patch: None, ..partial },
    };
    above.above()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_tools_print() {
        for (text, expected) in [
            ("Python 3.11.7", "3.11.7"),
            ("go version go1.22.5 linux/amd64", "1.22.5"),
            ("gcc (Debian 12.2.0-14) 12.2.0", "12.2.0"),
            ("javac 17.0.12", "17.0.12"),
            ("javac 21", "21.0.0"),
            ("v20.11.1", "20.11.1"),
            ("rustc 1.95.0 (abc123 2026-01-01)", "1.95.0"),
            ("GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)", "5.2.15"),
            ("0.17.19", "0.17.19"),
        ] {
            assert_eq!(RuntimeVersion::in_text(text).unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(RuntimeVersion::in_text("no numbers"), None);
    }

    fn version_one() -> RuntimeVersion {
        RuntimeVersion { numbers: [1, 0, 0], release: true }
    }

    #[test]
    fn selectors_mean_what_node_semver_says() {
        for (selector, yes, no) in [
            ("*", "0.0.1 3.11.7", ""),
            ("", "0.0.1 3.11.7", ""),
            ("x", "1.0.0", ""),
            ("3", "3.0.0 3.99.1", "2.9.9 4.0.0"),
            ("3.x", "3.0.0 3.11.7", "2.0.0 4.0.0"),
            ("3.11", "3.11.0 3.11.7", "3.10.9 3.12.0"),
            ("3.11.x", "3.11.7", "3.12.0"),
            ("3.11.7", "3.11.7", "3.11.6 3.11.8"),
            ("=3.11.7", "3.11.7", "3.11.6"),
            ("v3.11.7", "3.11.7", "3.11.8"),
            ("^3.2.1", "3.2.1 3.9.0", "3.2.0 4.0.0"),
            ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2"),
            ("^0.0.3", "0.0.3", "0.0.4 0.0.2"),
            ("^0.0", "0.0.0 0.0.9", "0.1.0"),
            ("^0", "0.9.9", "1.0.0"),
            ("~3.2.1", "3.2.1 3.2.9", "3.3.0 3.2.0"),
            ("~3.2", "3.2.0 3.2.9", "3.3.0"),
            ("~3", "3.0.0 3.9.9", "4.0.0"),
            (">=3.8", "3.8.0 4.0.0", "3.7.9"),
            (">= 3.8", "3.8.0", "3.7.9"),
            (">3.8", "3.9.0", "3.8.9"),
            (">3.8.1", "3.8.2", "3.8.1"),
            ("<3.8", "3.7.9", "3.8.0"),
            ("<=3.8", "3.8.9", "3.9.0"),
            (">=3.8 <3.10", "3.8.0 3.9.9", "3.10.0 3.7.0"),
            ("1.2.3 - 2.3", "1.2.3 2.3.9", "1.2.2 2.4.0"),
            ("1.2 - 2.3.4", "1.2.0 2.3.4", "2.3.5"),
            ("2.x || ^3.11.0", "2.7.0 3.12.0", "3.10.0 4.0.0"),
            (">=3.0.0-rc.1", "3.0.0", "2.9.9"),
            ("3.11.7+build", "3.11.7", "3.11.8"),
            ("<*", "", "1.0.0"),
            ("> *", "", "1.0.0"),
            ("nonsense", "", "1.0.0"),
            ("1.2.3.4", "", "1.2.3"),
            ("-1", "", "1.0.0"),
            (">= >= 1", "", "1.0.0"),
            ("^", "", "1.0.0"),
            ("99999999999999999999999", "", "1.0.0"),
        ] {
            let version = |text: &str| RuntimeVersion::in_text(text).unwrap();
            for text in yes.split_whitespace() {
                assert!(satisfies(version(text), selector), "{selector:?} means {text}");
            }
            for text in no.split_whitespace() {
                assert!(!satisfies(version(text), selector), "{selector:?} does not mean {text}");
            }
        }
        assert!(!satisfies(version_one(), &"*".repeat(SELECTOR_BYTES_MAX + 1)));
    }
}
