//! The text of a response that shows a document.
//!
//! A response is `{"metadata-location":…,"metadata":`, then the document, then an end, which is `}`
//! or further members for a principal. A document that is written here is written in one buffer
//! with it, so that the document and its parts are slices of the response.

use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::json::{put_name, put_string};
use iceberg::memory;
use iceberg::view::ViewDoc;

use crate::error::Result;

/// Longest document that is copied after reading, so that the response is in one buffer, in bytes.
pub const COPIED_BYTES_MAX: usize = 64 << 10;

/// End of a response that shows only the document.
pub(super) const END: &[u8] = b"}";

/// Parts of a response, in order; some may be empty.
pub type Frames = [Bytes; 3];

/// A document and the response that shows it.
#[derive(Clone, Debug)]
pub struct AnswerText {
    /// Bytes before the document in a response.
    head: Bytes,
    document: Bytes,
    /// The response in one buffer, which the other fields are slices of; `None` for a long document
    /// that was read.
    whole: Option<Bytes>,
}

impl AnswerText {
    /// Creates the text for a document that was read from `location`, or that has no location yet.
    #[must_use]
    pub fn of_read(location: Option<&str>, document: Bytes) -> AnswerText {
        let mut head = head(location);
        if document.len() > COPIED_BYTES_MAX {
            return AnswerText { head: memory::frozen(head), document, whole: None };
        }
        let head_bytes = head.len();
        head.reserve_exact(document.len() + END.len());
        head.extend_from_slice(&document);
        head.extend_from_slice(END);
        AnswerText::of_whole(head.into(), head_bytes)
    }

    /// Writes a table's document, and the response that shows it at this location or without one,
    /// into one buffer. The parts of the returned document are slices of that buffer.
    ///
    /// # Errors
    /// Those of [`TableDoc::settle_within`].
    pub fn of_table(doc: TableDoc, location: Option<&str>) -> Result<(TableDoc, AnswerText)> {
        let head = head(location);
        let (doc, whole) = doc.settle_within(&head, END)?;
        Ok((doc, AnswerText::of_whole(whole, head.len())))
    }

    /// Like [`AnswerText::of_table`], for a view.
    ///
    /// # Errors
    /// Those of [`ViewDoc::settle_within`].
    pub fn of_view(doc: &ViewDoc, location: Option<&str>) -> Result<(ViewDoc, AnswerText)> {
        let head = head(location);
        let (doc, whole) = doc.settle_within(&head, END)?;
        Ok((doc, AnswerText::of_whole(whole, head.len())))
    }

    /// Creates the text from a whole response, whose document begins after `head_bytes` and ends
    /// before [`END`].
    pub(super) fn of_whole(whole: Bytes, head_bytes: usize) -> AnswerText {
        let document = whole.slice(head_bytes..whole.len() - END.len());
        AnswerText { head: whole.slice(..head_bytes), document, whole: Some(whole) }
    }

    /// Returns the document as it is in its file.
    #[must_use]
    pub fn document(&self) -> &Bytes {
        &self.document
    }

    /// Returns the bytes before the document.
    pub(super) fn head(&self) -> &Bytes {
        &self.head
    }

    /// Returns the response. `end` follows the document instead of `}`.
    pub(super) fn frames(&self, end: Option<Bytes>) -> Frames {
        match (&self.whole, end) {
            (Some(whole), None) => [whole.clone(), Bytes::new(), Bytes::new()],
            (Some(whole), Some(end)) => [whole.slice(..whole.len() - END.len()), end, Bytes::new()],
            (None, end) => {
                let end = end.unwrap_or(Bytes::from_static(END));
                [self.head.clone(), self.document.clone(), end]
            }
        }
    }

    /// Returns the bytes reserved by the allocator.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.whole {
            Some(whole) => memory::of_shared(whole.len()),
            None => memory::of_shared(self.head.len()) + memory::of_shared(self.document.len()),
        }
    }
}

/// Returns the bytes before a document in a response: its location, if it has one.
fn head(location: Option<&str>) -> Vec<u8> {
    let mut head = vec![b'{'];
    if let Some(location) = location {
        put_name(&mut head, "metadata-location");
        put_string(&mut head, location);
    }
    put_name(&mut head, "metadata");
    head
}
