use ostler_contract::http::header::HeaderName;

use super::*;

fn head(query: &str, pairs: &[(&str, &str)]) -> Head {
    let headers = pairs
        .iter()
        .map(|(name, value)| (HeaderName::try_from(*name).unwrap(), value.parse().unwrap()))
        .collect();
    Head { uri: format!("/plugins/webhook/a{query}").parse().unwrap(), headers }
}

fn verify(verify: &Verify, head: &Head, secret: &str, body: &[u8], now: u64) -> Result<(), Unsigned> {
    let claim = verify.scheme.claim(head).ok_or(MISSING)?;
    match verify.scheme.admit(&claim, secret, now)? {
        Proof::Body => verify.scheme.check(&claim, secret, body, now),
        Proof::Sender => Ok(()),
    }
}

/// A known call has to pass, and nothing beside it.
fn holds(sender: &Sender, vector: &Vector) {
    let Vector { of, query, headers, secret, body, proof, timed, at, .. } = *vector;
    let scheme = Verify::read(&serde_json::from_str(vector.verify).unwrap()).unwrap();
    assert_eq!(scheme.sender.name, sender.name);
    let call = |pairs: &[(&str, &str)], secret: &str, body: &[u8], now: u64| {
        verify(&scheme, &head(query, pairs), secret, body, now)
    };
    assert_eq!(call(headers, secret, body, at), Ok(()), "{of}");
    assert_eq!(call(headers, &format!("{secret}x"), body, at), Err(WRONG), "{of}");
    if vector.is_covered {
        let other = if proof == Proof::Body { Err(WRONG) } else { Ok(()) };
        assert_eq!(call(headers, secret, &[body, b" "].concat(), at), other, "{of}");
        assert_eq!(call(headers, secret, &body[1..], at), other, "{of}");
    } else {
        assert_eq!(call(headers, secret, &[body, b" "].concat(), at), Ok(()), "{of}");
    }
    for index in 0..headers.len() {
        let mut fewer = headers.to_vec();
        fewer.remove(index);
        assert_eq!(call(&fewer, secret, body, at), Err(MISSING), "{of} without {}", headers[index].0);
        let mut twice = headers.to_vec();
        twice.push(headers[index]);
        assert_eq!(call(&twice, secret, body, at), Err(MISSING), "{of} with {} twice", headers[index].0);
    }
    let late = if timed { Err(OLD) } else { Ok(()) };
    for (now, expected) in
        [(at + sender.window, Ok(())), (at.saturating_sub(WINDOW), Ok(())), (at + sender.window + 1, late)]
    {
        assert_eq!(call(headers, secret, body, now), expected, "{of} at {now}");
    }
    if timed {
        assert_eq!(call(headers, secret, body, at - WINDOW - 1), late, "{of} too early");
    }
}

#[test]
fn known_calls_of_each_sender() {
    for sender in SENDERS {
        let of_first = sender.vectors[0].headers;
        for name in sender.headers {
            assert!(of_first.iter().any(|(given, _)| given == name), "{} needs {name}", sender.name);
        }
        for vector in sender.vectors {
            holds(sender, vector);
        }
    }
}

/// Only these can sign their calls: the secret is their public key.
const SIGNS_ALONE: [&str; 2] = ["discord", "sendgrid"];

#[test]
fn what_is_signed_here_passes_here() {
    let secret = "whsec_c2VjcmV0";
    for vector in SENDERS.iter().flat_map(|sender| sender.vectors) {
        let scheme = Verify::read(&serde_json::from_str(vector.verify).unwrap()).unwrap();
        let name = scheme.sender.name;
        let signing = Signing { secret, id: "id", now: 1000 };
        let mut call = Outgoing { body: "{}".to_owned(), ..Outgoing::default() };
        if let Err(why) = scheme.sign(&signing, &mut call) {
            assert!(why.starts_with("only ") && SIGNS_ALONE.contains(&name), "{name}: {why}");
            assert_eq!(scheme.scheme.shell(secret), None, "{name}");
            continue;
        }
        let query = call.query.map(|query| format!("?{query}")).unwrap_or_default();
        let pairs: Vec<_> =
            call.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let head = head(&query, &pairs);
        assert_eq!(verify(&scheme, &head, secret, call.body.as_bytes(), 1000), Ok(()), "{name}");
        if vector.is_covered && vector.proof == Proof::Body {
            assert_eq!(verify(&scheme, &head, secret, b"{ }", 1000), Err(WRONG), "{name}");
        }
        assert_eq!(scheme.scheme.unusable(secret), None, "{name}");
        if let Some(id) = scheme.sender.delivery.header() {
            assert_eq!(head.headers[id], "id", "{name}");
        }
        assert!(scheme.scheme.shell(secret).is_some(), "{name}");
    }
}

#[test]
fn what_a_record_may_not_say() {
    for (value, why) in [
        (r#""nobody""#, "verify must be github, "),
        ("true", "verify must be github, "),
        ("{}", "verify must be github, "),
        (r#"{ "scheme": "hmac", "heder": "X" }"#, "verify hmac has the fields header, algorithm"),
        (r#""hmac""#, "verify hmac must have a header"),
        (r#""twilio""#, "verify twilio must have the url"),
        (r#"{ "scheme": "twilio", "url": "https://a.example/?a=b" }"#, "verify twilio must have the url"),
        (r#"{ "scheme": "twilio", "url": "ftp://a.example/" }"#, "verify twilio must have the url"),
        (r#"{ "scheme": "github", "header": "X" }"#, "verify github has no fields; header is not one"),
    ] {
        let said = Verify::read(&serde_json::from_str(value).unwrap()).unwrap_err();
        assert!(said.starts_with(why), "{said}");
    }
    let said = [r#""github""#, r#"{ "scheme": "github" }"#]
        .map(|value| Verify::read(&serde_json::from_str(value).unwrap()).unwrap());
    assert_eq!(said[0], said[1]);
}

#[test]
fn verifications_are_equal_if_their_fields_are() {
    let read = |text: &str| Verify::read(&serde_json::from_str(text).unwrap()).unwrap();
    let hmac = |header: &str| read(&format!(r#"{{ "scheme": "hmac", "header": "{header}" }}"#));
    assert_eq!(hmac("a"), hmac("a"));
    assert_ne!(hmac("a"), hmac("b"));
    assert_ne!(read(r#""github""#), read(r#""gitlab""#));
    assert!(format!("{:?}", read(r#""github""#)).starts_with("Verify(\"github\", Hmac "));
}

/// A header without a usable signature is malformed, and the body of such a call is not read.
#[test]
fn a_header_without_a_signature_is_malformed() {
    let hex = "0".repeat(64);
    for (name, headers) in [
        ("pagerduty", vec![("X-PagerDuty-Signature", format!("v0={hex}"))]),
        ("pagerduty", vec![("X-PagerDuty-Signature", "v1=00".to_owned())]),
        ("stripe", vec![("Stripe-Signature", "t=1000".to_owned())]),
        ("stripe", vec![("Stripe-Signature", format!("v1={hex}"))]),
        ("stripe", vec![("Stripe-Signature", format!("t=1000,t=1000,v1={hex}"))]),
        (
            "standard",
            vec![
                ("webhook-id", "id".to_owned()),
                ("webhook-timestamp", "1000".to_owned()),
                ("webhook-signature", "v2,AAAA".to_owned()),
            ],
        ),
        (
            "standard",
            vec![
                ("webhook-id", String::new()),
                ("webhook-timestamp", "1000".to_owned()),
                ("webhook-signature", "v1,AAAA".to_owned()),
            ],
        ),
        ("gitlab", vec![("X-Gitlab-Token", "whsec_c2VjcmV0".to_owned())]),
    ] {
        let scheme = Verify::read(&name.into()).unwrap();
        let pairs: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let checked = verify(&scheme, &head("", &pairs), "whsec_c2VjcmV0", b"{}", 1000);
        assert_eq!(checked, Err(MISSING), "{name}: {pairs:?}");
    }
}

#[test]
fn a_body_that_twilio_does_not_sign_is_malformed() {
    let twilio = r#"{ "scheme": "twilio", "url": "https://a.example/sms" }"#;
    let scheme = Verify::read(&serde_json::from_str(twilio).unwrap()).unwrap();
    let headers = [("X-Twilio-Signature", "AAAA"), ("content-type", "application/json")];
    assert_eq!(verify(&scheme, &head("", &headers), "secret", b"{}", 1000), Err(MISSING));
}

/// GitLab can send its token together with a signature, and the secret decides which of them is checked.
#[test]
fn a_token_of_gitlab_passes_beside_a_signature() {
    let scheme = Verify::read(&"gitlab".into()).unwrap();
    let mut call = Outgoing { body: "{}".to_owned(), ..Outgoing::default() };
    scheme.sign(&Signing { secret: "whsec_c2VjcmV0", id: "id", now: 1000 }, &mut call).unwrap();
    call.header("X-Gitlab-Token", "token");
    let pairs: Vec<_> = call.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for (secret, expected) in [("whsec_c2VjcmV0", Ok(())), ("token", Ok(())), ("other", Err(WRONG))] {
        assert_eq!(verify(&scheme, &head("", &pairs), secret, b"{}", 1000), expected, "{secret}");
    }
}

/// An empty key would be public.
#[test]
fn a_secret_of_only_a_prefix_is_the_key() {
    let standard = Verify::read(&"standard".into()).unwrap();
    assert_eq!(standard.scheme.key("whsec_"), b"whsec_");
    assert_eq!(standard.scheme.key("whsec_c2VjcmV0"), b"secret");
    assert_eq!(standard.scheme.key("not base64"), b"not base64");
}

/// Whatever is accepted works: senders show a secret with padding or without, in either alphabet.
#[test]
fn a_secret_is_the_same_key_in_each_form_of_base64() {
    let key = [251, 255, 191, 251, 255, 191, 97];
    let standard = Verify::read(&"standard".into()).unwrap().scheme;
    for secret in ["whsec_+/+/+/+/YQ==", "whsec_+/+/+/+/YQ", "whsec_-_-_-_-_YQ", "whsec_-_-_-_-_YQ=="] {
        assert_eq!(standard.unusable(secret), None, "{secret}");
        assert_eq!(standard.key(secret), key, "{secret}");
    }
    for secret in ["whsec_", "whsec_=", "whsec_not base64", "whsec_a"] {
        assert!(standard.unusable(secret).is_some(), "{secret}");
        assert!(Verify::read(&"gitlab".into()).unwrap().scheme.unusable(secret).is_some(), "{secret}");
    }
    assert_eq!([standard.unusable("plain text"), standard.unusable("c2VjcmV0")], [None; 2]);
}

#[test]
fn a_shell_sends_the_headers_of_a_sender() {
    for sender in SENDERS.iter().filter(|sender| !SIGNS_ALONE.contains(&sender.name)) {
        let scheme = Verify::read(&serde_json::from_str(sender.vectors[0].verify).unwrap()).unwrap().scheme;
        let shell = scheme.shell("secret").unwrap();
        for name in sender.headers {
            assert!(shell.headers.iter().any(|line| line.starts_with(&format!("{name}: "))), "{shell:?}");
        }
        let text = format!("{} {}", shell.before, shell.headers.join(" "));
        assert!(text.contains("$SECRET") || text.contains("${SECRET"), "{text}");
        // Each variable that a header uses is set before the call.
        for name in ["T", "H", "K"] {
            let is_used = [format!("${name}"), format!("${{{name}}}")].iter().any(|used| text.contains(used));
            assert_eq!(is_used, shell.before.contains(&format!("{name}=")), "{name}: {text}");
        }
        if !["gitlab", "telegram", "basic", "microsoft-graph"].contains(&sender.name) {
            assert!(text.contains("openssl dgst -sha"), "{text}");
        }
    }
    let gitlab = Verify::read(&"gitlab".into()).unwrap().scheme.shell("whsec_c2VjcmV0").unwrap();
    assert!(gitlab.headers.iter().any(|line| line.starts_with("webhook-signature: ")), "{gitlab:?}");
}

/// A call has to be checked against few signatures.
#[test]
fn only_the_first_signatures_are_checked() {
    let secret = "whsec_c2VjcmV0";
    for (name, header, separator, wrong) in [
        ("stripe", "Stripe-Signature", ",", format!("v1={}", "0".repeat(64))),
        ("pagerduty", "X-PagerDuty-Signature", ",", format!("v1={}", "0".repeat(64))),
        ("standard", "webhook-signature", " ", "v1,AAAA".to_owned()),
    ] {
        let scheme = Verify::read(&name.into()).unwrap();
        let mut call = Outgoing { body: "{}".to_owned(), ..Outgoing::default() };
        scheme.sign(&Signing { secret, id: "id", now: 1000 }, &mut call).unwrap();
        let with = |count: usize| {
            let mut pairs = call.headers.clone();
            let (_, value) = pairs.iter_mut().find(|(name, _)| name == header).unwrap();
            let (before, right) = match value.split_once(separator) {
                Some((time, right)) => (Some(time.to_owned()), right.to_owned()),
                None => (None, value.clone()),
            };
            let all = before.into_iter().chain(vec![wrong.clone(); count]).chain([right]);
            *value = all.collect::<Vec<_>>().join(separator);
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            verify(&scheme, &head("", &pairs), secret, b"{}", 1000)
        };
        assert_eq!((with(hmac::MOST - 1), with(hmac::MOST)), (Ok(()), Err(WRONG)), "{name}");
    }
}

#[test]
fn a_sender_asks_whether_the_endpoint_is_there() {
    let greeting = |name: &str, headers: &[(&str, &str)], body: &str| {
        Verify::read(&name.into()).unwrap().scheme.greeting(&head("", headers), body.as_bytes())
    };
    let json = |value: Value| Some(Greeting::Json(value));
    for (name, headers, body, expected) in [
        ("github", &[("x-github-event", "ping")][..], "{}", Some(Greeting::Accepted)),
        ("github", &[("x-github-event", "push")], "{}", None),
        ("github", &[], "{}", None),
        ("bitbucket", &[("x-event-key", "diagnostics:ping")], "{}", Some(Greeting::Accepted)),
        ("bitbucket", &[("x-event-key", "repo:push")], "{}", None),
        ("pagerduty", &[], r#"{"event":{"event_type":"pagey.ping"}}"#, Some(Greeting::Accepted)),
        ("pagerduty", &[], r#"{"event":{"event_type":"incident.triggered"}}"#, None),
        ("discord", &[], r#"{"type":0}"#, Some(Greeting::Empty)),
        ("discord", &[], r#"{"type":1}"#, json(ostler_contract::json!({ "type": 1 }))),
        ("discord", &[], r#"{"type":1,"event":{}}"#, None),
        ("discord", &[], r#"{"type":2}"#, None),
        (
            "slack",
            &[],
            r#"{"type":"url_verification","challenge":"c"}"#,
            json(ostler_contract::json!({ "challenge": "c" })),
        ),
        ("slack", &[], r#"{"type":"event_callback","challenge":"c"}"#, None),
        ("stripe", &[], r#"{"type":"ping"}"#, None),
        ("intercom", &[], r#"{"topic":"ping"}"#, Some(Greeting::Accepted)),
        ("intercom", &[], r#"{"topic":"conversation.user.created"}"#, None),
        ("circleci", &[], r#"{"type":"ping"}"#, Some(Greeting::Accepted)),
        ("circleci", &[], r#"{"type":"workflow-completed"}"#, None),
        ("buildkite", &[("x-buildkite-event", "ping")], "{}", Some(Greeting::Accepted)),
        ("buildkite", &[("x-buildkite-event", "build.finished")], "{}", None),
        (
            "twitch",
            &[("twitch-eventsub-message-type", "webhook_callback_verification")],
            r#"{"challenge":"c"}"#,
            Some(Greeting::Text("c".to_owned())),
        ),
        ("twitch", &[("twitch-eventsub-message-type", "notification")], r#"{"challenge":"c"}"#, None),
        (
            "zoom",
            &[],
            r#"{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#,
            Some(Greeting::Keyed(Keyed::Zoom, "qgg8vlvZRS6UYooatFL8Aw".to_owned())),
        ),
        // The answer would be the signature of another body.
        ("zoom", &[], r#"{"event":"endpoint.url_validation","payload":{"plainToken":"v0:1:{}"}}"#, None),
        ("zoom", &[], r#"{"event":"meeting.started","payload":{}}"#, None),
    ] {
        assert_eq!(greeting(name, headers, body), expected, "{name} {headers:?} {body}");
    }
}

/// Of requests of which nothing is verified, few are answered, and none with what signs a body.
#[test]
fn a_sender_checks_an_address_before_it_delivers() {
    let handshake = |name: &str, method: Method, query: &str| {
        let sender = SENDERS.iter().find(|sender| sender.name == name).unwrap();
        (sender.handshake)(&method, &head(query, &[]))
    };
    let text = |text: &str| Some(Greeting::Text(text.to_owned()));
    let meta = "?hub.mode=subscribe&hub.verify_token=t&hub.challenge=1158201444";
    for (name, method, query, expected) in [
        ("meta", Method::GET, meta, text("1158201444")),
        ("meta", Method::POST, meta, None),
        ("meta", Method::GET, "?hub.challenge=%3Cscript%3E", None),
        ("meta", Method::GET, "?hub.challenge=", None),
        ("meta", Method::GET, "", None),
        ("dropbox", Method::GET, "?challenge=abc", text("abc")),
        ("dropbox", Method::GET, meta, None),
        ("x", Method::GET, "?crc_token=abc", Some(Greeting::Keyed(Keyed::X, "abc".to_owned()))),
        ("x", Method::GET, "?crc_token=%7B%22for_user_id%22%3A%221%22%7D", None),
        ("trello", Method::HEAD, "", text("")),
        ("intercom", Method::HEAD, "", text("")),
        ("trello", Method::GET, "", None),
        ("microsoft-graph", Method::POST, "?validationToken=Validation%3A+a%20b", text("Validation: a b")),
        ("microsoft-graph", Method::POST, "?validationToken=%3Cscript%3E", None),
        ("microsoft-graph", Method::GET, "?validationToken=a", None),
    ] {
        assert_eq!(handshake(name, method.clone(), query), expected, "{name} {method} {query}");
    }
    let greeting = ["meta", "dropbox", "x", "trello", "intercom", "microsoft-graph"];
    for sender in SENDERS.iter().filter(|sender| !greeting.contains(&sender.name)) {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            assert_eq!((sender.handshake)(&method, &head(meta, &[])), None, "{}", sender.name);
        }
    }
    // Made by Python.
    assert_eq!(
        Keyed::Zoom.answer("it is a secret", "qgg8vlvZRS6UYooatFL8Aw"),
        ostler_contract::json!({ "plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": "be837d5ac508a2b760df69dc326c1d28b13ea7424d69cd5018c341abe864cee0" })
    );
    assert_eq!(
        Keyed::X.answer("it is a secret", "abc"),
        ostler_contract::json!({ "response_token": "sha256=GJZiW5UgcXiUobL8EFZGvs14xQJHOLwBRK3zty83TyI=" })
    );
}

#[test]
fn the_id_of_a_delivery_is_read_from_the_body() {
    let ids: Vec<_> = SENDERS
        .iter()
        .filter_map(|sender| match sender.delivery {
            Delivery::Body(read) => {
                let body = br#"{"id":"1","event_id":"2","event":{"id":"3"},"action":{"id":"4"},"update_id":5,
                    "signature":{"token":"6"}}"#;
                Some((sender.name, read(body), read(b"{}"), read(b"x")))
            }
            _ => None,
        })
        .collect();
    let id = |name, id: &str| (name, Some(id.to_owned()), None, None);
    let expected = vec![
        id("stripe", "1"),
        id("slack", "2"),
        id("pagerduty", "3"),
        id("discord", "1"),
        id("intercom", "1"),
        id("typeform", "2"),
        id("vercel", "1"),
        id("circleci", "1"),
        id("paddle", "2"),
        id("trello", "4"),
        id("square", "2"),
        id("telegram", "5"),
        id("mailgun", "6"),
    ];
    // The one of PagerDuty is in an object that a body has to have.
    assert_eq!(ids, expected);
    for sender in SENDERS {
        let Delivery::Body(read) = sender.delivery else { continue };
        let of = |escape: &str| {
            let id = format!("\"{escape}\"");
            let body = format!(
                r#"{{"id":{id},"event_id":{id},"event":{{"id":{id}}},"action":{{"id":{id}}},"signature":{{"token":{id}}},"n":1E400}}"#
            );
            read(body.as_bytes()).unwrap()
        };
        // Its id is a number.
        if sender.name == "telegram" {
            continue;
        }
        assert_ne!(of("\\ud800"), of("\\ud801"), "{}: two deliveries", sender.name);
    }
}

#[test]
fn a_form_has_a_maximum_number_of_fields() {
    let twilio = r#"{ "scheme": "twilio", "url": "https://a.example/sms" }"#;
    let scheme = Verify::read(&serde_json::from_str(twilio).unwrap()).unwrap();
    let headers = [("X-Twilio-Signature", "AAAA"), ("content-type", "application/x-www-form-urlencoded")];
    let checked = |body: String| verify(&scheme, &head("", &headers), "secret", body.as_bytes(), 1000);
    assert_eq!(checked("a&".repeat(999)), Err(WRONG));
    assert_eq!(checked("a&".repeat(1000)), Err(MISSING));
    assert_eq!(checked("a".repeat(2000)), Err(WRONG));
}

#[test]
fn a_public_key_is_a_secret_of_one_form() {
    for sender in SENDERS {
        let scheme = Verify::read(&serde_json::from_str(sender.vectors[0].verify).unwrap()).unwrap().scheme;
        assert_eq!(scheme.unusable(sender.vectors[0].secret), None, "{}", sender.name);
        for secret in ["0".repeat(63), "0".repeat(66), "x".repeat(64)] {
            assert_eq!(
                scheme.unusable(&secret).is_some(),
                SIGNS_ALONE.contains(&sender.name),
                "{} {secret}",
                sender.name
            );
        }
    }
}

/// Notifications of Microsoft Graph come in lists, each with the state that was chosen for its subscription.
#[test]
fn each_notification_has_the_state() {
    let scheme = Verify::read(&"microsoft-graph".into()).unwrap();
    for (body, expected) in [
        (r#"{"value":[{"clientState":"s"},{"clientState":"s"}]}"#, Ok(())),
        (r#"{"value":[{"clientState":"s"},{"clientState":"t"}]}"#, Err(MISSING)),
        (r#"{"value":[{"clientState":"s"},{}]}"#, Err(MISSING)),
        (r#"{"value":[{},{"clientState":"s"}]}"#, Err(MISSING)),
        (r#"{"value":[{"clientState":"t"}]}"#, Err(WRONG)),
        (r#"{"value":[]}"#, Err(MISSING)),
        (r#"{"value":{}}"#, Err(MISSING)),
    ] {
        assert_eq!(verify(&scheme, &head("", &[]), "s", body.as_bytes(), 1000), expected, "{body}");
    }
}

/// The table of senders says what they declare.
#[test]
fn each_sender_is_documented() {
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webhooks.md")).unwrap();
    for sender in SENDERS {
        let name = sender.name;
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{name}` | ")));
        let columns: Vec<&str> =
            row.unwrap_or_else(|| panic!("no row of {name}")).split('|').map(str::trim).collect();
        let [_, _, by, time, id, body, _] = columns[..] else { panic!("{name}: {columns:?}") };
        if let Some(header) = sender.headers.first().filter(|_| name != "hmac") {
            assert!(by.contains(&format!("`{header}`")) || by.contains("-signature`"), "{name}: {by}");
        }
        let timed = sender.vectors.iter().filter(|vector| vector.timed).count();
        match timed {
            0 => assert_eq!(time, "no", "{name}"),
            all if all == sender.vectors.len() => assert_eq!(time, "yes", "{name}"),
            _ => assert!(!["yes", "no"].contains(&time), "{name}: {time}"),
        }
        match sender.delivery {
            Delivery::Header(header) => assert_eq!(id, format!("`{header}`"), "{name}"),
            Delivery::FirstOf(headers) => {
                let all: Vec<String> = headers.iter().map(|header| format!("`{header}`")).collect();
                assert_eq!(id, all.join(" or "), "{name}");
            }
            Delivery::Body(_) => assert_eq!(id, "in the body", "{name}"),
            Delivery::Unknown => assert_eq!(id, "none", "{name}"),
        }
        assert_eq!(body, format!("{} MiB", sender.body_limit >> 20), "{name}");
    }
}

/// The row of the docs about what a sender does with a call that failed.
fn row_of_retries(sender: &Sender) -> String {
    let event = match sender.event {
        Some(EventName::Header(header)) => format!("`{header}`"),
        Some(EventName::Field(field)) => format!("`{{{{event.{field}}}}}`"),
        None => "not stated".to_owned(),
    };
    let Retries { failures, .. } = sender.retries;
    let failures = if failures.is_empty() { "not stated" } else { failures };
    format!(
        "| `{}` | {event} | {} | {} | {} | {failures} |",
        sender.name,
        sender.success.status(),
        sender.retries.wait(),
        sender.retries.repeats()
    )
}

#[test]
fn what_each_sender_does_with_a_failed_call_is_documented() {
    let docs =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webhooks.md")).unwrap();
    let rows: Vec<String> = SENDERS.iter().map(|sender| row_of_retries(sender)).collect();
    assert!(docs.contains(&rows.join("\n")), "the rows of docs/webhooks.md are:\n{}", rows.join("\n"));
}

/// The senders that repeat a call with the time of the first one.
#[test]
fn a_call_that_is_signed_once_passes_as_long_as_it_is_repeated() {
    for name in ["linear", "mailgun"] {
        let sender = SENDERS.iter().find(|sender| sender.name == name).unwrap();
        assert!(sender.window >= sender.retries.span(), "{name}");
    }
}

proptest::proptest! {
    /// Whatever the headers say, only the secret's own signature passes.
    #[test]
    fn no_header_passes_by_itself(
        value in "(sha256=|v0=|v1,|v1=|t=1,v1=)?([ -~]{0,80}|[0-9a-f]{64}|[0-9A-Za-z+/]{43}=)",
        time in "[0-9]{0,12}",
        body in "(\\[\\]|\\{\\}|[ -~]{0,20})",
    ) {
        for sender in SENDERS {
            let scheme = Verify::read(&serde_json::from_str(sender.vectors[0].verify).unwrap()).unwrap();
            let pairs: Vec<_> = sender.vectors[0].headers.iter().map(|(name, _)| {
                let timed = name.to_ascii_lowercase().ends_with("timestamp");
                (*name, if timed { time.as_str() } else { value.as_str() })
            }).collect();
            let now = time.parse().unwrap_or_default();
            let checked = verify(&scheme, &head("", &pairs), "secret", body.as_bytes(), now);
            proptest::prop_assert!(checked.is_err(), "{}", sender.name);
        }
    }
}
