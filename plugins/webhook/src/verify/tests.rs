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
    let other = if proof == Proof::Body { Err(WRONG) } else { Ok(()) };
    assert_eq!(call(headers, secret, &[body, b" "].concat(), at), other, "{of}");
    assert_eq!(call(headers, secret, &body[1..], at), other, "{of}");
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
        [(at + WINDOW, Ok(())), (at.saturating_sub(WINDOW), Ok(())), (at + WINDOW + 1, late)]
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

#[test]
fn what_is_signed_here_passes_here() {
    let secret = "whsec_c2VjcmV0";
    for vector in SENDERS.iter().flat_map(|sender| sender.vectors) {
        let scheme = Verify::read(&serde_json::from_str(vector.verify).unwrap()).unwrap();
        let name = scheme.sender.name;
        let signing = Signing { secret, id: "id", now: 1000 };
        let mut call = Outgoing { body: "{}".to_owned(), ..Outgoing::default() };
        if let Err(why) = scheme.sign(&signing, &mut call) {
            assert_eq!(
                (name, why.starts_with("only Discord"), scheme.scheme.shell(secret)),
                ("discord", true, None)
            );
            continue;
        }
        let query = call.query.map(|query| format!("?{query}")).unwrap_or_default();
        let pairs: Vec<_> =
            call.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let head = head(&query, &pairs);
        assert_eq!(verify(&scheme, &head, secret, call.body.as_bytes(), 1000), Ok(()), "{name}");
        assert_eq!(verify(&scheme, &head, secret, b"{ }", 1000), Err(WRONG), "{name}");
        assert_eq!(scheme.scheme.unusable(secret), None, "{name}");
        if let Delivery::Header(id) = scheme.sender.delivery {
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
        if name != "hmac" {
            assert!(by.contains(&format!("`{}`", sender.headers[0])) || name == "standard", "{name}: {by}");
        }
        let timed = sender.vectors.iter().filter(|vector| vector.timed).count();
        match timed {
            0 => assert_eq!(time, "no", "{name}"),
            all if all == sender.vectors.len() => assert_eq!(time, "yes", "{name}"),
            _ => assert!(!["yes", "no"].contains(&time), "{name}: {time}"),
        }
        match sender.delivery {
            Delivery::Header(header) => assert_eq!(id, format!("`{header}`"), "{name}"),
            Delivery::Body(_) => assert_eq!(id, "in the body", "{name}"),
            Delivery::Unknown => assert_eq!(id, "none", "{name}"),
        }
        assert_eq!(body, format!("{} MiB", sender.body_limit >> 20), "{name}");
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
