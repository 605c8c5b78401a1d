//! A table's metadata in rows, as JSON or CSV; and its health.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use iceberg::json::{put_comma, put_name};
use serde::Serialize;

use super::moment::as_of;
use super::request::CatalogRequest;
use super::{answer, header_value};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{InspectAspect, InspectCell, InspectRows, ROWS_MAX, RowsPage, StatsSnapshot};

const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
const NEXT: HeaderName = HeaderName::from_static("x-next-page-token");

/// Characters that a spreadsheet interprets as the beginning of a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

pub(super) async fn inspect(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let wanted = input.param("aspect")?;
    let aspect = InspectAspect::ALL.into_iter().find(|it| it.name() == wanted);
    let aspect = aspect.ok_or_else(|| {
        let names = InspectAspect::ALL.map(InspectAspect::name).join(", ");
        let message = format!("of a table there are {names}, stats");
        CatalogError::new(ErrorReason::NotFound, message)
    })?;
    let is_csv = wants_csv(input)?;
    let page = page(input)?;
    let catalog = &input.context.catalog;
    let rows =
        catalog.inspect(&input.who, &warehouse, &ident, aspect, as_of(input)?, &page).await?;
    if is_csv { csv(aspect, &rows) } else { json(aspect, &rows) }
}

/// The health of a table at a snapshot, a branch or a tag.
pub(super) async fn stats(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let snapshot = match (snapshot_id(input)?, input.query("ref")?) {
        (Some(_), Some(_)) => {
            let message = "`snapshot-id` and `ref` cannot be combined";
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        (Some(id), None) => StatsSnapshot::Id(id),
        (None, Some(name)) => StatsSnapshot::Ref(name.to_owned()),
        (None, None) => StatsSnapshot::Current,
    };
    let catalog = &input.context.catalog;
    let moment = as_of(input)?;
    let health = catalog.table_health(&input.who, &warehouse, &ident, snapshot, moment).await?;
    answer::of(&health)
}

fn snapshot_id(input: &CatalogRequest<'_>) -> Result<Option<i64>> {
    let snapshot = input.query("snapshot-id")?.map(|text| {
        let refuse = |_| CatalogError::new(ErrorReason::BadRequest, "`snapshot-id` is a number");
        text.parse::<i64>().map_err(refuse)
    });
    snapshot.transpose()
}

fn wants_csv(input: &CatalogRequest<'_>) -> Result<bool> {
    match input.query("format")? {
        Some("csv") => return Ok(true),
        Some("json") => return Ok(false),
        Some(_) => {
            return Err(CatalogError::new(ErrorReason::BadRequest, "`format` is `json` or `csv`"));
        }
        None => {}
    }
    let values = input.parts.headers.get_all(header::ACCEPT).iter();
    let mut kinds = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    Ok(kinds.any(|it| {
        let kind = it.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/csv")
    }))
}

fn page(input: &CatalogRequest<'_>) -> Result<RowsPage> {
    let size = input.query("pageSize")?.map(|text| {
        let size = text.parse::<usize>().ok().filter(|size| (1..=ROWS_MAX).contains(size));
        let refuse = || format!("`pageSize` is a number from 1 to {ROWS_MAX}");
        size.ok_or_else(|| CatalogError::new(ErrorReason::BadRequest, refuse()))
    });
    let snapshot = snapshot_id(input)?;
    let token = input.query("pageToken")?.map(str::to_owned);
    Ok(RowsPage { token, size: size.transpose()?, snapshot })
}

fn json(aspect: InspectAspect, rows: &InspectRows) -> Result<Response> {
    #[derive(Serialize)]
    struct InspectCursor<'a>(&'a Option<String>);
    let mut out = vec![b'{'];
    put_name(&mut out, "rows");
    out.push(b'[');
    for row in &rows.rows {
        put_comma(&mut out);
        out.push(b'{');
        for (name, cell) in aspect.columns().iter().zip(row) {
            put_name(&mut out, name);
            match cell {
                InspectCell::Json(part) => out.extend_from_slice(part.as_bytes()),
                cell => serde_json::to_writer(&mut out, cell).map_err(CatalogError::internal)?,
            }
        }
        out.push(b'}');
    }
    out.push(b']');
    put_name(&mut out, "next-page-token");
    serde_json::to_writer(&mut out, &InspectCursor(&rows.next)).map_err(CatalogError::internal)?;
    out.push(b'}');
    Ok(answer::of_json(out.into()))
}

fn csv(aspect: InspectAspect, rows: &InspectRows) -> Result<Response> {
    let mut text = String::new();
    let names = aspect.columns().iter().map(|name| (*name).to_owned());
    put_line(&mut text, names);
    for row in &rows.rows {
        put_line(&mut text, row.iter().map(field));
    }
    let mut headers = vec![(header::CONTENT_TYPE, CSV)];
    if let Some(next) = &rows.next {
        headers.push((NEXT, header_value(next)?));
    }
    Ok(answer::other(StatusCode::OK, &headers, text.into_bytes()))
}

/// Formats a value for a line. Text that a spreadsheet would calculate gets a prefix.
fn field(cell: &InspectCell) -> String {
    let text = match cell {
        InspectCell::Null => return String::new(),
        InspectCell::Integer(number) => return number.to_string(),
        InspectCell::Bool(is) => return is.to_string(),
        InspectCell::Text(text) => text.as_str(),
        InspectCell::Json(part) => part.text(),
    };
    if text.starts_with(FORMULA) { format!("'{text}") } else { text.to_owned() }
}

/// Appends a line as in RFC 4180.
fn put_line(out: &mut String, fields: impl Iterator<Item = String>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            out.push(',');
        }
        if field.contains(['"', ',', '\r', '\n']) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses the fields of lines as RFC 4180 specifies.
    fn read(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut line, mut field, mut quoted) = (vec![], vec![], String::new(), false);
        let mut rest = text.chars().peekable();
        while let Some(it) = rest.next() {
            match (it, quoted) {
                ('"', true) if rest.peek() == Some(&'"') => field.extend(rest.next()),
                ('"', _) => quoted = !quoted,
                (',', false) => line.push(std::mem::take(&mut field)),
                ('\r', false) if rest.next_if_eq(&'\n').is_some() => {
                    line.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut line));
                }
                (it, _) => field.push(it),
            }
        }
        lines
    }

    #[test]
    fn text_is_quoted_and_never_calculated() {
        let text = |it: &str| InspectCell::Text(it.to_owned());
        for (cell, expected) in [
            (text("plain"), "plain"),
            (text("=1+1"), "'=1+1"),
            (text("-2"), "'-2"),
            (text("@x"), "'@x"),
            (text("\tx"), "'\tx"),
            (InspectCell::Integer(-2), "-2"),
            (InspectCell::Null, ""),
            (InspectCell::Bool(true), "true"),
            (InspectCell::Json(iceberg::json::RawJson::integer(-7)), "'-7"),
        ] {
            assert_eq!(field(&cell), expected, "{cell:?}");
        }
        let mut out = String::new();
        put_line(&mut out, ["a,b", "c\"d", "e\r\nf", ""].map(str::to_owned).into_iter());
        assert_eq!(out, "\"a,b\",\"c\"\"d\",\"e\r\nf\",\r\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            lines in prop::collection::vec(prop::collection::vec("[a\",\r\n= é]{0,6}", 3), 0..5),
        ) {
            let mut out = String::new();
            for line in &lines {
                put_line(&mut out, line.iter().cloned());
            }
            prop_assert_eq!(read(&out), lines);
        }
    }
}
