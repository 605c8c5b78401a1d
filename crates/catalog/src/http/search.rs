//! Search by name.

use axum::response::Response;

use super::answer;
use super::request::CatalogRequest;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{SEARCH_RESULTS_DEFAULT, SEARCH_RESULTS_MAX};

pub(super) async fn search(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let text = input.query("q")?.unwrap_or_default().trim().to_owned();
    let limit = match input.query("limit")? {
        None => SEARCH_RESULTS_DEFAULT,
        Some(text) => {
            let limit = text.parse().ok().filter(|it| (1..=SEARCH_RESULTS_MAX).contains(it));
            let refuse = || format!("`limit` is a number from 1 to {SEARCH_RESULTS_MAX}");
            limit.ok_or_else(|| CatalogError::new(ErrorReason::BadRequest, refuse()))?
        }
    };
    let catalog = &input.context.catalog;
    answer::of(&catalog.search(&input.who, &warehouse, &text, limit).await?)
}
