//! A command line that calls an endpoint, for pasting into a shell.

use ostler_plugin_webhook::tools::{EndpointFacts, Shell};

/// Returns the line for a secret. A hidden one is `$SECRET`, which the user has to set. `None` if only the sender can
/// call.
pub(super) fn line(facts: &EndpointFacts, url: &str, value: &str, shown: bool) -> Option<String> {
    let secret = shown.then_some(value);
    let body = body(facts);
    let event = facts.event("test");
    let event: String = event.iter().map(|(name, value)| format!("-H '{name}: {value}' ")).collect();
    let json = format!("{event}-H 'Content-Type: application/json'");
    if facts.verify().is_none() {
        let bearer =
            quoted(&format!("Authorization: Bearer {}", secret.unwrap_or("$SECRET")), secret.is_some());
        return Some(format!("curl -X POST {url} -H {bearer} {json} -d '{body}'"));
    }
    let Shell { before, query, headers } = facts.shell(value)?;
    let key = secret.map_or_else(String::new, |secret| format!("SECRET='{secret}'; "));
    let headers: String = headers.iter().map(|header| format!("-H \"{header}\" ")).collect();
    let url = query.map_or_else(|| url.to_owned(), |query| format!("\"{url}?{query}\""));
    Some(format!("{key}B='{body}'; {before}curl -X POST {url} {headers}{json} -d \"$B\""))
}

/// Returns a valid body for the endpoint.
pub(super) fn body(facts: &EndpointFacts) -> String {
    match (&facts.bot, &facts.callback_prefix, facts.reply) {
        (None, _, _) => r#"{"hello":"world"}"#.to_owned(),
        (Some(_), Some(prefix), Some("callback")) => {
            format!(r#"{{"thread":"test","text":"Hello.","callback":"{prefix}"}}"#)
        }
        _ => r#"{"thread":"test","text":"Hello."}"#.to_owned(),
    }
}

/// Quotes text for a shell, with or without expansion of variables.
fn quoted(text: &str, whole: bool) -> String {
    if whole { format!("'{text}'") } else { format!("\"{text}\"") }
}
