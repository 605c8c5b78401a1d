//! Comparison of an answer with the expected one. Pure, linear in the length of both, and on bytes:
//! neither has to be UTF-8.

/// Rule by which answers are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ComparisonRule {
    /// Byte for byte.
    Exact,
    /// White space at the end of lines and empty lines at the end do not count.
    TrailingSpace,
    /// Words in order, with any white space between them.
    Tokens,
    /// Words, where numbers may differ a little.
    Float {
        /// Largest difference.
        absolute: f64,
        /// Largest difference as a part of the expected number.
        relative: f64,
    },
}

/// Describes the position where `actual` differs from `expected`, if it does. Does not repeat the
/// content, because the caller has both.
pub(crate) fn difference(rule: ComparisonRule, actual: &[u8], expected: &[u8]) -> Option<String> {
    match rule {
        ComparisonRule::Exact => exact(actual, expected),
        ComparisonRule::TrailingSpace => trailing_space(actual, expected),
        ComparisonRule::Tokens => tokens(actual, expected, |actual, expected| actual == expected),
        ComparisonRule::Float { absolute, relative } => {
            tokens(actual, expected, |actual, expected| {
                actual == expected || close(actual, expected, absolute, relative)
            })
        }
    }
}

fn exact(actual: &[u8], expected: &[u8]) -> Option<String> {
    let same = actual.iter().zip(expected).take_while(|(a, b)| a == b).count();
    match (actual.len() == same, expected.len() == same) {
        (true, true) => None,
        (true, false) => Some(format!("ends after {same} bytes, where more is expected")),
        (false, true) => Some(format!("goes on after the {same} bytes that are expected")),
        (false, false) => Some(format!("differs from what is expected at byte {}", same + 1)),
    }
}

fn trailing_space(actual: &[u8], expected: &[u8]) -> Option<String> {
    let lines = |text| <[u8]>::split(text, |byte| *byte == b'\n').map(trim_end);
    let (mut actual, mut expected) = (lines(trim_end(actual)), lines(trim_end(expected)));
    for number in 1_usize.. {
        match (actual.next(), expected.next()) {
            (None, None) => break,
            (Some(actual), Some(expected)) if actual == expected => {}
            (Some(_), Some(_)) => {
                return Some(format!("differs from what is expected in line {number}"));
            }
            (None, Some(_)) => return Some(format!("ends before line {number}")),
            (Some(_), None) => return Some(format!("has a line {number} that is not expected")),
        }
    }
    None
}

fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last + 1);
    line.get(..end).unwrap_or_default()
}

fn tokens(actual: &[u8], expected: &[u8], equal: impl Fn(&[u8], &[u8]) -> bool) -> Option<String> {
    let split = |text| <[u8]>::split(text, |byte| is_space(*byte)).filter(|word| !word.is_empty());
    let (mut actual, mut expected) = (split(actual), split(expected));
    for number in 1_usize.. {
        match (actual.next(), expected.next()) {
            (None, None) => break,
            (Some(actual), Some(expected)) if equal(actual, expected) => {}
            (Some(_), Some(_)) => {
                return Some(format!("differs from what is expected in word {number}"));
            }
            (None, Some(_)) => return Some(format!("ends before word {number}")),
            (Some(_), None) => return Some(format!("has a word {number} that is not expected")),
        }
    }
    None
}

/// Returns whether C's `isspace` accepts a byte, so that words are those that `scanf` reads.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns whether both are numbers and close enough. `nan` equals any `nan`, an infinity only one
/// of the same sign; neither is close to any other number. A number beyond the range of a double is
/// infinite.
fn close(actual: &[u8], expected: &[u8], absolute: f64, relative: f64) -> bool {
    let (Some(actual), Some(expected)) = (number(actual), number(expected)) else { return false };
    if expected.is_nan() || actual.is_nan() {
        return expected.is_nan() && actual.is_nan();
    }
    if expected.is_infinite() || actual.is_infinite() {
        return expected.is_infinite()
            && actual.is_sign_negative() == expected.is_sign_negative()
            && actual.is_infinite();
    }
    let difference = (actual - expected).abs();
    if difference.is_finite() {
        return difference <= absolute || difference <= relative * expected.abs();
    }
    // Far apart and huge: the difference of the halves does not overflow.
    let half = (actual / 2.0 - expected / 2.0).abs();
    half <= absolute / 2.0 || half <= relative * (expected.abs() / 2.0)
}

fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
