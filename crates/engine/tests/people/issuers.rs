//! Signing in through issuers, and what ends when a record names another one.

use std::sync::Arc;

use ostler_contract::{Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, SIGN_IN, Stage};

use super::people::{NOBODY, REFUSED, host, list, nobody, root_state, set, sign_in, signed_in};

/// The web as two issuers have it, and what each was asked.
fn issuers(host: &MemoryHost) -> Arc<std::sync::Mutex<Vec<String>>> {
    use ostler_contract::http::{self, Request, Response, StatusCode, header};
    let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let heard = asked.clone();
    host.host.core.set_outbound(ostler_engine::Outbound::new(move |request: Request| {
        let bearer = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")).unwrap_or("none");
        let url = request.uri().to_string();
        heard.lock().unwrap().push(format!("{url} {token}"));
        let answer: Response = match (url.as_str(), token) {
            ("https://api.github.com/user", "gh-ada") => {
                http::json(StatusCode::OK, &json!({ "login": "Ada" }))
            }
            ("https://api.github.com/user", "gh-ben") => {
                http::json(StatusCode::OK, &json!({ "login": "ben" }))
            }
            ("https://id.example.org/.well-known/openid-configuration", "none") => {
                http::json(StatusCode::OK, &json!({ "userinfo_endpoint": "https://id.example.org/me" }))
            }
            ("https://id.example.org/me", "oidc-ben") => {
                http::json(StatusCode::OK, &json!({ "sub": "ben", "groups": ["keeper", "kings"] }))
            }
            ("https://id.example.org/me", "oidc-ben-left") => {
                http::json(StatusCode::OK, &json!({ "sub": "ben", "groups": [] }))
            }
            ("https://id.example.org/me", "oidc-ada") => http::json(StatusCode::OK, &json!({ "sub": "ada" })),
            _ => http::message(StatusCode::UNAUTHORIZED, "bad credentials"),
        };
        Box::pin(async move { Ok(answer) })
    }));
    asked
}

#[tokio::test]
async fn people_sign_in_through_issuers() {
    let people =
        People::new(SIGN_IN, "inn").issued_by(Some(ostler_engine::users::Issuer::parse("github").unwrap()));
    let host =
        MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).people(people).start().await;
    let asked = issuers(&host);
    let file = json!({
        "roles": { "keeper": ["session:list"], "none": [] },
        "users": [
            { "id": "ada", "roles": ["keeper"] },
            { "id": "ben", "roles": ["none"], "issuer": "https://id.example.org", "rolesFrom": "groups" },
            { "id": "cleo", "roles": ["keeper"], "token": hash_of("cleo's") },
        ]
    });
    set(&host, &file);

    // A token the host gave out is known without asking anybody.
    let mut cleo = signed_in(&host, "cleo's").await;
    assert_eq!(root_state(&mut cleo).await["_meta"]["ostler.principal"], "user:cleo");
    assert!(asked.lock().unwrap().is_empty());

    let mut client = nobody(&host).await;
    let wrong = sign_in(&mut client, "nobody's").await.unwrap_err();
    assert_eq!(wrong["code"].as_i64(), Some(NOBODY));
    let record = &wrong["data"]["resources"][0];
    assert_eq!(
        (&record["authorization_servers"], &record["scopes_supported"]),
        (
            &json!(["https://github.com/login/oauth", "https://id.example.org"]),
            &json!(["openid", "read:user"])
        )
    );
    // A login is the same in any case.
    assert_eq!(sign_in(&mut client, "gh-ada").await, Ok(json!({})));
    assert_eq!(root_state(&mut client).await["_meta"]["ostler.principal"], "user:ada");
    assert_eq!(list(&mut client).await, Ok(()));
    assert_eq!(
        asked.lock().unwrap().last().unwrap(),
        "https://api.github.com/user gh-ada",
        "and nobody else"
    );

    // A record with an issuer of its own is not signed in by the one for everybody, nor the other way round.
    for token in ["gh-ben", "oidc-ada"] {
        let mut client = nobody(&host).await;
        assert_eq!(sign_in(&mut client, token).await.unwrap_err()["code"].as_i64(), Some(NOBODY), "{token}");
    }
    let mut ben = signed_in(&host, "oidc-ben").await;
    assert_eq!(root_state(&mut ben).await["_meta"]["ostler.principal"], "user:ben");
    assert_eq!(list(&mut ben).await, Ok(()), "by the role the issuer named");
    host.log.wait_for("https://id.example.org assigns user ben the unknown role \"kings\"").await;
    assert!(!host.log.has("oidc-ben") && !host.log.has("gh-ben"), "a token is logged");

    // The file binds at the next command: what the role gives, and whether there is such a person.
    let mut less = file.clone();
    less["roles"]["keeper"] = json!([]);
    set(&host, &less);
    assert_eq!(list(&mut ben).await, Err(REFUSED));
    less["users"].as_array_mut().unwrap().remove(1);
    set(&host, &less);
    assert_eq!(list(&mut ben).await, Err(NOBODY));
}

/// Work that waits or goes on is asked about with the roles of the sign-in, not only with those of the record.
#[tokio::test]
async fn the_work_of_a_user_with_roles_of_an_issuer_goes_on_as_long_as_the_user_has_them() {
    type Change = fn(&mut Value);
    let changes: [Change; 3] = [
        |file| file["roles"]["keeper"] = json!(["session:list"]),
        |file| file["users"][0]["rolesFrom"] = json!("teams"),
        |file| file["users"][0]["issuer"] = json!("https://other.example.org"),
    ];
    for change in changes {
        let stage = Stage::default();
        let people = People::new(SIGN_IN, "inn");
        let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).people(people).start().await;
        issuers(&host);
        let mut file = json!({
            "roles": { "keeper": ["session:*"], "none": [] },
            "users": [
                { "id": "ben", "roles": ["none"], "issuer": "https://id.example.org", "rolesFrom": "groups" },
            ]
        });
        set(&host, &file);
        let mut ben = signed_in(&host, "oidc-ben").await;
        ben.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
        let chat = uri::default_chat("stage:/1");
        ben.request("subscribe", json!({ "channel": chat })).await.unwrap();
        let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
        ben.dispatch(&chat, 1, turn).await;
        ben.actions_until("chat/turnStarted").await;
        host.host.review_authority();
        let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": { "text": "On." } });
        ben.dispatch(&chat, 2, queued).await;
        ben.dispatch(&chat, 3, json!({ "type": "chat/turnCancelled", "turnId": "t" })).await;
        let seen = ben.actions_until("chat/turnStarted").await;
        assert!(!seen.iter().any(|seen| seen["action"]["type"] == "chat/error"), "{seen:?}");

        change(&mut file);
        set(&host, &file);
        let mut root = host.raw_as(Principal::Root);
        root.initialize("r").await;
        loop {
            let state = root.request("subscribe", json!({ "channel": chat })).await.unwrap();
            if state["snapshot"]["state"]["turns"][1]["state"] == "error" {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A message that waited when the host stopped runs at the next start, or on another host, before its sender signs in there.
#[tokio::test]
async fn the_roles_of_an_issuer_are_known_after_a_restart_and_on_another_host() {
    let file = json!({
        "roles": { "keeper": ["session:*"], "none": [] },
        "users": [
            { "id": "ben", "roles": ["none"], "issuer": "https://id.example.org", "rolesFrom": "groups" },
        ]
    });
    let first = host().await;
    issuers(&first);
    set(&first, &file);
    signed_in(&first, "oidc-ben").await;
    let recorded = |host: &MemoryHost| host.host.access.gate.people().unwrap().file().text();
    let known: Value = serde_json::from_str(&recorded(&first)).unwrap();
    assert_eq!(known["users"][0]["confirmed"]["roles"], json!(["keeper"]));
    let text = recorded(&first);
    assert!(!text.contains("oidc-ben"), "a token is stored: {text}");

    let second = host().await;
    issuers(&second);
    let works = |host: &MemoryHost| host.plugin("caller").may_work_for("user:ben".to_owned()).is_ok();
    set(&second, &file);
    assert!(!works(&second), "without a record of the sign-in");
    set(&second, &known);
    assert!(works(&second));
    for (field, value) in [("issuer", "https://other.example.org"), ("rolesFrom", "teams")] {
        let mut other = known.clone();
        other["users"][0][field] = json!(value);
        set(&second, &other);
        assert!(!works(&second), "the roles are those of another {field}");
    }
    set(&second, &known);
    signed_in(&second, "oidc-ben-left").await;
    assert!(!works(&second), "the issuer named no role at the latest sign-in");
    let left: Value = serde_json::from_str(&recorded(&second)).unwrap();
    assert_eq!(left["users"][0]["confirmed"]["roles"], json!([]));
    // The first host hears of it.
    set(&first, &left);
    assert!(!works(&first), "the issuer named no role at a later sign-in, on another host");
    signed_in(&second, "oidc-ben").await;
    set(&first, &serde_json::from_str(&recorded(&second)).unwrap());
    assert!(works(&first), "the issuer named the role again");
    // A claim that named roles once, and another one since.
    let mut other = known.clone();
    other["users"][0]["rolesFrom"] = json!("teams");
    set(&second, &other);
    signed_in(&second, "oidc-ben").await;
    let mut back: Value = serde_json::from_str(&recorded(&second)).unwrap();
    back["users"][0]["rolesFrom"] = json!("groups");
    set(&second, &back);
    assert!(!works(&second), "another claim named no role since");
}

#[tokio::test]
async fn an_issuer_nobody_reaches_signs_nobody_in() {
    let people = People::new(SIGN_IN, "inn");
    let host =
        MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).people(people).start().await;
    issuers(&host);
    let file = json!({ "users": [
        { "id": "ada", "roles": ["admin"], "issuer": "https://gone.example.org" },
        { "id": "ben", "roles": ["admin"], "issuer": "http://id.example.org" },
    ] });
    let lines =
        host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    assert_eq!(
        lines,
        ["user ben: issuer must be github or the https URL of an OpenID Connect provider; ignored"]
    );
    let mut client = nobody(&host).await;
    assert_eq!(sign_in(&mut client, "oidc-ben").await.unwrap_err()["code"].as_i64(), Some(NOBODY));
    host.log
        .wait_for("sign-in through https://gone.example.org is unavailable: https://gone.example.org/.well-known/openid-configuration returned 401")
        .await;
}

#[tokio::test]
async fn a_sign_in_ends_when_another_issuer_or_another_claim_identifies_the_user() {
    let own = "https://id.example.org";
    for (change, ends) in [
        (json!({ "issuer": "https://other.example.org", "rolesFrom": "groups" }), true),
        (json!({ "issuer": null, "rolesFrom": "groups" }), true),
        (json!({ "issuer": own, "rolesFrom": "teams" }), true),
        (json!({ "issuer": own, "rolesFrom": null }), true),
        (json!({ "issuer": own, "rolesFrom": "groups", "memberships": ["core"] }), false),
    ] {
        let people = People::new(SIGN_IN, "inn");
        let host =
            MemoryHost::builder().plugin(Stage::default().plugin(), json!({})).people(people).start().await;
        issuers(&host);
        let mut file = json!({
            "roles": { "keeper": ["session:list"], "none": [] },
            "teams": { "core": {} },
            "users": [{ "id": "ben", "roles": ["none"], "issuer": own, "rolesFrom": "groups" }]
        });
        set(&host, &file);
        let mut ben = signed_in(&host, "oidc-ben").await;
        assert_eq!(list(&mut ben).await, Ok(()));
        for (key, value) in change.as_object().unwrap() {
            file["users"][0][key] = value.clone();
        }
        set(&host, &file);
        assert_eq!(list(&mut ben).await, if ends { Err(NOBODY) } else { Ok(()) }, "{change}");
        // The record as it was does not bring it back.
        file["users"][0]["issuer"] = json!(own);
        file["users"][0]["rolesFrom"] = json!("groups");
        set(&host, &file);
        assert_eq!(list(&mut ben).await, if ends { Err(NOBODY) } else { Ok(()) }, "{change}");
    }
}
