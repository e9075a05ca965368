//! The pages of a link: plain HTML without scripts and without external resources, for phones and large screens.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_contract::http::{Body, HeaderValue, Response, StatusCode, header};
use ostler_telemetry::printable::is_hidden;
use ring::digest::{SHA256, digest};

use super::elsewhere::Elsewhere;
use super::request::{
    ANSWER, Approval, Asks, Choice, Kind, Question, Questions, Request, SHOWN, field, free_field,
    option_answer,
};

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8886;--accent:#1a5fb4}\
@media(prefers-color-scheme:dark){:root{--accent:#99c1f1}}\
*{box-sizing:border-box}\
body{font:1rem/1.5 system-ui,sans-serif;margin:0 auto;max-width:44rem;padding:1rem}\
h1{font-size:1.4rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}\
p{margin:.5rem 0;overflow-wrap:anywhere}\
dl{display:grid;gap:.25rem 1rem;grid-template-columns:max-content 1fr;margin:1rem 0}\
dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\
pre{border:1px solid var(--line);border-radius:.4rem;margin:.5rem 0;max-height:60vh;overflow:auto;padding:.75rem;\
white-space:pre-wrap;overflow-wrap:anywhere}\
fieldset{border:1px solid var(--line);border-radius:.4rem;margin:1rem 0;min-width:0;padding:.75rem}\
legend{font-weight:600}\
label{display:block;margin:.25rem 0}\
input[type=text],input[type=number],textarea{display:block;font:inherit;max-width:100%;padding:.5rem;width:100%}\
.answers{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.25rem 0}\
button{border:2px solid var(--accent);border-radius:.4rem;background:none;color:inherit;cursor:pointer;font:inherit;\
min-height:2.75rem;padding:.5rem 1.25rem}\
button.yes{font-weight:600}\
button:focus-visible,input:focus-visible,textarea:focus-visible{outline:3px solid var(--accent);outline-offset:2px}\
.note{border-left:4px solid var(--accent);padding-left:.75rem}\
small{display:block}";

/// The content security policy: the browser may only show the page with its style and submit its form to the same
/// origin.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

/// The details on the page of a request.
#[derive(Debug, Clone)]
pub struct RequestDetails {
    /// The session's title.
    pub title: String,
    /// The session's URI.
    pub session: String,
    /// The URL that opens the session.
    pub url: Option<String>,
    /// The user that the link answers as.
    pub user: Option<String>,
    /// When the link expires.
    pub expires: String,
    /// The error in the submitted answer.
    pub problem: Option<String>,
}

/// Returns the page of a request, with the form that answers it.
pub fn request(status: StatusCode, request: &Request, around: &RequestDetails) -> Response {
    let mut body = String::new();
    let heading = match &request.asks {
        Asks::Approval(approval) => {
            approval.title.clone().unwrap_or_else(|| format!("Approve {}?", approval.tool))
        }
        Asks::Questions(_) => "A question".to_owned(),
        Asks::Elsewhere(elsewhere) => elsewhere.heading().to_owned(),
    };
    let _ = write!(body, "<h1>{}</h1>", text(&heading));
    if let Some(problem) = &around.problem {
        let _ = write!(body, "<p class=note role=alert>{}</p>", text(problem));
    }
    body.push_str("<dl>");
    let mut fact = |name: &str, value: &str| {
        let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", text(value));
    };
    fact("Session", &around.title);
    match &request.asks {
        Asks::Approval(Approval { tool, .. }) | Asks::Elsewhere(Elsewhere { tool, .. }) => fact("Tool", tool),
        Asks::Questions(_) => {}
    }
    let answers = !matches!(request.asks, Asks::Elsewhere(_));
    if let Some(user) = around.user.as_ref().filter(|_| answers) {
        fact("Answers as", user);
    }
    fact("Expires", &around.expires);
    body.push_str("</dl>");
    if let Some(url) = &around.url {
        let _ = write!(body, "<p><a href=\"{}\">Open the session</a></p>", text(url));
    }
    if let Asks::Elsewhere(elsewhere) = &request.asks {
        let _ = write!(
            body,
            "<p>{}</p><p>{}</p><p><small>{}</small></p>",
            text(&elsewhere.message),
            text(&elsewhere.advice()),
            text(&around.session)
        );
        return page(status, &heading, &body);
    }
    let _ = write!(
        body,
        "<form method=post><input type=hidden name={SHOWN} value=\"{}\">",
        text(&request.digest)
    );
    match &request.asks {
        Asks::Approval(approval) => approve(&mut body, approval),
        Asks::Questions(questions) => ask(&mut body, questions),
        Asks::Elsewhere(_) => {}
    }
    let _ = write!(
        body,
        "</form><p><small>{}</small><small>This link answers once.</small></p>",
        text(&around.session)
    );
    page(status, &heading, &body)
}

fn approve(body: &mut String, approval: &Approval) {
    let _ = write!(body, "<p>{}</p>", text(&approval.message));
    if let Some(intention) = &approval.intention {
        let _ = write!(body, "<p>{}</p>", text(intention));
    }
    if !approval.files.is_empty() {
        body.push_str("<h2>Files it changes</h2><ul>");
        for file in &approval.files {
            let _ = write!(body, "<li>{}</li>", text(file));
        }
        body.push_str("</ul>");
    }
    if let Some(input) = &approval.input {
        // HTML drops a first line break.
        let _ = write!(body, "<h2>Input</h2><pre tabindex=0>\n{}</pre>", text(input));
    }
    body.push_str("<div class=answers>");
    match approval.options.is_empty() {
        true => {
            button(body, "approve", "Approve", true);
            button(body, "deny", "Deny", false);
        }
        false => {
            for option in &approval.options {
                button(body, &option_answer(&option.id), &option.label, option.favoured);
            }
            if approval.options.iter().all(|option| option.favoured) {
                button(body, "deny", "Deny", false);
            }
        }
    }
    body.push_str("</div>");
}

fn ask(body: &mut String, questions: &Questions) {
    if let Some(message) = &questions.message {
        let _ = write!(body, "<p>{}</p>", text(message));
    }
    if let Some(url) = &questions.url {
        // Shown as text instead of a link, so that a reader sees the address before opening it.
        let _ = write!(body, "<p>Open this address first: <code>{}</code></p>", text(url));
    }
    for (at, question) in questions.questions.iter().enumerate() {
        let id = field(at);
        let title = question.title.as_ref().unwrap_or(&question.message);
        let needed = if question.required { " (required)" } else { "" };
        let _ = write!(body, "<fieldset><legend>{}{needed}</legend>", text(title));
        if question.title.is_some() {
            let _ = write!(body, "<p>{}</p>", text(&question.message));
        }
        control(body, &id, &free_field(at), question, title);
        body.push_str("</fieldset>");
    }
    body.push_str("<div class=answers>");
    button(body, "accept", "Send answer", true);
    button_without_checks(body, "decline", "Decline");
    body.push_str("</div>");
}

fn control(body: &mut String, id: &str, free_id: &str, question: &Question, title: &str) {
    let label = text(title);
    let required = if question.required { " required" } else { "" };
    match &question.kind {
        Kind::Text { default, length: (least, most) } => {
            let limits = [limit("minlength", least), limit("maxlength", most)].concat();
            let default = text(default.as_deref().unwrap_or_default());
            let _ = write!(
                body,
                "<textarea name={id} rows=3 aria-label=\"{label}\"{limits}{required}>\n{default}</textarea>"
            );
        }
        Kind::Number { whole, default, range: (least, most) } => {
            let step = if *whole { "1" } else { "any" };
            let limits = [limit("min", least), limit("max", most), limit("value", default)].concat();
            let _ = write!(
                body,
                "<input type=number name={id} step={step} aria-label=\"{label}\"{limits}{required}>"
            );
        }
        Kind::Boolean { default } => {
            for (value, shown, chosen) in
                [("yes", "Yes", *default == Some(true)), ("no", "No", *default == Some(false))]
            {
                choice(body, "radio", (id, value), shown, None, (chosen, question.required));
            }
        }
        Kind::One { choices, free } => {
            for one in choices {
                choice_of(body, "radio", id, one, question.required && !free);
            }
            if *free {
                free_text(body, free_id, "Or enter something else");
            }
        }
        Kind::Many { choices, free, .. } => {
            for one in choices {
                choice_of(body, "checkbox", id, one, false);
            }
            if *free {
                free_text(body, free_id, "Something else");
            }
        }
    }
}

fn limit<T: std::fmt::Display>(name: &str, value: &Option<T>) -> String {
    value.as_ref().map(|value| format!(" {name}=\"{value}\"")).unwrap_or_default()
}

fn choice_of(body: &mut String, kind: &str, id: &str, choice: &Choice, required: bool) {
    let (label, description) = (&choice.label, choice.description.as_deref());
    self::choice(body, kind, (id, &choice.id), label, description, (choice.favoured, required));
}

fn choice(
    body: &mut String,
    kind: &str,
    (id, value): (&str, &str),
    label: &str,
    description: Option<&str>,
    (chosen, required): (bool, bool),
) {
    let chosen = if chosen { " checked" } else { "" };
    let required = if required { " required" } else { "" };
    let _ = write!(
        body,
        "<label><input type={kind} name={id} value=\"{}\"{chosen}{required}> {}",
        text(value),
        text(label)
    );
    if let Some(description) = description {
        let _ = write!(body, "<small>{}</small>", text(description));
    }
    body.push_str("</label>");
}

fn free_text(body: &mut String, id: &str, label: &str) {
    let _ = write!(body, "<label>{label}<input type=text name={id}></label>");
}

fn button(body: &mut String, answer: &str, label: &str, yes: bool) {
    let class = if yes { " class=yes" } else { "" };
    let _ = write!(body, "<button name={ANSWER} value=\"{}\"{class}>{}</button>", text(answer), text(label));
}

fn button_without_checks(body: &mut String, answer: &str, label: &str) {
    let _ = write!(body, "<button name={ANSWER} value={answer} formnovalidate>{label}</button>");
}

/// Returns a page with a heading and a message.
pub fn says(status: StatusCode, heading: &str, message: &str) -> Response {
    page(status, heading, &format!("<h1>{}</h1><p>{}</p>", text(heading), text(message)))
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta name=robots content=noindex><title>{} - ostler</title><style>{STYLE}</style></head>\
         <body><main>{body}</main></body></html>",
        text(title)
    );
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: header::HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::CACHE_CONTROL, "no-store");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::HeaderName::from_static("x-robots-tag"), "noindex, nofollow");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

/// Escapes text for HTML, including attributes in double quotes.
fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            // Otherwise the page could show something else than what is run.
            hidden if is_hidden(hidden) => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(hidden));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_session_is_markup_or_hides_what_it_is() {
        assert_eq!(text("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
        assert_eq!(text("a\u{202e}b\u{7}\n"), "a\\u{202e}b\\u{7}\n");
    }

    #[test]
    fn a_page_runs_nothing_and_is_stored_nowhere() {
        let response = says(StatusCode::OK, "A", "b");
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("script"), "{policy}");
        assert_eq!((header("cache-control"), header("referrer-policy")), ("no-store", "no-referrer"));
    }
}
