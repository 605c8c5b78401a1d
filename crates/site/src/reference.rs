//! `openapi.json` rendered as a page: one document, whose only script is the choice of the theme.

use std::sync::OnceLock;

use axum::http::{HeaderMap, header};
use serde_json::{Map, Value};

use crate::files::section;
use crate::markdown::PageSection;
use crate::sources;

/// Generated from the contract's types by `cargo run -p xtask -- gen`.
/// The build script compresses it by gzip.
static COMPRESSED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/reference.rs"));

/// Returns the document; decompressed on first use.
pub(crate) fn openapi() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let document = COMPRESSED.first().map(|(_, gzip)| sources::decompress(gzip));
        String::from_utf8(document.unwrap_or_default()).unwrap_or_default()
    })
}

/// Placeholder in the rendered page for the server's own address.
const ORIGIN: &str = "@ORIGIN@";

/// Pseudo-scope: requires an operator's token.
const OPERATOR: &str = "operator";

/// Server address in the examples if a request does not reveal how it reached the server.
pub(crate) const ORIGIN_DEFAULT: &str = "http://127.0.0.1:4100";

/// Returns the page, with `origin` in its examples.
pub(crate) fn page(origin: &str) -> String {
    static PAGE: OnceLock<String> = OnceLock::new();
    let page = PAGE.get_or_init(|| match serde_json::from_str(openapi()) {
        Ok(document) => render(&inlined(document)),
        Err(error) => {
            tracing::error!(%error, "failed to parse the built-in openapi.json");
            String::new()
        }
    });
    page.replace(ORIGIN, origin)
}

/// Returns the sections for the search index: the page's operations.
pub(crate) fn sections() -> Vec<PageSection> {
    let document: Value = serde_json::from_str(openapi()).unwrap_or_default();
    let operations = operations(&document).map(|(path, method, operation)| {
        let (summary, description) = (text(&operation["summary"]), text(&operation["description"]));
        let method = method.to_uppercase();
        let id = text(&operation["operationId"]);
        section(id, summary.to_owned(), format!("{method} {path} {description}"))
    });
    operations.collect()
}

/// Returns the address at which the reader reached this server, so that the examples can be pasted.
pub(crate) fn origin(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte);
    match host {
        Some(host) if !host.is_empty() && host.len() <= 255 && host.bytes().all(plain) => {
            format!("http://{host}")
        }
        _ => ORIGIN_DEFAULT.to_owned(),
    }
}

/// Replaces references to shared responses by the responses.
fn inlined(mut document: Value) -> Value {
    let shared = document["components"]["responses"].take();
    let methods = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let operations = methods.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    let answers = operations.filter_map(|it| it.get_mut("responses")?.as_object_mut());
    for answer in answers.flat_map(Map::values_mut) {
        let place = answer["$ref"].as_str().and_then(|place| place.rsplit('/').next());
        if let Some(found) = place.and_then(|name| shared.get(name)) {
            *answer = found.clone();
        }
    }
    document
}

/// Renders the whole page.
fn render(document: &Value) -> String {
    let mut page = DocsPage { html: String::with_capacity(64 << 10) };
    let title = text(&document["info"]["title"]);
    let version = text(&document["info"]["version"]);
    page.raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">");
    page.element("title", &format!("{title} {version}: interface"));
    page.raw("<script src=\"theme.js\"></script>");
    page.raw("<link rel=\"stylesheet\" href=\"reference.css\"></head><body>");
    // Placed first, so that it is visible even if the contents do not fit beside it.
    page.raw("<header><p><a href=\"index.html\">Documentation</a></p><h1>")
        .escaped(title)
        .raw(" <small>")
        .escaped(version)
        .raw("</small></h1>");
    page.paragraph(text(&document["info"]["description"]));
    let token = &document["components"]["securitySchemes"]["token"]["description"];
    page.paragraph(text(token));
    page.raw("<p>For machines: <a href=\"openapi.json\">openapi.json</a>.</p></header>");
    page.contents(document);
    page.raw("<main>");
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        page.raw("<h2>").escaped(name).raw("</h2>");
        page.paragraph(text(&tag["description"]));
        for (path, method, operation) in operations(document) {
            if list(&operation["tags"]).iter().any(|it| it == name) {
                page.operation(path, method, operation);
            }
        }
    }
    page.webhooks(&document["webhooks"]);
    page.raw("<h2>Types</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        page.schema(name, schema);
    }
    page.raw("</main></body></html>\n");
    page.html
}

/// Iterates over all operations with path and method.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    entries(&document["paths"]).flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| (path, method, operation))
    })
}

struct DocsPage {
    html: String,
}

impl DocsPage {
    fn raw(&mut self, html: &str) -> &mut Self {
        self.html.push_str(html);
        self
    }

    fn escaped(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.html.push_str("&amp;"),
                '<' => self.html.push_str("&lt;"),
                '>' => self.html.push_str("&gt;"),
                '"' => self.html.push_str("&quot;"),
                other => self.html.push(other),
            }
        }
        self
    }

    fn element(&mut self, name: &str, text: &str) -> &mut Self {
        self.raw("<").raw(name).raw(">").escaped(text).raw("</").raw(name).raw(">")
    }

    /// Appends a block of code, which scrolls separately, also by keyboard.
    fn code(&mut self, text: &str) -> &mut Self {
        self.raw("<pre tabindex=\"0\">").escaped(text).raw("</pre>")
    }

    /// Appends prose with `code` in backticks.
    fn prose(&mut self, text: &str) -> &mut Self {
        for (index, part) in text.split('`').enumerate() {
            // Every second part is inside backticks.
            if index % 2 == 1 {
                self.element("code", part);
            } else {
                self.escaped(part);
            }
        }
        self
    }

    fn paragraph(&mut self, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.raw("<p>").prose(text).raw("</p>") }
    }

    /// Appends the contents: operations by tag, then the types, each group folded.
    fn contents(&mut self, document: &Value) {
        self.raw("<nav>");
        for tag in list(&document["tags"]) {
            let name = text(&tag["name"]);
            self.raw("<details>").element("summary", name).raw("<ul>");
            for (_, _, operation) in operations(document) {
                if list(&operation["tags"]).iter().any(|it| it == name) {
                    self.link(text(&operation["operationId"]), text(&operation["summary"]));
                }
            }
            self.raw("</ul></details>");
        }
        self.raw("<details><summary>types</summary><ul>");
        for (name, _) in entries(&document["components"]["schemas"]) {
            self.link(name, name);
        }
        self.raw("</ul></details></nav>");
    }

    fn link(&mut self, id: &str, words: &str) {
        self.raw("<li><a href=\"#").escaped(id).raw("\">").escaped(words).raw("</a></li>");
    }

    fn operation(&mut self, path: &str, method: &str, operation: &Value) {
        self.raw("<section id=\"").escaped(text(&operation["operationId"])).raw("\"><h3>");
        self.raw("<span class=\"method\">").escaped(&method.to_uppercase()).raw("</span> ");
        self.element("code", path).raw("</h3>");
        self.raw("<p><strong>").escaped(text(&operation["summary"])).raw("</strong></p>");
        self.paragraph(text(&operation["description"]));
        let needs_token = !list(&operation["security"]).is_empty();
        self.paragraph(&needed(list(&operation["security"])));
        if let Some(command) = operation["x-cove-command"].as_str() {
            self.paragraph(&format!("Command: `{command}`."));
        }
        self.parameters(&operation["parameters"]);
        let body = &operation["requestBody"]["content"]["application/json"];
        if !body.is_null() {
            self.raw("<h4>Body: ").kind(&body["schema"]).raw("</h4>");
        }
        let path = filled(path, &operation["parameters"]);
        let is_stream = !operation["responses"]["200"]["content"]["text/event-stream"].is_null();
        let call = OperationCall { method, path: &path, needs_token, is_stream };
        let examples: Vec<_> = entries(&body["examples"]).map(|(_, example)| example).collect();
        if examples.is_empty() {
            self.raw("<h4>Try it</h4>").code(&call.curl(None));
        }
        for example in examples {
            let says = text(&example["summary"]);
            self.raw("<h4>Try it: ").escaped(says).raw("</h4>");
            self.code(&call.curl(Some(&example["value"])));
        }
        self.responses(&operation["responses"]);
        self.raw("</section>");
    }

    fn parameters(&mut self, parameters: &Value) {
        if list(parameters).is_empty() {
            return;
        }
        self.raw("<h4>Parameters</h4><table>");
        for parameter in list(parameters) {
            let required = parameter["required"] == true;
            self.row(text(&parameter["name"]), &parameter["schema"], required);
            self.prose(text(&parameter["description"])).raw("</td></tr>");
        }
        self.raw("</table>");
    }

    /// Begins a table row: name and type. The description follows, and the end of the row.
    fn row(&mut self, name: &str, schema: &Value, required: bool) {
        self.raw("<tr><td>").element("code", name);
        self.raw(if required { " <em>required</em>" } else { "" });
        self.raw("</td><td>").kind(schema).raw("</td><td>");
    }

    fn responses(&mut self, responses: &Value) {
        self.raw("<h4>Answers</h4><table>");
        for (status, response) in entries(responses) {
            self.raw("<tr><td>").element("code", status).raw("</td><td>");
            for (content_type, media) in entries(&response["content"]) {
                if media["schema"].is_null() {
                    self.escaped(content_type);
                } else {
                    self.kind(&media["schema"]);
                }
            }
            let receives = &response["x-receives"];
            if !receives.is_null() {
                self.raw("takes ").kind(receives);
            }
            self.raw("</td><td>").prose(text(&response["description"])).raw("</td></tr>");
        }
        self.raw("</table>");
        for (status, response) in entries(responses) {
            for (_, media) in entries(&response["content"]) {
                self.example(&format!("Example: {status}"), &media["example"]);
            }
        }
    }

    fn example(&mut self, says: &str, example: &Value) {
        if !example.is_null() {
            self.raw("<details>").element("summary", says);
            self.code(&format!("{example:#}")).raw("</details>");
        }
    }

    /// Appends the requests that the server sends.
    fn webhooks(&mut self, webhooks: &Value) {
        self.raw("<h2>Webhooks</h2>");
        for (_, methods) in entries(webhooks) {
            for (method, operation) in entries(methods) {
                self.raw("<section id=\"").escaped(text(&operation["operationId"]));
                self.raw("\"><h3><span class=\"method\">").escaped(&method.to_uppercase());
                self.raw("</span> ").escaped(text(&operation["summary"])).raw("</h3>");
                self.paragraph(text(&operation["description"]));
                self.parameters(&operation["parameters"]);
                let body = &operation["requestBody"]["content"]["application/json"];
                self.raw("<h4>Body: ").kind(&body["schema"]).raw("</h4>");
                self.example("Example", &body["example"]);
                self.raw("</section>");
            }
        }
    }

    fn schema(&mut self, name: &str, schema: &Value) {
        self.raw("<section id=\"").escaped(name).raw("\"><h3>").element("code", name).raw("</h3>");
        self.paragraph(text(&schema["description"]));
        let required: Vec<_> = list(&schema["required"]).iter().map(text).collect();
        let properties: Vec<_> = entries(&schema["properties"]).collect();
        let choices = list(&schema["oneOf"]);
        self.raw("<table>");
        // Required properties come first.
        for wanted in [true, false] {
            for (name, property) in &properties {
                if required.contains(name) == wanted {
                    self.row(name, property, wanted);
                    self.prose(text(&property["description"])).raw("</td></tr>");
                }
            }
        }
        let forms: Vec<_> = entries(&schema["discriminator"]["mapping"]).collect();
        let tag = text(&schema["discriminator"]["propertyName"]);
        for (value, form) in &forms {
            self.raw("<tr><td>").element("code", &format!("{tag}: \"{value}\"")).raw("</td><td>");
            self.kind(&serde_json::json!({ "$ref": form })).raw("</td></tr>");
        }
        for choice in choices.iter().filter(|_| forms.is_empty()) {
            self.choice(choice);
        }
        let values = list(&schema["enum"]);
        for value in values {
            let description = &schema["x-enumDescriptions"][text(value)];
            self.raw("<tr><td>").element("code", &value.to_string()).raw("</td><td>");
            self.prose(text(description)).raw("</td></tr>");
        }
        if properties.is_empty() && choices.is_empty() && values.is_empty() {
            self.raw("<tr><td>").kind(schema).raw("</td></tr>");
        }
        self.raw("</table></section>");
    }

    /// Appends one of several alternatives without a distinguishing field.
    fn choice(&mut self, choice: &Value) {
        self.raw("<tr><td>").kind(choice);
        self.raw("</td><td>").prose(text(&choice["description"]));
        let required: Vec<_> = list(&choice["required"]).iter().map(text).collect();
        for (name, field) in entries(&choice["properties"]) {
            self.raw("<br>").element("code", name).raw(" (");
            self.kind(field).raw(if required.contains(&name) { ", required): " } else { "): " });
            self.prose(text(&field["description"]));
        }
        self.raw("</td></tr>");
    }

    /// Appends a type, with links for named types.
    fn kind(&mut self, schema: &Value) -> &mut Self {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            return self.raw("<a href=\"#").escaped(name).raw("\">").escaped(name).raw("</a>");
        }
        let alternatives = list(&schema["anyOf"]);
        if !alternatives.is_empty() {
            for (index, alternative) in alternatives.iter().enumerate() {
                self.raw(if index > 0 { " or " } else { "" }).kind(alternative);
            }
            return self;
        }
        if let Some(value) = schema["const"].as_str() {
            return self.element("code", &format!("\"{value}\""));
        }
        if schema["items"].is_object() {
            return self.raw("list of ").kind(&schema["items"]);
        }
        if schema["additionalProperties"].is_object() {
            return self.raw("map of text to ").kind(&schema["additionalProperties"]);
        }
        let names: Vec<_> = match &schema["type"] {
            Value::Array(names) => names.iter().map(text).collect(),
            name => vec![text(name)],
        };
        self.escaped(&names.join(" or "))
    }
}

/// Example call of an operation from a shell.
struct OperationCall<'a> {
    method: &'a str,
    path: &'a str,
    needs_token: bool,
    /// True if the response is to be shown as it arrives.
    is_stream: bool,
}

impl OperationCall<'_> {
    fn curl(&self, body: Option<&Value>) -> String {
        let OperationCall { method, path, needs_token, is_stream } = self;
        let flags = if *is_stream { "-sN" } else { "-s" };
        let mut line = format!("curl {flags} '{ORIGIN}{path}'");
        if *needs_token {
            line.push_str(" \\\n  -H \"authorization: Bearer $(cove token)\"");
        }
        match body {
            Some(body) => {
                let body = body.to_string().replace('\'', r"'\''");
                line.push_str(" \\\n  -H 'content-type: application/json'");
                line.push_str(&format!(" \\\n  -d '{body}'"));
            }
            None if *method != "get" => line.push_str(&format!(" -X {}", method.to_uppercase())),
            None => {}
        }
        line
    }
}

/// Describes the scopes that a caller needs, by the alternatives of an operation's security.
fn needed(alternatives: &[Value]) -> String {
    let roles = alternatives.iter().flat_map(|it| list(&it["token"])).map(text);
    let (operators, scopes): (Vec<&str>, Vec<&str>) = roles.partition(|role| *role == OPERATOR);
    let whose = if operators.is_empty() { "a" } else { "an operator's" };
    // Alternatives have one scope each.
    let word = if alternatives.len() > 1 { "` or `" } else { "` and `" };
    match (alternatives, &*scopes) {
        ([], _) => "Needs no token.".to_owned(),
        (_, []) => format!("Needs {whose} token."),
        (_, [scope]) => format!("Needs {whose} token with the scope `{scope}`."),
        (_, scopes) => format!("Needs {whose} token with the scopes `{}`.", scopes.join(word)),
    }
}

/// Returns the path with its parameters replaced by examples.
fn filled(path: &str, parameters: &Value) -> String {
    let places = list(parameters).iter().filter(|it| it["in"] == "path");
    places.fold(path.to_owned(), |path, it| {
        path.replace(&format!("{{{}}}", text(&it["name"])), text(&it["example"]))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

#[cfg(test)]
mod tests {
    //! Tests of the page rendered from the real document.

    use axum::http::HeaderValue;

    use super::*;

    fn rendered() -> String {
        render(&inlined(serde_json::from_str(openapi()).unwrap()))
    }

    #[test]
    fn every_operation_and_type_is_there_and_every_link_leads_somewhere() {
        let html = rendered();
        let document: Value = serde_json::from_str(openapi()).unwrap();
        for (path, _, operation) in operations(&document) {
            assert!(html.contains(path), "{path}");
            let id = text(&operation["operationId"]);
            assert!(html.contains(&format!("<section id=\"{id}\">")), "{id}");
        }
        assert!(html.contains("id=\"ExecutionRequest\"") && html.contains("id=\"Verdict\""));
        for link in html.split("href=\"#").skip(1) {
            let target = link.split('"').next().unwrap();
            assert!(html.contains(&format!("id=\"{target}\"")), "{target}");
        }
    }

    #[test]
    fn contents_are_grouped_and_come_after_the_introduction() {
        let html = rendered();
        let (before, rest) = html.split_once("<nav>").unwrap();
        assert!(before.contains("<h1>") && before.contains("openapi.json"), "{before}");
        let (nav, after) = rest.split_once("</nav>").unwrap();
        let document: Value = serde_json::from_str(openapi()).unwrap();
        let tags = list(&document["tags"]);
        assert_eq!(nav.matches("<details><summary>").count(), tags.len() + 1);
        for (path, _, operation) in operations(&document) {
            let link = format!("href=\"#{}\"", text(&operation["operationId"]));
            assert_eq!(nav.matches(&link).count(), 1, "{path}");
        }
        for link in nav.split("href=\"#").skip(1).filter_map(|it| it.split('"').next()) {
            assert!(after.contains(&format!("id=\"{link}\"")), "{link}");
        }
    }

    #[test]
    fn only_the_theme_and_the_style_are_loaded() {
        let html = rendered();
        for forbidden in ["<img", "<style", "style=", "url(", "@import"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        assert_eq!(html.matches("src=").count(), 1, "the theme");
        assert_eq!(html.matches("<link").count(), 1, "the style");
        let opened = html.matches("<section").count();
        assert_eq!(opened, html.matches("</section>").count());
    }

    #[test]
    fn the_examples_can_be_pasted() {
        let html = rendered();
        for line in [
            "curl -s '@ORIGIN@/v1/executions' \\\n  -H &quot;authorization: Bearer $(cove token)&quot;",
            "curl -s '@ORIGIN@/v1/executions/ex_01M7ZSJM3P2AZVFP0M84SC7SNT' \\\n",
            "curl -sN '@ORIGIN@/v1/executions/ex_01M7ZSJM3P2AZVFP0M84SC7SNT/events'",
            "/v1/queue/pause' \\\n  -H &quot;authorization: Bearer $(cove token)&quot; -X POST",
        ] {
            assert!(html.contains(line), "{line}: {html}");
        }
    }

    #[test]
    fn operations_say_what_they_need_and_which_command_does_the_same() {
        let html = rendered();
        let of = |id: &str| {
            let from = html.split(&format!("<section id=\"{id}\">")).nth(1).unwrap();
            from.split("</section>").next().unwrap().to_owned()
        };
        for (id, says) in [
            ("live", "Needs no token."),
            ("whoami", "Needs a token."),
            ("createExecution", "Needs a token with the scope <code>executions</code>."),
            ("createExecution", "Command: <code>cove exec submit</code>."),
            ("listAudit", "with the scopes <code>executions</code> or <code>sessions</code>."),
            ("listNodes", "Needs an operator's token."),
            ("listTokens", "token with the scope <code>tokens</code>."),
        ] {
            assert!(of(id).contains(says), "{id}: {}", of(id));
        }
    }

    #[test]
    fn forms_that_a_field_tells_apart_say_so() {
        let html = rendered();
        for form in
            ["type: &quot;stdin&quot;", "type: &quot;verdict&quot;", "mode: &quot;float&quot;"]
        {
            assert!(html.contains(form), "{form}");
        }
    }

    #[test]
    fn the_host_header_cannot_inject_anything() {
        let check = |host: &str, expected: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            assert_eq!(origin(&headers), expected, "{host}");
        };
        check("cove.example:81", "http://cove.example:81");
        check("[::1]:4100", "http://[::1]:4100");
        check("x'><script>", ORIGIN_DEFAULT);
        check("", ORIGIN_DEFAULT);
        check(&"x".repeat(256), ORIGIN_DEFAULT);
        assert_eq!(origin(&HeaderMap::new()), ORIGIN_DEFAULT);
    }
}
