//! A report as text.

use api::{CheckStatus, DoctorReport};

use crate::languages;
use crate::plain_text::plain;

/// Returns the lines of a report, without control characters: it may come from another machine.
pub(super) fn text(report: &DoctorReport, colour: bool) -> String {
    let paint = |code: &str, text: &str| {
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    let mut text = format!("Cove {}\n\n", plain(&report.version));
    for check in &report.checks {
        let mark = match check.status {
            CheckStatus::Ok => paint("32", "ok     "),
            CheckStatus::Note => paint("33", "note   "),
            CheckStatus::Missing => paint("31", "MISSING"),
        };
        text.push_str(&format!("{mark}  {:<18} {}\n", plain(&check.name), plain(&check.found)));
        if let Some(follows) = &check.follows {
            text.push_str(&format!("{:9}{:<18} so {}\n", "", "", plain(follows)));
        }
    }
    text.push_str("\nLanguages\n");
    let list = api::LanguageList { languages: report.languages.clone() };
    for line in languages::table(&list).lines() {
        text.push_str(&format!("  {}\n", plain(line)));
    }
    let verdict = if report.ok {
        paint("32", "Untrusted code can be run here.")
    } else {
        paint("31", "Untrusted code cannot be run here: see MISSING above.")
    };
    text.push_str(&format!("\n{verdict}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::super::{check, conclude};
    use super::*;

    #[test]
    fn a_report_says_what_follows() {
        let missing = check("memory limit", "not available").but(CheckStatus::Missing, "no limits");
        let report = conclude(vec![check("kernel", "Linux"), missing], false, Vec::new());
        assert!(!report.ok);
        let output = text(&report, false);
        assert!(output.contains("ok       kernel             Linux\n"), "{output}");
        assert!(output.contains("MISSING  memory limit       not available\n"), "{output}");
        assert!(
            output.contains("so no limits\n") && output.contains("cannot be run here"),
            "{output}"
        );
        assert!(!output.contains('\x1b') && text(&report, true).contains('\x1b'));
        let note = check("landlock", "\x1b[2Jnone").but(CheckStatus::Note, "nothing");
        let report = conclude(vec![note], true, Vec::new());
        assert!(report.ok && !text(&report, false).contains('\x1b'), "a server sent this");
    }
}
