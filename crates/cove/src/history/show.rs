//! `cove history`: shows recent figures of a server, as a table with a line for each series.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{HistoryReport, HistorySeries, HistoryUnit};
use axum::http::Method;
use node::clock::rfc3339_of_ms;
use rustix::termios;

use super::sparkline::{SparklineSet, sparkline};
use crate::cli::HistoryArgs;
use crate::config::{CoveConfig, Environment};
use crate::percent::escaped;
use crate::remote::{self, Remote, plain};
use crate::run::print_json;
use crate::values::human_bytes;

/// Columns if the terminal does not report its size.
const COLUMNS_DEFAULT: usize = 100;
/// Minimum and maximum characters of a sparkline.
const LINE_CHARS: (usize, usize) = (16, 60);

/// Style of the table.
#[derive(Clone, Copy, Debug)]
struct TableStyle {
    columns: usize,
    set: SparklineSet,
    has_colour: bool,
}

/// Runs the command.
pub(crate) fn run(args: &HistoryArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        show(args, environment, &server).await.map(|()| 0)
    })
}

async fn show(args: &HistoryArgs, environment: &Environment, server: &Remote) -> Result<()> {
    let report: HistoryReport = server.call(Method::GET, &target(args)).await?;
    if args.json {
        return Ok(print_json(&report)?);
    }
    let size = match environment.is_paged() {
        true => termios::tcgetwinsize(io::stderr()),
        false => termios::tcgetwinsize(io::stdout()),
    };
    let size = size.ok().filter(|size| size.ws_col > 1);
    let style = TableStyle {
        columns: size.map_or(COLUMNS_DEFAULT, |size| usize::from(size.ws_col)),
        set: if environment.is_utf8() { SparklineSet::Blocks } else { SparklineSet::Ascii },
        has_colour: environment.has_colours(),
    };
    Ok(write!(io::stdout(), "{}", table(&report, style))?)
}

fn target(args: &HistoryArgs) -> String {
    let mut target = format!("/v1/history?window={}s", args.window.as_secs());
    let mut add = |name: &str, value: String| target.push_str(&format!("&{name}={value}"));
    if let Some(step) = args.step {
        add("step", format!("{}s", step.as_secs()));
    }
    if !args.series.is_empty() {
        let names: Vec<String> = args.series.iter().map(|name| in_full(name)).collect();
        add("series", escaped(&names.join(",")));
    }
    if let Some(tenant) = &args.tenant {
        add("tenant", escaped(tenant));
    }
    target
}

/// Returns the full name; the prefix of Cove's own series may be omitted.
fn in_full(name: &str) -> String {
    match name.starts_with("cove_") || name.starts_with("process_") || name.starts_with('*') {
        true => name.to_owned(),
        false => format!("cove_{name}"),
    }
}

fn table(report: &HistoryReport, style: TableStyle) -> String {
    let step = Duration::from_millis(report.step_ms);
    let (Some(first), Some(last)) = (report.times_ms.first(), report.times_ms.last()) else {
        return "nothing was measured yet\n".to_owned();
    };
    let whose = match &report.tenant {
        Some(tenant) => format!("tenant {}", plain(tenant)),
        None => format!("server {}", plain(&report.node)),
    };
    let mut text = format!(
        "{whose}, {} to {}, {} s a step\n\n",
        rfc3339_of_ms(*first),
        rfc3339_of_ms(last + report.step_ms),
        step.as_secs()
    );
    if report.series.is_empty() {
        text.push_str("no series yet: nothing of this was used since the server started\n");
        return text;
    }
    let rows: Vec<[String; 4]> = report.series.iter().map(row).collect();
    let heading = ["series", "last", "lowest", "highest"].map(str::to_owned);
    let width = |column: usize| {
        let cells = std::iter::once(&heading).chain(&rows).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let [name, last, low, high] = std::array::from_fn(width);
    let used = name + last + low + high + 8;
    let line = style.columns.saturating_sub(used).clamp(LINE_CHARS.0, LINE_CHARS.1);
    let (colour, plain_again) = if style.has_colour { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
    let mut push = |row: &[String; 4], line: &str| {
        let [a, b, c, d] = row;
        let cells = format!("{a:name$}  {b:>last$}  {c:>low$}  {d:>high$}");
        let line = if line.is_empty() { String::new() } else { format!("  {line}") };
        text.push_str(format!("{cells}{line}").trim_end());
        text.push('\n');
    };
    push(&heading, "");
    for (series, row) in report.series.iter().zip(&rows) {
        let drawn = sparkline(&series.values, line, style.set);
        push(row, &format!("{colour}{drawn}{plain_again}"));
    }
    if report.left_out > 0 {
        text.push_str(&format!("{} more series had no room on the server\n", report.left_out));
    }
    text
}

fn row(series: &HistorySeries) -> [String; 4] {
    let labels: Vec<String> =
        series.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", plain(value))).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let known = || series.values.iter().flatten().copied();
    let figure =
        |value: Option<f32>| value.map_or_else(|| "-".to_owned(), |it| in_unit(it, series.unit));
    [
        format!("{}{labels}", plain(&series.name)),
        figure(known().next_back()),
        figure(known().reduce(f32::min)),
        figure(known().reduce(f32::max)),
    ]
}

fn in_unit(value: f32, unit: HistoryUnit) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes fit")]
    let bytes = |value: f32| human_bytes(value.max(0.0) as u64);
    match unit {
        HistoryUnit::Count => short(value),
        HistoryUnit::PerSecond => format!("{}/s", short(value)),
        HistoryUnit::Bytes => bytes(value),
        HistoryUnit::BytesPerSecond => format!("{}/s", bytes(value)),
        HistoryUnit::Cores => format!("{value:.3}"),
        HistoryUnit::Seconds if value < 0.001 => format!("{:.0} us", value * 1e6),
        HistoryUnit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1e3),
        HistoryUnit::Seconds => format!("{value:.1} s"),
    }
}

/// Formats integers without a fraction, others with the significant digits of theirs.
fn short(value: f32) -> String {
    match value {
        value if value.fract() == 0.0 => format!("{value:.0}"),
        value if value < 10.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn figures_have_units_and_lines_fit_the_terminal() {
        let series = |name: &str, unit, values: Vec<Option<f32>>| HistorySeries {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            unit,
            values,
        };
        let mut of_tenant = series(
            "cove_bouncer_query_p95_seconds",
            HistoryUnit::Seconds,
            vec![None, Some(0.0004), Some(1.5)],
        );
        of_tenant.labels.insert("tenant".to_owned(), "shop".to_owned());
        let report = HistoryReport {
            node: "srv_1".to_owned(),
            tenant: None,
            step_ms: 5000,
            times_ms: vec![1_795_000_000_000, 1_795_000_005_000, 1_795_000_010_000],
            series: vec![
                of_tenant,
                series(
                    "cove_http_requests",
                    HistoryUnit::PerSecond,
                    vec![Some(0.0), Some(2.5), Some(400.0)],
                ),
                series("process_resident_memory_bytes", HistoryUnit::Bytes, vec![None; 3]),
            ],
            left_out: 2,
        };
        let style = TableStyle { columns: 100, set: SparklineSet::Ascii, has_colour: false };
        let text = table(&report, style);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "server srv_1, 2026-11-18T11:06:40.000Z to 2026-11-18T11:06:55.000Z, 5 s a step"
        );
        assert!(
            lines[3].starts_with("cove_bouncer_query_p95_seconds{tenant=\"shop\"}"),
            "{}",
            lines[3]
        );
        assert!(
            lines[3].contains("1.5 s") && lines[3].contains("400 us") && lines[3].ends_with(".#"),
            "{}",
            lines[3]
        );
        assert!(lines[4].contains("400/s") && lines[4].ends_with("_.#"), "{}", lines[4]);
        assert!(lines[5].trim_end().ends_with('-'), "{}", lines[5]);
        assert_eq!(lines[6], "2 more series had no room on the server");
        assert!(lines.iter().all(|line| line.chars().count() <= 100));
        let coloured =
            table(&report, TableStyle { has_colour: true, set: SparklineSet::Blocks, ..style });
        assert!(coloured.contains("\x1b[36m▁▂█\x1b[0m"), "{coloured}");
    }
}
