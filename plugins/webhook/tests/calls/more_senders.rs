//! Senders besides those of `senders.rs`, each with a call as it sends it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{World, automation, endpoint, folder, request, write};
use ostler_contract::http::Body;
use ostler_contract::{Value, json};
use ostler_plugin_webhook::tools::{EndpointFacts, SenderFacts, senders};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};

fn signed(secret: &str, body: &[u8]) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A host with the endpoint `in` and its automation.
async fn world(secret: &str, fields: &str) -> World {
    let dir = folder();
    write(dir.path(), "vault.json", &json!({ "host:sender": secret }).to_string());
    endpoint(dir.path(), "in", &format!("automation: true\nsecret: host:sender\n{fields}"));
    automation(dir.path(), "in");
    World::start(&dir).await
}

fn accepted() -> (u16, Value) {
    (202, json!({ "endpoint": "in" }))
}

fn refused(why: &str) -> (u16, Value) {
    (401, json!({ "message": why }))
}

const MISSING: &str = "The sender's signature is missing or malformed";
const OLD: &str = "The sender's signature has expired";
const WRONG: &str = "The sender's signature does not match the endpoint's secret";

/// What the newest run was started with.
async fn event(world: &World) -> Value {
    let state = world.chat("ahp-automations://").await;
    state["entries"][0]["runs"][0]["origin"]["event"].clone()
}

#[tokio::test]
async fn gitlab_shows_a_token() {
    let world = world("a secret token", "verify: gitlab\ndedupe: true").await;
    let wrong = request("in", Body::stream(futures::stream::pending()), &[("x-gitlab-token", "another")]);
    assert_eq!(
        crate::support::read(world.send(wrong).await).await,
        refused(WRONG),
        "nothing of the body is read"
    );
    let call = async |token: &str, key: &str| {
        let headers = [("x-gitlab-token", token), ("idempotency-key", key), ("x-gitlab-event", "Push Hook")];
        world.post_with("in", r#"{"object_kind":"push","ref":"refs/heads/main"}"#, &headers).await
    };
    assert_eq!(call("a secret token", "1").await, accepted());
    assert_eq!(call("a secret token", "1").await, accepted());
    assert_eq!(world.runs("in").await, 1, "the delivery sent again fires nothing");
    assert_eq!(event(&world).await["ref"], "refs/heads/main");
    assert_eq!(call("a secret token", "2").await, accepted());
    assert_eq!(world.runs("in").await, 2);
    assert_eq!(call("a secret toke", "3").await, refused(WRONG));
    let bearer = world.post_with("in", "{}", &[("authorization", "Bearer a secret token")]).await;
    assert_eq!(bearer, refused(MISSING));
}

#[tokio::test]
async fn a_signing_token_of_gitlab_is_not_shown() {
    let secret = "whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3Q=";
    let world = world(secret, "verify: gitlab").await;
    assert_eq!(world.post_with("in", "{}", &[("x-gitlab-token", secret)]).await, refused(MISSING));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"testtesttesttesttesttesttesttest");
    let call = async |at: u64| {
        let time = at.to_string();
        let made = hmac::sign(&key, format!("a-b-c.{time}.{{}}").as_bytes());
        let signature =
            format!("v1,{}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, made));
        let headers = [
            ("webhook-id", "a-b-c"),
            ("webhook-timestamp", time.as_str()),
            ("webhook-signature", &signature),
            ("x-gitlab-token", "another secret"),
        ];
        world.post_with("in", "{}", &headers).await
    };
    assert_eq!(call(now()).await, accepted());
    assert_eq!(call(now() - 400).await, refused(OLD));
    assert_eq!(world.runs("in").await, 1);
}

#[tokio::test]
async fn bitbucket() {
    let world = world("It's a Secret to Everybody", "verify: bitbucket\ndedupe: true").await;
    let call = async |body: &'static str, more: &[(&str, &str)]| {
        let signature = format!("sha256={}", signed("It's a Secret to Everybody", body.as_bytes()));
        world.post_with("in", body, &[&[("x-hub-signature", signature.as_str())], more].concat()).await
    };
    assert_eq!(call("Hello World!", &[]).await.0, 400, "verified, and not JSON");
    assert_eq!(call(r#"{"test":true}"#, &[("x-event-key", "diagnostics:ping")]).await, accepted());
    assert_eq!(world.runs("in").await, 0);
    for _ in 0..2 {
        let more = [("x-event-key", "repo:push"), ("x-request-uuid", "5c1f1f6e")];
        assert_eq!(call(r#"{"push":{"changes":[]}}"#, &more).await, accepted());
    }
    assert_eq!(world.runs("in").await, 1);
    let of_github = format!("sha256={}", signed("It's a Secret to Everybody", b"{}"));
    let headers = [("x-hub-signature-256", of_github.as_str())];
    assert_eq!(world.post_with("in", "{}", &headers).await, refused(MISSING));
}

#[tokio::test]
async fn linear_signs_its_time_in_the_body() {
    let world = world("SECRET", "verify: linear\ndedupe: true").await;
    let recorded = include_str!("../senders/linear-comment.json");
    let call = async |body: String| {
        let signature = signed("SECRET", body.as_bytes());
        world.post_with("in", body, &[("linear-signature", &signature), ("linear-delivery", "1")]).await
    };
    assert_eq!(call(recorded.to_owned()).await, refused(OLD));
    assert_eq!(call(r#"{"action":"create"}"#.to_owned()).await, refused(MISSING), "no time");
    assert_eq!(call(r#"{"webhookTimestamp":"now"}"#.to_owned()).await, refused(MISSING));
    let fresh = recorded.replace("1677611643000", &(now() * 1000).to_string());
    let stale = [("linear-signature", "8790fcbbea809950be9198408593c2a13f7591bba6c61adb589f709b5e1b186a")];
    assert_eq!(world.post_with("in", fresh.clone(), &stale).await, refused(WRONG), "the time is signed");
    assert_eq!(call(fresh.clone()).await, (200, json!({ "endpoint": "in" })));
    assert_eq!(call(fresh).await, (200, json!({ "endpoint": "in" })));
    assert_eq!(world.runs("in").await, 1);
    assert_eq!(event(&world).await["data"]["userId"], "aacdca22-6266-4c0a-ab3c-8fa70a26765c");
}

#[tokio::test]
async fn sentry_and_shopify() {
    let sentry = world("it is a client secret", "verify: sentry\ndedupe: true").await;
    let signature = "66486a5a94a9803b29ef6f05d0b083a6c862542db17616e205c6a1e34d216b67";
    let body = include_str!("../senders/sentry-issue.json");
    for _ in 0..2 {
        let headers =
            [("sentry-hook-signature", signature), ("request-id", "1"), ("sentry-hook-timestamp", "0")];
        assert_eq!(sentry.post_with("in", body, &headers).await, accepted());
    }
    assert_eq!(sentry.runs("in").await, 1);
    assert_eq!(event(&sentry).await["data"]["issue"]["shortId"], "APP-1");

    let shopify = world("hush", "verify: shopify\ndedupe: true").await;
    let body = include_str!("../senders/shopify-order.json");
    let signature = "Iz7g3/kJMjUM2/Dk2zlrcLoNaLrTQc8ORuGnsMyX038=";
    for id in ["1", "1", "2"] {
        let headers = [("x-shopify-hmac-sha256", signature), ("x-shopify-webhook-id", id)];
        assert_eq!(shopify.post_with("in", body, &headers).await, accepted());
    }
    assert_eq!(shopify.runs("in").await, 2);
    let other = shopify.post_with("in", "{}", &[("x-shopify-hmac-sha256", signature)]).await;
    assert_eq!(other, refused(WRONG));
}

#[tokio::test]
async fn pagerduty() {
    let secret = "lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK";
    let world = world(secret, "verify: pagerduty\ndedupe: true").await;
    let ping = r#"{"event":{"id":"01CH754SM17TWPE2V2H4VPBRO7","event_type":"pagey.ping","data":{"message":"Hello"}}}"#;
    let signature = format!("v1={}", signed(secret, ping.as_bytes()));
    assert_eq!(world.post_with("in", ping, &[("x-pagerduty-signature", &signature)]).await, accepted());
    assert_eq!(world.runs("in").await, 0, "a test event fires nothing");
    let body = include_str!("../senders/pagerduty-incident.json");
    let good = "v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd";
    let rolled = format!("v1={},{good}", "0".repeat(64));
    for signature in [good, &rolled] {
        assert_eq!(world.post_with("in", body, &[("x-pagerduty-signature", signature)]).await, accepted());
    }
    assert_eq!(world.runs("in").await, 1, "the id of an event is in the body");
    assert_eq!(event(&world).await["event"]["data"]["title"], "A little bump in the road");
}

#[tokio::test]
async fn twilio_signs_its_url() {
    let world = world("12345", "verify: { scheme: twilio, url: https://mycompany.com/myapp.php }").await;
    let form =
        "CallSid=CA1234567890ABCDE&Digits=1234&From=%2B14158675309&To=%2B18005551212&Caller=%2B14158675309";
    let call = async |path: &str, kind: &str, body: &'static str, signature: &str| {
        world.post_with(path, body, &[("content-type", kind), ("x-twilio-signature", signature)]).await
    };
    let (kind, good) = ("application/x-www-form-urlencoded", "RSOYDt4T1cUTdK1PDd93/VVr8B8=");
    assert_eq!(call("in?foo=1&bar=2", kind, form, good).await, (200, Value::Null));
    assert_eq!(event(&world).await["From"], "+14158675309");
    assert_eq!(call("in?foo=1&bar=3", kind, form, good).await, refused(WRONG), "the query is signed");
    assert_eq!(call("in", kind, form, good).await, refused(WRONG));
    assert_eq!(
        call("in?foo=1&bar=2", "text/plain", form, good).await,
        refused(MISSING),
        "only forms are signed"
    );
    let many: &'static str = Box::leak("a&".repeat(1001).into_boxed_str());
    assert_eq!(call("in?foo=1&bar=2", kind, many, good).await, refused(MISSING));
    let hashed = "in?foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
    let json = r#"{"property": "value", "boolean": true}"#;
    let good = "a9nBmqA0ju/hNViExpshrM61xv4=";
    assert_eq!(call(hashed, "application/json", json, good).await, (200, Value::Null));
    assert_eq!(event(&world).await["property"], "value");
    assert_eq!(call(hashed, "application/json", "{}", good).await, refused(WRONG), "the body is hashed");
    let twice = format!("{hashed}&bodySHA256=0");
    assert_eq!(call(&twice, "application/json", json, good).await, refused(MISSING));
    assert_eq!(world.runs("in").await, 2);
}

#[tokio::test]
async fn discord_signs_with_its_own_key() {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let world = world(&hex::encode(key.public_key().as_ref()), "verify: discord\ndedupe: true").await;
    let call = async |body: &'static str, at: u64| {
        let time = at.to_string();
        let signature = hex::encode(key.sign(format!("{time}{body}").as_bytes()).as_ref());
        let headers = [("x-signature-ed25519", signature.as_str()), ("x-signature-timestamp", time.as_str())];
        world.send(request("in", body, &headers)).await
    };
    let ping = crate::support::read(call(r#"{"type":1,"id":"1"}"#, now()).await).await;
    assert_eq!(ping, (200, json!({ "type": 1 })));
    let events = call(r#"{"version":1,"application_id":"2","type":0}"#, now()).await;
    assert_eq!(events.status().as_u16(), 204);
    assert!(events.into_body().read(100).await.unwrap().is_empty());
    assert_eq!(world.runs("in").await, 0);
    let command = r#"{"type":2,"id":"9","data":{"name":"deploy"}}"#;
    for _ in 0..2 {
        assert_eq!(crate::support::read(call(command, now()).await).await, accepted());
    }
    assert_eq!(world.runs("in").await, 1);
    let installed = r#"{"version":1,"type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}"#;
    assert_eq!(
        crate::support::read(call(installed, now()).await).await,
        accepted(),
        "an event is not a ping"
    );
    assert_eq!(world.runs("in").await, 2);
    assert_eq!(crate::support::read(call(command, now() - 400).await).await, refused(OLD));
    let time = now().to_string();
    let forged = [("x-signature-ed25519", &*"0".repeat(128)), ("x-signature-timestamp", &time)];
    assert_eq!(world.post_with("in", command, &forged).await, refused(WRONG), "Discord sends some to see");
}

#[tokio::test]
async fn a_secret_that_is_no_key_of_discords_is_said() {
    let world = world("a password", "verify: discord").await;
    let time = now().to_string();
    let headers = [("x-signature-ed25519", &*"0".repeat(128)), ("x-signature-timestamp", &time)];
    assert_eq!(world.post_with("in", "{}", &headers).await.0, 401);
    assert!(world.host.log.has("host:sender is not the public key of a Discord application"));
}

#[tokio::test]
async fn an_hmac_as_the_record_describes_it() {
    let world = world(
        "hush",
        "verify: { scheme: hmac, header: X-Zm-Signature, prefix: v0=, \
         timestamp: { header: X-Zm-Request-Timestamp, signed: 'v0:{timestamp}:{body}' } }\n\
         dedupe: X-Zm-TrackingId",
    )
    .await;
    let body = r#"{"event":"meeting.started"}"#;
    let call = async |time: String, signature: String| {
        let headers = [
            ("x-zm-signature", signature.as_str()),
            ("x-zm-request-timestamp", time.as_str()),
            ("x-zm-trackingid", "1"),
        ];
        world.post_with("in", body, &headers).await
    };
    let made = |time: &str| format!("v0={}", signed("hush", format!("v0:{time}:{body}").as_bytes()));
    let old = "v0=19c62f3774d7814c6abe8b35b567e261820481cf7f0d66a51380ce6153eaf4f7";
    assert_eq!(made("1700000000"), old, "as OpenSSL signs it");
    assert_eq!(call("1700000000".to_owned(), old.to_owned()).await, refused(OLD));
    for time in [now().to_string(), (now() * 1000).to_string()] {
        assert_eq!(call(time.clone(), made(&time)).await, accepted());
    }
    assert_eq!(call(now().to_string(), old.to_owned()).await, refused(WRONG));
    assert_eq!(world.runs("in").await, 1);
    assert_eq!(event(&world).await["event"], "meeting.started");
}

/// The line that `ostler webhook add` prints makes a call that passes.
#[tokio::test]
async fn a_shell_signs_as_each_sender_does() {
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        println!("NOT RUN: the lines that sign calls in a shell need openssl");
        return;
    }
    let secret = "whsec_c2VjcmV0";
    let dir = folder();
    write(dir.path(), "vault.json", &json!({ "host:sender": secret }).to_string());
    for SenderFacts { name, example, .. } in senders() {
        endpoint(dir.path(), name, &format!("automation: true\nsecret: host:sender\nverify: {example}"));
    }
    let world = World::start(&dir).await;
    for SenderFacts { name, example, .. } in senders() {
        let record = format!("id: {name}\nautomation: true\nsecret: host:sender\nverify: {example}");
        let record = ostler_ports::yaml::parse(&record).unwrap();
        let facts = EndpointFacts::read(record.as_object().unwrap()).unwrap();
        // Of these, only the service can sign a call.
        let Some(shell) = facts.shell(secret) else {
            assert!(["discord", "sendgrid"].contains(&name), "{name}");
            continue;
        };
        let query = shell.query.map(|query| format!("?{query}")).unwrap_or_default();
        let headers: String =
            shell.headers.iter().map(|header| format!("printf '%s\\n' \"{header}\"; ")).collect();
        let script = format!(
            "B='{{\"a\":1}}'; {}printf '%s\\n' \"{query}\"; {headers}printf '\\n%s' \"$B\"",
            shell.before
        );
        let run =
            std::process::Command::new("sh").args(["-c", &script]).env("SECRET", secret).output().unwrap();
        let printed = String::from_utf8(run.stdout).unwrap();
        let (lines, body) = printed.split_once("\n\n").unwrap_or_else(|| panic!("{name}: {script}"));
        let mut lines = lines.lines();
        let path = format!("{name}{}", lines.next().unwrap_or_default());
        let mut pairs: Vec<_> = lines
            .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{name}: {script}: {printed}")))
            .collect();
        pairs.push(("content-type", "application/json"));
        let (status, said) = world.post_with(&path, body.to_owned(), &pairs).await;
        assert!([200, 202].contains(&status), "{name}: {script}: {printed}: {said}");
    }
}
