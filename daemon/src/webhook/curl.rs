//! A line a person can paste into a shell to call an endpoint.

use ostler_plugin_webhook::tools::Facts;

/// The line. A secret that is not shown is `$SECRET`, for the caller to set.
pub(super) fn line(facts: &Facts, url: &str, secret: Option<&str>) -> String {
    let body = body(facts);
    let json = "-H 'Content-Type: application/json'";
    let Some(verify) = facts.verify() else {
        let bearer =
            quoted(&format!("Authorization: Bearer {}", secret.unwrap_or("$SECRET")), secret.is_some());
        return format!("curl -X POST {url} -H {bearer} {json} -d '{body}'");
    };
    let key = secret.map_or_else(String::new, |secret| format!("SECRET='{secret}'; "));
    let hex = |over: &str| {
        format!("$(printf %s \"{over}\" | openssl dgst -sha256 -hmac \"$SECRET\" -r | cut -d' ' -f1)")
    };
    let (before, headers) = match verify {
        "stripe" => ("T=$(date +%s); ", format!("-H \"Stripe-Signature: t=$T,v1={}\"", hex("$T.$B"))),
        "slack" => (
            "T=$(date +%s); ",
            format!(
                "-H \"X-Slack-Request-Timestamp: $T\" -H \"X-Slack-Signature: v0={}\"",
                hex("v0:$T:$B")
            ),
        ),
        "standard" => (
            "T=$(date +%s); K=$(printf %s \"${SECRET#whsec_}\" | base64 -d | od -An -vtx1 | tr -d ' \\n'); ",
            "-H 'webhook-id: test' -H \"webhook-timestamp: $T\" -H \"webhook-signature: v1,$(printf %s \"test.$T.$B\" \
             | openssl dgst -sha256 -mac HMAC -macopt hexkey:$K -binary | base64)\""
                .to_owned(),
        ),
        _ => ("", format!("-H \"X-Hub-Signature-256: sha256={}\"", hex("$B"))),
    };
    format!("{key}B='{body}'; {before}curl -X POST {url} {headers} {json} -d \"$B\"")
}

/// A body the endpoint takes.
pub(super) fn body(facts: &Facts) -> String {
    match (&facts.bot, &facts.callback_prefix, facts.reply) {
        (None, _, _) => r#"{"hello":"world"}"#.to_owned(),
        (Some(_), Some(prefix), Some("callback")) => {
            format!(r#"{{"thread":"test","text":"Hello.","callback":"{prefix}"}}"#)
        }
        _ => r#"{"thread":"test","text":"Hello."}"#.to_owned(),
    }
}

/// Quoted for a shell; with the variables in it filled, or not.
fn quoted(text: &str, whole: bool) -> String {
    if whole { format!("'{text}'") } else { format!("\"{text}\"") }
}
