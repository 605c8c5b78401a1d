//! Carries out commits that it reads, for `compat/iceberg/oracle`: a line for each, a table's
//! document (empty for a table that is to be made), a tab, and a list of updates. Writes a line for
//! each: the next document, or why there is none.

use std::io::{self, BufRead, BufWriter, Write};
use std::time::SystemTime;

use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::json::RawJson;
use iceberg::{Result, update};

const UUID: &str = "9c12d441-03fe-4693-9a96-a0705ddf69c3";

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (base, updates) = line.split_once('\t').unwrap_or(("", &line));
        match apply(base, updates) {
            Ok(document) => {
                out.write_all(b"done\t")?;
                out.write_all(&document)?;
            }
            Err(error) => write!(out, "refused\t{}\t{}", error.kind.name(), error.message)?,
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn apply(base: &str, updates: &str) -> Result<Bytes> {
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let now_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    let body = RawJson::parse(format!("{{\"updates\":{updates}}}").into())?;
    let request = update::parse_commit(&body)?;
    if base.is_empty() {
        let doc = update::from_updates(&request.updates, UUID, "file:/default", now_ms)?;
        return Ok(doc.to_bytes());
    }
    let base = TableDoc::parse(Bytes::copy_from_slice(base.as_bytes()))?;
    let next = update::apply(&base, &request.updates, now_ms)?;
    Ok(next.unwrap_or(base).to_bytes())
}
