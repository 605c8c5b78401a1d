//! Groups and order of the pages, read from `docs/README.md`: each of its second-level headings is
//! a group, each link in a table or list below it a page of the group.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::sources::{self, LinkTarget};

/// Pages under a common heading.
#[derive(Clone, Debug)]
pub(crate) struct PageGroup {
    pub(crate) title: String,
    pub(crate) entries: Vec<PageEntry>,
}

/// A page in the navigation.
#[derive(Clone, Debug)]
pub(crate) struct PageEntry {
    pub(crate) title: String,
    pub(crate) address: String,
}

/// Reads the groups of an index page.
pub(crate) fn read(index: &str) -> Vec<PageGroup> {
    let mut groups: Vec<PageGroup> = Vec::new();
    let mut heading: Option<String> = None;
    let mut link: Option<PageEntry> = None;
    let mut is_in_list = false;
    for event in Parser::new_ext(index, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => {
                heading = Some(String::new());
            }
            Event::End(TagEnd::Heading(HeadingLevel::H2)) => {
                let title = heading.take().unwrap_or_default();
                groups.push(PageGroup { title, entries: Vec::new() });
            }
            Event::Start(Tag::Table(_) | Tag::List(_)) => is_in_list = true,
            Event::End(TagEnd::Table | TagEnd::List(_)) => is_in_list = false,
            Event::Start(Tag::Link { dest_url, .. }) if is_in_list => {
                let address = match sources::resolve(sources::INDEX, &dest_url) {
                    LinkTarget::Source { path, .. } => {
                        sources::find(&path).map(|source| source.address())
                    }
                    LinkTarget::Reference => Some("api.html".to_owned()),
                    LinkTarget::Elsewhere | LinkTarget::Repository(_) => None,
                };
                link = address.map(|address| PageEntry { title: String::new(), address });
            }
            Event::End(TagEnd::Link) => {
                if let (Some(group), Some(entry)) = (groups.last_mut(), link.take()) {
                    group.entries.push(entry);
                }
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
                if let Some(link) = &mut link {
                    link.title.push_str(&text);
                }
            }
            _ => {}
        }
    }
    groups.retain(|group| !group.entries.is_empty());
    groups
}
