//! The index of the search: the text of every section, which the script of the search page takes
//! apart in the browser, so that no word that is searched for leaves it.

use serde_json::{Value, json};

use crate::markdown::PageSection;

/// Sections of one page.
#[derive(Debug)]
pub(crate) struct SearchedPage {
    pub(crate) address: String,
    pub(crate) title: String,
    pub(crate) sections: Vec<PageSection>,
}

/// Returns the script that defines `coveSearch`: a script, as a page from a file may load no JSON.
///
/// `pages` are `[address, title]`, `sections` are `[index of the page, anchor, heading, text]`.
pub(crate) fn index(pages: &[SearchedPage]) -> String {
    let titles: Vec<Value> = pages.iter().map(|page| json!([page.address, page.title])).collect();
    let sections = pages.iter().enumerate().flat_map(|(index, page)| {
        page.sections.iter().map(move |section| {
            let text: Vec<&str> = section.text.split_whitespace().collect();
            json!([index, section.anchor, section.heading, text.join(" ")])
        })
    });
    let sections: Vec<Value> = sections.collect();
    format!("self.coveSearch = {};\n", json!({ "pages": titles, "sections": sections }))
}
