//! Glob patterns like those of doublestar: `**` for any directories, `*`, `?`, classes and braces.
//! Matching takes time proportional to pattern and path, for any pattern.
//!
//! # References
//! - <https://pkg.go.dev/github.com/bmatcuk/doublestar/v4>

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// Maximum patterns after brace expansion.
const ALTERNATIVES_MAX: usize = 256;

/// Parsed pattern.
#[derive(Debug)]
pub(super) struct GlobPattern {
    /// Alternatives, each as its segments; a path must match one of them.
    alternatives: Vec<Vec<GlobSegment>>,
}

#[derive(Debug)]
enum GlobSegment {
    /// Any number of directories, including none.
    Any,
    One(Vec<GlobToken>),
}

#[derive(Debug)]
enum GlobToken {
    Char(char),
    AnyChar,
    AnyChars,
    Class { ranges: Vec<(char, char)>, negated: bool },
}

impl GlobPattern {
    /// Parses a pattern, which is relative to the searched directory.
    pub(super) fn parse(text: &str) -> Result<GlobPattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("the pattern has more than {PATTERN_BYTES_MAX} bytes"));
        }
        if text.starts_with('/') {
            return Err("absolute pattern not permitted; pass a relative pattern (and \
                        optionally path)"
                .to_owned());
        }
        if text.split('/').any(|segment| segment == "..") {
            return Err("'..' is not permitted in the pattern".to_owned());
        }
        let mut alternatives = Vec::new();
        expand(text, &mut alternatives)?;
        let alternatives = alternatives.iter().map(|text| segments(text)).collect::<Result<_, _>>();
        Ok(GlobPattern { alternatives: alternatives? })
    }

    /// Maximum depth of a match; none if it is unlimited.
    pub(super) fn depth(&self) -> Option<usize> {
        let depth = |segments: &Vec<GlobSegment>| {
            let is_bounded = segments.iter().all(|segment| matches!(segment, GlobSegment::One(_)));
            is_bounded.then_some(segments.len())
        };
        self.alternatives.iter().map(depth).try_fold(0, |most, depth| Some(most.max(depth?)))
    }

    /// Returns whether a relative path matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|segments| matches_path(segments, &names))
    }
}

/// Expands the first braces of a pattern, and recursively the results.
fn expand(text: &str, out: &mut Vec<String>) -> Result<(), String> {
    let Some((open, close, commas)) = braces(text) else {
        out.push(text.to_owned());
        return match out.len() > ALTERNATIVES_MAX {
            true => Err(format!("the braces stand for more than {ALTERNATIVES_MAX} patterns")),
            false => Ok(()),
        };
    };
    let (before, after) = (text.get(..open), text.get(close + 1..));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let mut from = open + 1;
    for end in commas.into_iter().chain([close]) {
        let choice = text.get(from..end).unwrap_or_default();
        from = end + 1;
        expand(&format!("{before}{choice}{after}"), out)?;
    }
    Ok(())
}

/// Returns the first outer braces and their commas, by position.
fn braces(text: &str) -> Option<(usize, usize, Vec<usize>)> {
    let (mut open, mut depth, mut commas) = (0, 0_usize, Vec::new());
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match c {
            '\\' => escaped = true,
            '{' => {
                if depth == 0 {
                    open = at;
                }
                depth += 1;
            }
            '}' if depth == 1 => return Some((open, at, commas)),
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    None
}

fn segments(text: &str) -> Result<Vec<GlobSegment>, String> {
    let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts
        .map(|part| match part {
            "**" => Ok(GlobSegment::Any),
            part => tokens(part).map(GlobSegment::One),
        })
        .collect()
}

fn tokens(text: &str) -> Result<Vec<GlobToken>, String> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(match c {
            '*' => {
                while chars.next_if_eq(&'*').is_some() {}
                GlobToken::AnyChars
            }
            '?' => GlobToken::AnyChar,
            '\\' => GlobToken::Char(chars.next().ok_or("the pattern ends with a backslash")?),
            '[' => {
                let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
                let mut ranges: Vec<(char, char)> = Vec::new();
                loop {
                    let low = match chars.next().ok_or("a class has no end")? {
                        ']' if !ranges.is_empty() => break,
                        '\\' => chars.next().ok_or("a class has no end")?,
                        c => c,
                    };
                    let mut ahead = chars.clone();
                    let high = match (ahead.next(), ahead.next()) {
                        (Some('-'), Some(high)) if high != ']' => {
                            chars = ahead;
                            high
                        }
                        _ => low,
                    };
                    ranges.push((low, high));
                }
                GlobToken::Class { ranges, negated }
            }
            c => GlobToken::Char(c),
        });
    }
    Ok(out)
}

/// Matches from the end, and stores for each pair of suffixes whether they match.
fn matches_path(segments: &[GlobSegment], names: &[&str]) -> bool {
    // Whether the segments from here on match the names from each position on.
    let mut reached: Vec<bool> = (0..=names.len()).map(|at| at == names.len()).collect();
    for segment in segments.iter().rev() {
        let mut now = vec![false; names.len() + 1];
        for at in (0..=names.len()).rev() {
            let next = |table: &[bool], at: usize| table.get(at).copied().unwrap_or(false);
            let is_match = match segment {
                GlobSegment::Any => next(&reached, at) || next(&now, at + 1),
                GlobSegment::One(tokens) => names
                    .get(at)
                    .is_some_and(|name| next(&reached, at + 1) && matches_name(tokens, name)),
            };
            if let Some(place) = now.get_mut(at) {
                *place = is_match;
            }
        }
        reached = now;
    }
    reached.first().copied().unwrap_or(false)
}

/// Matches one name, backtracking only to the last star.
fn matches_name(tokens: &[GlobToken], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut token, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while at < name.len() || token < tokens.len() {
        let c = name.get(at).copied();
        let is_match = match (tokens.get(token), c) {
            (Some(GlobToken::AnyChars), _) => {
                star = Some((token, at));
                token += 1;
                continue;
            }
            (Some(GlobToken::AnyChar), Some(_)) => true,
            (Some(GlobToken::Char(wanted)), Some(c)) => *wanted == c,
            (Some(GlobToken::Class { ranges, negated }), Some(c)) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            (_, None) | (None, _) => false,
        };
        if is_match {
            (token, at) = (token + 1, at + 1);
            continue;
        }
        match star {
            Some((star_token, star_at)) if star_at < name.len() => {
                star = Some((star_token, star_at + 1));
                (token, at) = (star_token + 1, star_at + 1);
            }
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let parsed = GlobPattern::parse(pattern).unwrap();
        assert_eq!(parsed.matches(path), expected, "{pattern} {path}");
    }

    #[test]
    fn patterns_match_as_doublestar_has_them() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "src/deep/a.rs", true),
            ("src/**", "src/a/b", true),
            ("src/**/b", "src/b", true),
            ("src/**/b", "src/x/y/b", true),
            ("**", "a/b/c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]x", "]x", true),
            ("[a-]x", "-x", true),
            ("*.{rs,toml}", "Cargo.toml", true),
            ("*.{rs,t{xt,oml}}", "a.txt", true),
            ("{a,b}/{c,d}", "b/c", true),
            ("{a,b}/{c,d}", "b/e", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("./a", "a", true),
            (".*", ".hidden", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxcxxbxxaxx", false),
            ("é*", "été", true),
            ("{a", "{a", true),
        ] {
            check(pattern, path, expected);
        }
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let pattern = "*a".repeat(1000);
        check(&pattern, &"a".repeat(900), false);
        check(&"**/".repeat(800), &"a/".repeat(2000), true);
        let braces = "{a,b}".repeat(40);
        assert!(GlobPattern::parse(&braces).is_err());
        for bad in ["/etc/*", "../*", "a/../b", "[a", "a\\", &"x".repeat(5000)] {
            assert!(GlobPattern::parse(bad).is_err(), "{bad}");
        }
        // A pattern that leaves the directory only after brace expansion.
        check("{.,x}./a", "a", false);
    }

    #[test]
    fn a_pattern_says_how_deep_it_reaches() {
        for (pattern, depth) in
            [("*.rs", Some(1)), ("a/b/*", Some(3)), ("**/a", None), ("{a,b/c}", Some(2))]
        {
            assert_eq!(GlobPattern::parse(pattern).unwrap().depth(), depth, "{pattern}");
        }
    }
}
