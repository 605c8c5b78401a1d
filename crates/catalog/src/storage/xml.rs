//! The part of XML that services with S3's protocol use: elements and text.
//!
//! Used for responses of a token service and for bodies that clients send to the signer, so for
//! untrusted input: no document types, no entities except the five predefined ones and numeric
//! character references, no processing instructions except the declaration, and limits on
//! everything. Any other construct makes the parser reject the text.
//!
//! # References
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>

/// Longest text, in bytes.
pub(crate) const XML_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of elements.
const DEPTH_MAX: usize = 16;

/// Most elements of a text: a delete request has 1,000 objects with two members each.
const ELEMENTS_MAX: usize = 8192;

/// An element with its content. White space around elements and attributes are dropped: nothing
/// here depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct XmlElement {
    /// Name without a namespace prefix.
    pub(super) name: String,
    /// Text of an element without children.
    pub(super) text: String,
    /// Children, in order.
    pub(super) elements: Vec<XmlElement>,
}

impl XmlElement {
    /// Parses the root element of a text; `None` if it is malformed, or has a rejected construct.
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<XmlElement> {
        if text.len() > XML_BYTES_MAX {
            return None;
        }
        let mut reader = XmlReader { rest: text.trim_start_matches('\u{feff}'), elements: 0 };
        reader.space();
        if let Some(rest) = reader.rest.strip_prefix("<?xml") {
            let (_, rest) = rest.split_once("?>")?;
            reader.rest = rest;
            reader.space();
        }
        let element = reader.element(0)?;
        reader.space();
        reader.rest.is_empty().then_some(element)
    }

    /// Returns the first child of this name.
    #[must_use]
    pub(super) fn find(&self, name: &str) -> Option<&XmlElement> {
        self.elements.iter().find(|it| it.name == name)
    }

    /// Returns the text of the only child of this name; `None` if there are several.
    #[must_use]
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        let mut found = self.elements.iter().filter(|it| it.name == name);
        let first = found.next().filter(|it| it.elements.is_empty())?;
        found.next().is_none().then_some(&*first.text)
    }
}

struct XmlReader<'a> {
    rest: &'a str,
    elements: usize,
}

impl XmlReader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn take(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Parses an element from its `<` on.
    fn element(&mut self, depth: usize) -> Option<XmlElement> {
        self.elements += 1;
        if depth >= DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return None;
        }
        self.take("<")?;
        let whole = self.name()?;
        let name = whole.rsplit(':').next().unwrap_or_default().to_owned();
        let mut element = XmlElement { name, text: String::new(), elements: Vec::new() };
        if self.attributes()? {
            return Some(element);
        }
        let mut text = String::new();
        loop {
            let (before, _) = self.rest.split_once('<')?;
            push_text(&mut text, before)?;
            self.rest = self.rest.get(before.len()..)?;
            if self.rest.starts_with("</") {
                break;
            }
            element.elements.push(self.element(depth + 1)?);
        }
        self.take("</")?;
        self.take(&whole)?;
        self.space();
        self.take(">")?;
        match element.elements.is_empty() {
            true => element.text = text,
            // Mixed content is used by none of the services.
            false if !text.trim().is_empty() => return None,
            false => {}
        }
        Some(element)
    }

    fn name(&mut self) -> Option<String> {
        let is_part = |it: char| it.is_ascii_alphanumeric() || "_-.:".contains(it);
        let end = self.rest.find(|it| !is_part(it))?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name.starts_with(|it: char| it.is_ascii_alphabetic()).then(|| name.to_owned())
    }

    /// Skips attributes. Returns whether the element ends with them.
    fn attributes(&mut self) -> Option<bool> {
        loop {
            self.space();
            if self.take("/>").is_some() {
                return Some(true);
            }
            if self.take(">").is_some() {
                return Some(false);
            }
            self.name()?;
            self.space();
            self.take("=")?;
            self.space();
            let quote = self.rest.chars().next().filter(|it| matches!(it, '"' | '\''))?;
            let (value, rest) = self.rest.get(1..)?.split_once(quote)?;
            if value.contains('<') {
                return None;
            }
            self.rest = rest;
        }
    }
}

/// Appends text with its entities resolved.
fn push_text(text: &mut String, raw: &str) -> Option<()> {
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('&') {
        text.push_str(before);
        let (entity, after) = after.split_once(';')?;
        text.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => numbered(entity)?,
        });
        rest = after;
    }
    text.push_str(rest);
    Some(())
}

/// Returns the character of a numeric reference, if XML 1.0 allows it.
fn numbered(entity: &str) -> Option<char> {
    let number = entity.strip_prefix('#')?;
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|it| it.is_digit(radix));
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
    let found = char::from_u32(number)?;
    (found >= ' ' || matches!(found, '\t' | '\n' | '\r')).then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_well_formed_is_read_and_nothing_else() {
        let deep = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
        let many = |n: usize| format!("<r>{}</r>", "<a/>".repeat(n));
        for (text, expected) in [
            ("<a>x</a>", Some("x")),
            (" <?xml version=\"1.0\"?>\n<a  b='1' c = \"<\">x</a>", None),
            ("<?xml version=\"1.0\"?>\n<n:a  xmlns:n='1'>x</n:a>\n", Some("x")),
            ("<a>a&amp;b&lt;&#65;&#x42;&quot;&apos;&gt;</a>", Some("a&b<AB\"'>")),
            ("<a/>", Some("")),
            ("<a> x </a>", Some(" x ")),
            ("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>", None),
            ("<a>&x;</a>", None),
            ("<a>&#0;</a>", None),
            ("<a>&#xD800;</a>", None),
            ("<a>&#+65;</a>", None),
            ("<a>&#99999999999;</a>", None),
            ("<a>&amp</a>", None),
            ("<a><!-- x --></a>", None),
            ("<a><![CDATA[x]]></a>", None),
            ("<a><?php x ?></a>", None),
            ("<a>x</b>", None),
            ("<a>x</a>y", None),
            ("<a>x</a><a/>", None),
            ("<a>x<b/></a>", None),
            ("<a b>x</a>", None),
            ("<a", None),
            ("<a>", None),
            ("<>x</>", None),
            ("x", None),
            ("", None),
            (&deep(DEPTH_MAX), Some("")),
            (&deep(DEPTH_MAX + 1), None),
            (&many(ELEMENTS_MAX - 1), Some("")),
            (&many(ELEMENTS_MAX), None),
            (&format!("<a>{}</a>", "x".repeat(XML_BYTES_MAX)), None),
        ] {
            let found = XmlElement::parse(text);
            let excerpt: String = text.chars().take(60).collect();
            assert_eq!(found.map(|it| it.text).as_deref(), expected, "{excerpt}");
        }
        let found = XmlElement::parse("<r>\n <a>1</a> <b>2</b><b>3</b> <c><a/></c></r>").unwrap();
        assert_eq!((found.text_of("a"), found.text_of("b")), (Some("1"), None));
        assert_eq!((found.text_of("c"), found.text_of("x")), (None, None));
        assert_eq!(found.find("c").unwrap().elements.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "[<>/a&;#x1'\"= !?-]{0,60}") {
            drop(XmlElement::parse(&text));
        }

        #[test]
        fn what_was_escaped_is_the_same_again(text in "\\PC{0,40}") {
            let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
            let found = XmlElement::parse(&format!("<a>{escaped}</a>")).unwrap();
            prop_assert_eq!(found.text, text);
        }
    }
}
