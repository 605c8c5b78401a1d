//! Pages of lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{CatalogError, ErrorReason, Result};

/// Names of a page if the request does not set its size.
pub const PAGE_SIZE_DEFAULT: usize = 100;

/// Most names of a page.
pub const PAGE_SIZE_MAX: usize = 1000;

/// Page of a list.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// End of the last page, empty for the first one; `None` for everything at once.
    pub token: Option<String>,
    /// Largest number of entries.
    pub size: Option<usize>,
}

/// Part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage<T> {
    /// In order.
    pub items: Vec<T>,
    /// Token of the next page; `None` at the end.
    pub next: Option<String>,
}

impl PageRequest {
    /// Returns the name that the page comes after, and the number of names to look up: one more
    /// than fit, to detect whether there are more.
    pub(crate) fn bounds(&self) -> Result<(Option<String>, Option<usize>)> {
        let Some(token) = &self.token else { return Ok((None, None)) };
        let limit = self.limit() + 1;
        if token.is_empty() {
            return Ok((None, Some(limit)));
        }
        let refuse = || {
            CatalogError::new(ErrorReason::BadRequest, "`pageToken` was not issued by this catalog")
        };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| refuse())?;
        Ok((Some(String::from_utf8(bytes).map_err(|_| refuse())?), Some(limit)))
    }

    pub(crate) fn limit(&self) -> usize {
        self.size.unwrap_or(PAGE_SIZE_DEFAULT).clamp(1, PAGE_SIZE_MAX)
    }

    /// Cuts the results of a lookup with [`PageRequest::bounds`] to a page.
    pub(crate) fn cut<T>(&self, mut items: Vec<T>, name: impl Fn(&T) -> String) -> ListPage<T> {
        let is_more = self.token.is_some() && items.len() > self.limit();
        if is_more {
            items.truncate(self.limit());
        }
        let last = items.last().filter(|_| is_more);
        let next = last.map(|last| URL_SAFE_NO_PAD.encode(name(last)));
        ListPage { items, next }
    }
}
