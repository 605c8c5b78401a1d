//! Renders one Markdown file as HTML, with its headings, its sections for the search, and its
//! links.

use std::collections::BTreeMap;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::page::escape;
use crate::sources::{self, EmbeddedFile, LinkTarget};

/// A heading with its anchor.
#[derive(Clone, Debug)]
pub(crate) struct PageHeading {
    pub(crate) level: HeadingLevel,
    pub(crate) anchor: String,
    pub(crate) text: String,
}

/// Text between two headings, as indexed by the search.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSection {
    pub(crate) anchor: String,
    pub(crate) heading: String,
    pub(crate) text: String,
}

/// A page without its frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct RenderedPage {
    pub(crate) title: String,
    pub(crate) html: String,
    pub(crate) headings: Vec<PageHeading>,
    pub(crate) sections: Vec<PageSection>,
    /// Targets of its links.
    pub(crate) links: Vec<LinkTarget>,
}

/// Renders one page.
pub(crate) fn render(source: EmbeddedFile) -> RenderedPage {
    let mut rendered = RenderedPage::default();
    let events: Vec<Event<'_>> = Parser::new_ext(source.text(), Options::ENABLE_TABLES).collect();
    let mut writer = MarkdownWriter {
        source,
        rendered: &mut rendered,
        events: Vec::with_capacity(events.len()),
        anchors: BTreeMap::new(),
        unlinked: false,
        is_heading: false,
    };
    writer.rendered.sections.push(PageSection::default());
    let mut rest = events.as_slice();
    while let [event, behind @ ..] = rest {
        match event {
            Event::Start(Tag::Heading { level, .. }) => writer.heading(*level, behind),
            _ => writer.event(event),
        }
        rest = behind;
    }
    let events = std::mem::take(&mut writer.events);
    pulldown_cmark::html::push_html(&mut rendered.html, events.into_iter());
    rendered.sections.retain(|section| !section.text.is_empty() || !section.heading.is_empty());
    rendered
}

/// Converts the parser's events to HTML.
struct MarkdownWriter<'a, 'b> {
    source: EmbeddedFile,
    rendered: &'b mut RenderedPage,
    events: Vec<Event<'a>>,
    /// Number of uses of each anchor.
    anchors: BTreeMap<String, usize>,
    /// True inside of a link that is omitted.
    unlinked: bool,
    /// True inside of a heading, whose words are not part of its section's text.
    is_heading: bool,
}

impl<'a> MarkdownWriter<'a, '_> {
    fn raw(&mut self, html: impl Into<CowStr<'a>>) {
        self.events.push(Event::Html(html.into()));
    }

    fn event(&mut self, event: &Event<'a>) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => self.link(dest_url),
            Event::End(TagEnd::Link) if std::mem::take(&mut self.unlinked) => {
                self.raw("</span>");
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = match self.resolve(dest_url) {
                    Some((address, _)) => address.into(),
                    None => dest_url.clone(),
                };
                let (title, id) = (title.clone(), id.clone());
                let image = Tag::Image { link_type: *link_type, dest_url, title, id };
                self.events.push(Event::Start(image));
            }
            // Wide tables scroll separately, also by keyboard.
            Event::Start(Tag::Table(_)) => {
                self.raw("<div class=\"table\" tabindex=\"0\">");
                self.events.push(event.clone());
            }
            Event::End(TagEnd::Table) => {
                self.events.push(event.clone());
                self.raw("</div>");
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                // The language and, in tutorials, the name of the file that the block contains.
                let (language, file) = match kind {
                    CodeBlockKind::Fenced(words) => words.split_once(' ').unwrap_or((words, "")),
                    CodeBlockKind::Indented => ("", ""),
                };
                let (language, file) = (escape(language), escape(file));
                if !file.is_empty() {
                    self.raw(format!("<p class=\"file\">{file}</p>"));
                }
                self.raw(format!("<pre tabindex=\"0\"><code data-language=\"{language}\">"));
            }
            Event::End(TagEnd::CodeBlock) => {
                self.found("\n");
                self.raw("</code></pre>\n");
            }
            // Pages contain no HTML, so what looks like it is text.
            Event::Html(html) | Event::InlineHtml(html) => {
                self.found(html);
                self.events.push(Event::Text(html.clone()));
            }
            Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
            Event::End(TagEnd::Heading(_)) => {
                self.is_heading = false;
                self.events.push(event.clone());
            }
            Event::End(TagEnd::Paragraph | TagEnd::TableCell) => {
                self.found(" ");
                self.events.push(event.clone());
            }
            Event::Text(text) | Event::Code(text) => {
                self.found(text);
                self.events.push(event.clone());
            }
            Event::SoftBreak | Event::HardBreak => {
                self.found(" ");
                self.events.push(event.clone());
            }
            _ => self.events.push(event.clone()),
        }
    }

    /// Adds text to the current section.
    fn found(&mut self, text: &str) {
        if let Some(section) = self.rendered.sections.last_mut().filter(|_| !self.is_heading) {
            section.text.push_str(text);
        }
    }

    /// Begins a heading and its section; `behind` has the events of its words.
    fn heading(&mut self, level: HeadingLevel, behind: &[Event<'a>]) {
        let inside = behind.iter().take_while(|it| !matches!(it, Event::End(TagEnd::Heading(_))));
        let words = inside.filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            Event::SoftBreak => Some(" "),
            _ => None,
        });
        let text: String = words.collect();
        let anchor = self.anchor(&text);
        self.is_heading = true;
        if level == HeadingLevel::H1 && self.rendered.title.is_empty() {
            self.rendered.title.clone_from(&text);
        } else {
            let section = PageSection {
                anchor: anchor.clone(),
                heading: text.clone(),
                ..PageSection::default()
            };
            self.rendered.sections.push(section);
        }
        self.rendered.headings.push(PageHeading { level, anchor: anchor.clone(), text });
        self.events.push(Event::Start(Tag::Heading {
            level,
            id: Some(anchor.into()),
            classes: Vec::new(),
            attrs: Vec::new(),
        }));
    }

    /// Returns a heading's anchor by GitHub's rules: words in lower case, joined by `-`; a repeated
    /// anchor gets the suffix `-1`.
    fn anchor(&mut self, text: &str) -> String {
        let plain = text.to_lowercase();
        let kept = plain.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        let anchor = kept.map(|it| if it == ' ' { '-' } else { it }).collect::<String>();
        let count = self.anchors.entry(anchor.clone()).or_default();
        *count += 1;
        match *count {
            1 => anchor,
            count => format!("{anchor}-{}", count - 1),
        }
    }

    /// Resolves a link of this page; `None` if its target is not on the site.
    fn resolve(&mut self, target: &str) -> Option<(String, LinkTarget)> {
        let found = sources::resolve(self.source.path, target);
        self.rendered.links.push(found.clone());
        let here = self.source.address();
        let address = match &found {
            LinkTarget::Source { path, anchor } => {
                let there = sources::find(path)?.address();
                let page =
                    if there == here { String::new() } else { sources::relative(&here, &there) };
                match anchor {
                    Some(anchor) => format!("{page}#{anchor}"),
                    None if page.is_empty() => there,
                    None => page,
                }
            }
            LinkTarget::Reference => sources::relative(&here, "api.html"),
            LinkTarget::Elsewhere => target.to_owned(),
            LinkTarget::Repository(_) => return None,
        };
        Some((address, found))
    }

    fn link(&mut self, target: &str) {
        match self.resolve(target) {
            Some((address, LinkTarget::Elsewhere)) => {
                let address = escape(&address);
                self.raw(format!("<a class=\"elsewhere\" rel=\"noreferrer\" href=\"{address}\">"));
            }
            Some((address, _)) => self.raw(format!("<a href=\"{}\">", escape(&address))),
            None => {
                self.unlinked = true;
                let path = self.rendered.links.last();
                let path = match path {
                    Some(LinkTarget::Repository(path)) => escape(path),
                    _ => String::new(),
                };
                self.raw(format!("<span title=\"{path} in the sources of Cove\">"));
            }
        }
    }
}
