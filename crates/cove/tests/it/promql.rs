//! Subset of PromQL that suffices to find the metrics and labels that a query reads, and the
//! functions applied to them (<https://prometheus.io/docs/prometheus/latest/querying/basics/>).

use std::collections::{BTreeMap, BTreeSet};

/// Operators that are words.
const WORDS: &[&str] = &["and", "or", "unless", "offset", "bool"];
/// Keywords before a list of labels.
const LABEL_LISTS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Functions over the growth of a counter.
const OF_COUNTERS: &[&str] = &["rate", "irate", "increase"];

/// Type and labels of a metric.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

impl Metric {
    pub(crate) fn new<'a>(kind: &str, labels: impl IntoIterator<Item = &'a &'a str>) -> Metric {
        let labels = labels.into_iter().map(|label| (*label).to_owned()).collect();
        Metric { kind: kind.to_owned(), labels }
    }
}

/// Metrics by the names of their samples.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    /// Parses the text format 0.0.4; all samples have the additional `labels`. Families without a
    /// sample are left out.
    pub(crate) fn read(page: &str, labels: &[&str]) -> Metrics {
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut metrics = Metrics::default();
        for line in page.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                kinds.extend(family.split_once(' '));
                continue;
            }
            if line.starts_with('#') {
                continue;
            }
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|end| kinds.get(name.strip_suffix(end)?))
                .find(|kind| **kind == "histogram");
            let kind = kinds.get(name).or(of_histogram).unwrap_or_else(|| panic!("type of {name}"));
            let new = || Metric::new(kind, labels);
            let metric = metrics.0.entry(name.to_owned()).or_insert_with(new);
            metric.labels.extend(Query::parse(rest.rsplit_once(' ').unwrap().0).labels_alone());
        }
        metrics
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn add(&mut self, name: &str, metric: Metric) {
        self.0.insert(name.to_owned(), metric);
    }
}

/// One metric that a query reads.
#[derive(Debug, Default)]
struct Selector {
    name: String,
    /// Labels of its matchers, and labels by which it is grouped or joined.
    labels: BTreeSet<String>,
    /// Functions and aggregations that enclose it, the outermost first.
    within: Vec<String>,
}

/// Metrics and labels that a query reads.
#[derive(Debug, Default)]
pub(crate) struct Query {
    selectors: Vec<Selector>,
    /// Labels of `on` and similar keywords, which both operands need.
    matched: BTreeSet<String>,
    has_le: bool,
}

/// One token of a query. Numbers, durations and operator signs are left out.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text,
    Sign(char),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' => {
                while let Some(inner) = rest.next() {
                    match inner {
                        '\\' => drop(rest.next()),
                        inner if inner == c => break,
                        _ => {}
                    }
                }
                found.push(Token::Text);
            }
            // A range: `[5m]`, or a variable of the dashboard.
            '[' => while rest.next().is_some_and(|inner| inner != ']') {},
            c if c.is_ascii_digit() => {
                while rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
            }
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let mut word = c.to_string();
                let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
                while let Some(next) = rest.next_if(is_part) {
                    word.push(next);
                }
                found.push(Token::Word(word));
            }
            '(' | ')' | '{' | '}' | ',' | '=' => found.push(Token::Sign(c)),
            _ => {}
        }
    }
    found
}

/// Returns the words before a closing sign, and the number of tokens up to and including it.
fn labels_until(tokens: &[Token], end: char) -> (BTreeSet<String>, usize) {
    let length = tokens.iter().position(|it| *it == Token::Sign(end)).expect("an end");
    let word = |token: &Token| match token {
        Token::Word(word) => Some(word.clone()),
        Token::Text | Token::Sign(_) => None,
    };
    (tokens[..length].iter().filter_map(word).collect(), length + 1)
}

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let tokens = tokens(text);
        let mut query = Query::default();
        // For each open parenthesis, the function before it and the labels that it groups by.
        let mut open: Vec<(String, BTreeSet<String>)> = Vec::new();
        let (mut function, mut grouped) = (String::new(), BTreeSet::new());
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let next = tokens.get(at);
            match token {
                Token::Word(word) if LABEL_LISTS.contains(&word.as_str()) => {
                    let (labels, length) = labels_until(&tokens[at + 1..], ')');
                    at += 1 + length;
                    query.has_le |= labels.contains("le");
                    match word.as_str() {
                        "by" | "without" => grouped = labels,
                        _ => query.matched.extend(labels),
                    }
                }
                Token::Word(word) if WORDS.contains(&word.as_str()) => {}
                Token::Word(word) if matches!(next, Some(Token::Sign('('))) => {
                    function.clone_from(word);
                }
                Token::Word(word) if is_aggregation(word, next) => function.clone_from(word),
                Token::Word(name) => {
                    let within = open.iter().map(|(function, _)| function.clone()).collect();
                    let groups = open.iter().flat_map(|(_, labels)| labels.iter().cloned());
                    let (name, labels) = (name.clone(), groups.collect());
                    query.selectors.push(Selector { name, labels, within });
                }
                Token::Sign('{') => {
                    let (labels, length) = labels_until(&tokens[at..], '}');
                    at += length;
                    match query.selectors.last_mut() {
                        Some(selector) => selector.labels.extend(labels),
                        None => query.matched.extend(labels),
                    }
                }
                Token::Sign('(') => {
                    open.push((std::mem::take(&mut function), std::mem::take(&mut grouped)));
                }
                Token::Sign(')') => drop(open.pop().expect("a parenthesis that is open")),
                Token::Text | Token::Sign(_) => {}
            }
        }
        assert!(open.is_empty(), "a parenthesis is not closed: {text}");
        query
    }

    /// Returns the labels of a text without a metric name.
    fn labels_alone(self) -> BTreeSet<String> {
        assert!(self.selectors.is_empty(), "{self:?}");
        self.matched
    }
}

/// Returns whether a word is an aggregation whose labels come first: `sum by (tenant) (…)`.
fn is_aggregation(word: &str, next: Option<&Token>) -> bool {
    let list = |it: &Token| matches!(it, Token::Word(word) if word == "by" || word == "without");
    ["sum", "min", "max", "avg", "count", "group", "topk"].contains(&word) && next.is_some_and(list)
}

/// Checks that a query reads existing metrics by existing labels, with functions that fit their
/// types.
pub(crate) fn check_query(query: &Query, metrics: &Metrics) -> Result<(), String> {
    if query.selectors.is_empty() {
        return Err("it reads no metric".to_owned());
    }
    for Selector { name, labels, within } in &query.selectors {
        let metric = metrics.0.get(name).ok_or_else(|| format!("there is no metric {name}"))?;
        for label in labels.iter().chain(&query.matched) {
            if !metric.labels.contains(label) {
                return Err(format!("{name} has no label {label}, but {:?}", metric.labels));
            }
        }
        let is_within = |names: &[&str]| within.iter().any(|it| names.contains(&it.as_str()));
        let counts = metric.kind == "counter" || metric.kind == "histogram";
        if is_within(OF_COUNTERS) && !counts {
            return Err(format!("{name} is a {}, which has no rate", metric.kind));
        }
        if metric.kind == "histogram" && !is_within(OF_COUNTERS) {
            return Err(format!("{name} counts since the start of the server: take its rate"));
        }
        let is_bucket = metric.kind == "histogram" && name.ends_with("_bucket");
        if is_within(&["histogram_quantile"]) && !(is_bucket && query.has_le) {
            return Err(format!("{name}: a quantile is of buckets, by `le`"));
        }
        if is_within(&["predict_linear", "deriv", "delta"]) && metric.kind != "gauge" {
            return Err(format!("{name} is a {}, not a gauge", metric.kind));
        }
    }
    Ok(())
}

/// Returns selector and label of a dashboard variable: `label_values(SELECTOR, LABEL)`.
pub(crate) fn label_values(definition: &str) -> Option<(&str, &str)> {
    let inner = definition.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (selector, label) = inner.rsplit_once(',')?;
    Some((selector.trim(), label.trim()))
}

#[test]
fn wrong_queries_are_found() {
    let page = "# TYPE runs_total counter\nruns_total{verdict=\"OK\"} 1\n\
                # TYPE running gauge\nrunning 1\n# TYPE took_seconds histogram\n\
                took_seconds_bucket{stage=\"a, b{\",le=\"1.0\"} 1\n\
                took_seconds_count{stage=\"a\"} 1\n";
    let metrics = Metrics::read(page, &["instance"]);
    let check = |expr: &str| check_query(&Query::parse(expr), &metrics);
    for right in [
        "sum by (verdict) (rate(runs_total{instance=~\"$instance\"}[$__rate_interval])) > 0.5",
        "sum(rate(runs_total[5m])) by (verdict)",
        "running > 0 and on (instance) running offset 15m < 1e3",
        "histogram_quantile(0.95, sum by (stage, le) (rate(took_seconds_bucket{stage!=\"(\"}[1m])))",
    ] {
        assert_eq!(check(right), Ok(()), "{right}");
    }
    for (wrong, says) in [
        ("runs", "no metric runs"),
        ("rate(running[5m])", "has no rate"),
        ("runs_total{code=\"x\"}", "no label code"),
        ("sum by (tenant) (runs_total)", "no label tenant"),
        ("running and on (verdict) runs_total", "running has no label verdict"),
        ("took_seconds_count", "take its rate"),
        ("histogram_quantile(0.5, rate(took_seconds_count[5m]))", "of buckets"),
        ("histogram_quantile(0.5, sum by (stage) (rate(took_seconds_bucket[5m])))", "by `le`"),
        ("predict_linear(runs_total[1h], 60)", "not a gauge"),
        ("1 + 2", "no metric"),
    ] {
        let why = check(wrong).expect_err(wrong);
        assert!(why.contains(says), "{wrong}: {why}");
    }
}
