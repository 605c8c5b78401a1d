//! The frame around a page: head, bar, navigation, contents, and links to the previous and next
//! page.

use std::fmt::Write as _;

use pulldown_cmark::HeadingLevel;

use crate::markdown::PageHeading;
use crate::navigation::{PageEntry, PageGroup};
use crate::sources::relative;

/// The icon of the console, inlined to avoid another request.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' \
    viewBox='0 0 24 24'%3E%3Crect width='24' height='24' rx='6' fill='%230d7d74'/%3E\
    %3Cpath d='M16.5 8.2A5.6 5.6 0 1 0 16.5 15.8' fill='none' stroke='white' \
    stroke-width='2.6' stroke-linecap='round'/%3E%3C/svg%3E";

/// Number of headings from which contents are shown.
const CONTENTS_MIN: usize = 3;

/// Content of the frame.
#[derive(Debug)]
pub(crate) struct FramedPage<'a> {
    pub(crate) address: &'a str,
    pub(crate) title: &'a str,
    pub(crate) html: &'a str,
    pub(crate) headings: &'a [PageHeading],
    /// Path in the repository.
    pub(crate) path: Option<&'a str>,
    /// Addresses of scripts of this page only.
    pub(crate) scripts: &'a [&'a str],
}

/// Returns the whole document.
pub(crate) fn frame(page: &FramedPage<'_>, groups: &[PageGroup]) -> String {
    let to = |address: &str| escape(&relative(page.address, address));
    let mut html = String::with_capacity(page.html.len() + (16 << 10));
    let title = escape(page.title);
    html.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.push_str("<meta name=\"color-scheme\" content=\"light dark\">");
    let _ = write!(html, "<title>{title} · Cove</title><link rel=\"icon\" href=\"{ICON}\">");
    let _ = write!(html, "<script src=\"{}\"></script>", to("theme.js"));
    let _ = write!(html, "<link rel=\"stylesheet\" href=\"{}\">", to("site.css"));
    for script in ["site.js"].iter().chain(page.scripts) {
        let _ = write!(html, "<script defer src=\"{}\"></script>", to(script));
    }
    html.push_str("</head><body><a class=\"skip\" href=\"#main\">Skip to the text</a>");
    bar(&mut html, &to);
    let list = contents(page.headings);
    html.push_str("<div class=\"columns\"><main id=\"main\" tabindex=\"-1\"><article>");
    if list.is_empty() {
        html.push_str(page.html);
    } else {
        let (head, rest) = split_at_title(page.html);
        html.push_str(head);
        let _ = write!(
            html,
            "<details class=\"contents\"><summary>On this page</summary>{list}</details>{rest}"
        );
    }
    html.push_str("</article>");
    foot(&mut html, page, groups, &to);
    html.push_str("</main>");
    sides(&mut html, page, groups, &list, &to);
    html.push_str("</div></body></html>\n");
    html
}

/// Appends the bar above every page. The search is a separate page, which the form leads to.
fn bar(html: &mut String, to: &impl Fn(&str) -> String) {
    let _ = write!(
        html,
        "<header class=\"bar\"><a class=\"home\" href=\"{home}\"><img alt=\"\" width=\"22\" \
         height=\"22\" src=\"{ICON}\">Cove <span>documentation</span></a>\
         <form role=\"search\" action=\"{search}\"><input type=\"search\" name=\"q\" \
         aria-label=\"Search the documentation\" placeholder=\"Search\" autocomplete=\"off\" \
         maxlength=\"200\"></form>\
         <a class=\"to-pages\" href=\"#pages\">Pages</a><a href=\"{api}\">API</a>\
         <button type=\"button\" id=\"theme\" hidden>Theme</button></header>",
        home = to("index.html"),
        search = to("search.html"),
        api = to("api.html"),
    );
}

/// Returns the contents of a page as a list, of its headings of the second and third level; empty
/// for few.
fn contents(headings: &[PageHeading]) -> String {
    let shown = |level| matches!(level, HeadingLevel::H2 | HeadingLevel::H3);
    let shown: Vec<&PageHeading> = headings.iter().filter(|it| shown(it.level)).collect();
    if shown.len() < CONTENTS_MIN {
        return String::new();
    }
    let mut list = String::from("<ul>");
    for heading in shown {
        let class = if heading.level == HeadingLevel::H3 { " class=\"inner\"" } else { "" };
        let (anchor, text) = (escape(&heading.anchor), escape(&heading.text));
        let _ = write!(list, "<li{class}><a href=\"#{anchor}\">{text}</a></li>");
    }
    list.push_str("</ul>");
    list
}

/// Splits a page after its title.
fn split_at_title(html: &str) -> (&str, &str) {
    const END: &str = "</h1>";
    html.find(END).map_or(("", html), |place| html.split_at(place + END.len()))
}

/// Appends links to the previous and next page, and the page's path in the repository.
fn foot(
    html: &mut String,
    page: &FramedPage<'_>,
    groups: &[PageGroup],
    to: &impl Fn(&str) -> String,
) {
    let all: Vec<&PageEntry> = groups.iter().flat_map(|group| &group.entries).collect();
    let here = all.iter().position(|entry| entry.address == page.address);
    html.push_str("<footer>");
    if let Some(here) = here {
        html.push_str("<nav aria-label=\"Neighbours\">");
        let before = here.checked_sub(1).and_then(|index| all.get(index));
        for (entry, class) in [(before, "before"), (all.get(here + 1), "behind")] {
            if let Some(entry) = entry {
                let (address, title) = (to(&entry.address), escape(&entry.title));
                let _ = write!(html, "<a class=\"{class}\" href=\"{address}\">{title}</a>");
            }
        }
        html.push_str("</nav>");
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(html, "<p>Cove {version}");
    if let Some(path) = page.path {
        let _ = write!(html, " · <code>{}</code>", escape(path));
    }
    html.push_str("</p></footer>");
}

/// Appends navigation and contents beside the page; on narrow screens, the navigation is below it
/// and the contents are in the text.
fn sides(
    html: &mut String,
    page: &FramedPage<'_>,
    groups: &[PageGroup],
    contents: &str,
    to: &impl Fn(&str) -> String,
) {
    html.push_str("<nav id=\"pages\" aria-label=\"Pages\">");
    for group in groups {
        let _ = write!(html, "<h2>{}</h2><ul>", escape(&group.title));
        for entry in &group.entries {
            let current = match entry.address == page.address {
                true => " aria-current=\"page\"",
                false => "",
            };
            let (address, title) = (to(&entry.address), escape(&entry.title));
            let _ = write!(html, "<li><a href=\"{address}\"{current}>{title}</a></li>");
        }
        html.push_str("</ul>");
    }
    html.push_str("</nav>");
    if !contents.is_empty() {
        let label = "aria-label=\"On this page\"";
        let _ = write!(html, "<nav class=\"here\" {label}><h2>On this page</h2>{contents}</nav>");
    }
}

/// Escapes text for HTML, including attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
