//! People: who a token makes a connection, what changes bind, and people as resources.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ostler_contract::host::SessionRequest;
use ostler_contract::{Plugin, Value, json};
use ostler_engine::users::{UsersFile, hash_of};
use ostler_engine::{People, Principal};
use ostler_protocol::error::code;
use ostler_protocol::uri;
use ostler_testkit::{MemoryHost, RawClient, SIGN_IN, Stage};

/// Three people: one may everything, one the usual, one nothing.
fn file() -> Value {
    json!({
        "teams": { "core": { "title": "Core" } },
        "projects": { "search": { "title": "Search" } },
        "roles": { "keeper": ["user:read", "user:write", "session:list"], "none": [] },
        "users": [
            { "id": "ada", "roles": ["admin"], "token": hash_of("ada's") },
            { "id": "ben", "roles": ["member"], "token": hash_of("ben's"), "memberships": ["core:search"] },
            { "id": "cleo", "roles": ["none"], "token": hash_of("cleo's"), "trustToken": true },
            { "id": "dan", "roles": ["keeper"], "token": hash_of("dan's") }
        ]
    })
}

/// A host whose people are changed as a file would be.
pub(crate) async fn host() -> MemoryHost {
    let whole: Arc<OnceLock<std::sync::Weak<People>>> = Arc::default();
    let door = whole.clone();
    let people = People::new(SIGN_IN, "inn").written_by(Arc::new(move |change| {
        let people = door.get().and_then(std::sync::Weak::upgrade).unwrap();
        let mut file = (*people.file()).clone();
        let outcome = change(&mut file).map_err(ostler_contract::Thrown::from);
        Box::pin(async move {
            outcome?;
            people.set(file).unwrap();
            Ok(())
        })
    }));
    let caller = Plugin::new("@test/caller", |_, _| Box::pin(async { Ok(()) }));
    let host = MemoryHost::builder()
        .plugin(Stage::default().asking_for("https://models.example").plugin(), json!({}))
        .plugin(caller, json!({}))
        .grants(&["session:list"])
        .people(people)
        .start()
        .await;
    let people = host.host.access.gate.people().unwrap();
    whole.set(Arc::downgrade(people)).unwrap();
    set(&host, &file());
    host
}

pub(crate) fn set(host: &MemoryHost, file: &Value) {
    let lines =
        host.host.access.gate.people().unwrap().set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
    assert!(lines.is_empty(), "{lines:?}");
    host.host.review_authority();
}

pub(crate) async fn nobody(host: &MemoryHost) -> RawClient {
    let mut client = host.raw();
    client.initialize("c").await;
    client
}

pub(crate) async fn signed_in(host: &MemoryHost, token: &str) -> RawClient {
    let mut client = nobody(host).await;
    assert_eq!(sign_in(&mut client, token).await, Ok(json!({})));
    client
}

pub(crate) async fn sign_in(client: &mut RawClient, token: &str) -> Result<Value, Value> {
    client.request("authenticate", json!({ "resource": SIGN_IN, "token": token })).await
}

pub(crate) async fn root_state(client: &mut RawClient) -> Value {
    client.request("subscribe", json!({ "channel": uri::ROOT })).await.unwrap()["snapshot"]["state"].clone()
}

/// What a command that asks `session:list` is answered.
pub(crate) async fn list(client: &mut RawClient) -> Result<(), i64> {
    let answer = client.request("listSessions", json!({})).await;
    answer.map(drop).map_err(|error| error["code"].as_i64().unwrap())
}

async fn write(client: &mut RawClient, uri: &str, body: Value) -> Result<Value, String> {
    let params = json!({ "uri": uri, "data": body.to_string(), "encoding": "utf-8" });
    said(client.request("resourceWrite", params).await)
}

async fn read(client: &mut RawClient, uri: &str) -> Result<Value, String> {
    let read = said(client.request("resourceRead", json!({ "uri": uri })).await)?;
    Ok(serde_json::from_str(read["data"].as_str().unwrap()).unwrap())
}

fn said(answer: Result<Value, Value>) -> Result<Value, String> {
    answer.map_err(|error| error["message"].as_str().unwrap().to_owned())
}

pub(crate) const NOBODY: i64 = code::AUTH_REQUIRED as i64;
pub(crate) const REFUSED: i64 = code::PERMISSION_DENIED as i64;

#[tokio::test]
async fn a_token_makes_a_connection_a_persons() {
    let host = host().await;
    let mut client = nobody(&host).await;
    assert_eq!(list(&mut client).await, Err(NOBODY));
    let state = root_state(&mut client).await;
    assert_eq!(state["_meta"].get("ostler.principal"), None);
    assert!(state["_meta"]["ostler.grants"]["user"]["operations"].is_array());
    let asked = &state["agents"][0]["protectedResources"];
    assert_eq!((&asked[1]["resource"], &asked[1]["required"]), (&json!(SIGN_IN), &json!(true)));

    let wrong = sign_in(&mut client, "nobody's").await.unwrap_err();
    assert_eq!(
        (wrong["code"].as_i64(), &wrong["data"]["resources"][0]["resource"]),
        (Some(NOBODY), &json!(SIGN_IN))
    );
    assert_eq!(sign_in(&mut client, "ben's").await, Ok(json!({})));
    assert_eq!(list(&mut client).await, Ok(()));
    let state = root_state(&mut client).await;
    assert_eq!(state["_meta"]["ostler.principal"], "user:ben");
    assert_eq!(state["agents"][0]["protectedResources"][1]["required"], false);

    client.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    let chat = ostler_protocol::uri::default_chat("stage:/1");
    client.request("subscribe", json!({ "channel": chat })).await.unwrap();
    let turn = json!({ "type": "chat/turnStarted", "turnId": "t", "message": { "text": "Go." } });
    client.dispatch(&chat, 1, turn).await;
    client.actions_until("chat/turnStarted").await;
    let rows = client.request("listSessions", json!({})).await.unwrap();
    assert_eq!(rows["items"][0]["_meta"]["ostler.owner"], "user:ben", "{rows}");

    sign_in(&mut client, "").await.unwrap();
    assert_eq!(list(&mut client).await, Err(NOBODY), "a token that is taken back gives nothing any more");
    let unknown = json!({ "resource": "https://elsewhere.example", "token": "x" });
    assert_eq!(client.request("authenticate", unknown).await.unwrap_err()["code"], code::INVALID_PARAMS);
}

#[tokio::test]
async fn the_host_itself_is_neither_demoted_nor_revoked() {
    let host = host().await;
    let mut root = host.raw_as(Principal::Root);
    let came = root.initialize("r").await;
    assert_eq!(came["_meta"]["ostler.principal"], "root:localhost");
    for token in ["cleo's", "", "nobody's"] {
        sign_in(&mut root, token).await.unwrap();
        assert_eq!(list(&mut root).await, Ok(()));
    }
    assert_eq!(root_state(&mut root).await["agents"][0]["protectedResources"][1]["required"], false);
}

#[tokio::test]
async fn a_change_of_the_file_binds_at_once() {
    let host = host().await;
    let mut ben = signed_in(&host, "ben's").await;
    ben.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    ben.request("subscribe", json!({ "channel": "stage:/1" })).await.unwrap();
    let title = |title: &str| json!({ "type": "session/titleChanged", "title": title });
    let mut root = host.raw_as(Principal::Root);
    root.initialize("r").await;
    root.dispatch("stage:/1", 1, title("One")).await;
    while ben.next_frame().await.unwrap()["params"]["action"]["title"] != "One" {}

    let mut fewer = file();
    fewer["users"][1]["roles"] = json!(["none"]);
    set(&host, &fewer);
    assert_eq!(list(&mut ben).await, Err(REFUSED));
    // Nor does he see on what he watched before.
    root.request("subscribe", json!({ "channel": "stage:/1" })).await.unwrap();
    root.dispatch("stage:/1", 2, title("Two")).await;
    while root.next_frame().await.unwrap()["params"]["action"]["title"] != "Two" {}
    let seen = ben.ready_frames().await;
    assert!(!seen.iter().any(|frame| frame["params"]["action"]["title"] == "Two"), "{seen:?}");

    set(&host, &file());
    assert_eq!(list(&mut ben).await, Ok(()), "a role given back binds the next command");
    let mut gone = file();
    gone["users"].as_array_mut().unwrap().remove(1);
    set(&host, &gone);
    assert_eq!(list(&mut ben).await, Err(NOBODY), "who is removed is nobody");
    assert!(sign_in(&mut ben, "ben's").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_token_is_spent_no_longer_than_it_lasts() {
    let host = host().await;
    let mut ben = nobody(&host).await;
    let lasting = |seconds: i64| json!({ "resource": SIGN_IN, "token": "ben's", "expiresIn": seconds });
    for wrong in [0, -1] {
        assert_eq!(
            ben.request("authenticate", lasting(wrong)).await.unwrap_err()["code"],
            code::INVALID_PARAMS
        );
    }
    ben.request("authenticate", lasting(i64::MAX)).await.unwrap();
    ben.request("authenticate", lasting(60)).await.unwrap();
    tokio::time::advance(Duration::from_secs(50)).await;
    ben.request("authenticate", lasting(60)).await.unwrap();
    tokio::time::advance(Duration::from_secs(50)).await;
    assert_eq!(list(&mut ben).await, Ok(()), "a token given again lasts anew");
    tokio::time::advance(Duration::from_secs(11)).await;
    let told = loop {
        let frame = ben.next_frame().await.unwrap();
        if frame["method"] == "auth/required" {
            break frame["params"].clone();
        }
    };
    assert_eq!((&told["reason"], &told["resource"]["resource"]), (&json!("expired"), &json!(SIGN_IN)));
    assert_eq!(told["resource"]["resource_name"], "inn", "the whole record is told");
    assert_eq!(list(&mut ben).await, Err(NOBODY));
}

#[tokio::test]
async fn an_owner_starts_what_the_owner_may() {
    let host = host().await;
    let start = |owner: &str| {
        let request = SessionRequest { owner: owner.to_owned(), ..SessionRequest::default() };
        host.plugin("caller").start_session(request)
    };
    assert!(start("user:ben").await.is_ok());
    assert!(start("root:localhost").await.is_ok());
    for group in ["team:core", "project:core:search"] {
        let session = start(group).await.expect("a team and a project have the role member");
        assert_eq!(host.host.sessions.by_uri(&session).unwrap().owner.as_deref(), Some(group));
    }
    for owner in
        ["user:cleo", "user:nobody", "team:moon", "project:core:moon", "project:moon:search", "plugin:caller"]
    {
        let refused = start(owner).await.unwrap_err();
        assert_eq!(refused.message, format!("{owner} may not session:create here"));
        assert_eq!(refused.rpc.unwrap().code, code::PERMISSION_DENIED);
    }
}

async fn until(is: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(std::time::Instant::now() < end, "it is never so");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_person_is_known_to_have_been_here() {
    let host = host().await;
    assert!(!host.host.access.has_been_here("user:ben"));
    assert!(
        host.host.access.has_been_here("root:localhost") && host.host.access.has_been_here("plugin:caller")
    );
    drop(signed_in(&host, "ben's").await);
    until(|| host.host.access.has_been_here("user:ben")).await;
    assert!(!host.host.access.has_been_here("user:cleo"));
    // A token that is trusted on the handshake is a sign-in too.
    let cleo = host.host.access.gate.by_token("cleo's").unwrap();
    let mut client = host.raw_as(cleo);
    client.initialize("c").await;
    until(|| host.host.access.has_been_here("user:cleo")).await;
    let dan = host.host.access.gate.by_token("dan's").unwrap();
    drop(host.raw_as(dan));
    let mut ben = signed_in(&host, "ben's").await;
    list(&mut ben).await.unwrap();
    assert!(!host.host.access.has_been_here("user:dan"), "a token that only admits is none");
}

#[tokio::test]
async fn people_are_read_without_their_secrets() {
    let host = host().await;
    let mut ada = signed_in(&host, "ada's").await;
    let list = ada.request("resourceList", json!({ "uri": "user://" })).await.unwrap();
    let names: Vec<&str> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ada", "ben", "cleo", "dan"]);
    let ben = read(&mut ada, "user://ben").await.unwrap();
    assert_eq!(ben, json!({ "roles": ["member"], "memberships": ["core:search"] }));
    assert_eq!(
        read(&mut ada, "role://guest").await.unwrap(),
        json!({ "grants": ["session:read", "automation:read"] })
    );
    assert_eq!(read(&mut ada, "team://core").await.unwrap(), json!({ "title": "Core" }));
    assert_eq!(read(&mut ada, "user://eve").await.unwrap_err(), "unknown user eve");
    assert_eq!(read(&mut ada, "user://").await.unwrap_err(), "user:// is not a user URI: user://<id>");

    // The own record needs no grant, anybody else's does.
    let mut cleo = signed_in(&host, "cleo's").await;
    for (uri, refusal) in [
        ("user://cleo", "user://cleo is a user and has no entries"),
        ("user://cleo/", "user://cleo/ is a user and has no entries"),
        ("user://", "cleo may not user:list here"),
        ("user://ben", "cleo may not user:list here"),
    ] {
        let listed = said(cleo.request("resourceList", json!({ "uri": uri })).await);
        assert_eq!(listed.unwrap_err(), refusal, "{uri}");
    }
    assert_eq!(read(&mut cleo, "user://cleo").await.unwrap(), json!({ "roles": ["none"] }));
    assert_eq!(read(&mut cleo, "user://ben").await.unwrap_err(), "cleo may not user:get here");
    assert_eq!(
        write(&mut cleo, "user://cleo", json!({ "roles": ["admin"] })).await.unwrap_err(),
        "cleo may not user:put here"
    );
}

#[tokio::test]
async fn nobody_gives_what_they_do_not_hold() {
    let host = host().await;
    let mut dan = signed_in(&host, "dan's").await;
    let refusals = [
        ("user://eve", json!({ "roles": ["admin"] }), "user:dan does not have *:*, which role admin has"),
        (
            "user://dan",
            json!({ "roles": ["member"] }),
            "user:dan does not have file:read, which role member has",
        ),
        ("user://ada", json!({ "memberships": ["core"] }), "user:dan does not have *:*, which user ada has"),
        (
            "user://eve",
            json!({ "roles": ["nope"] }),
            "unknown role nope; the roles are admin, guest, keeper, member, none",
        ),
        ("user://eve", json!({ "memberships": ["moon"] }), "unknown team moon; the teams are core"),
        ("user://eve", json!({ "token": "x" }), "token is not a field of a user"),
        ("user://eve", json!({ "roles": null }), "roles cannot be cleared"),
        ("role://keeper", json!({ "grants": ["*:*"] }), "dan may not role:put here"),
    ];
    for (uri, body, sentence) in refusals {
        assert_eq!(write(&mut dan, uri, body).await.unwrap_err(), sentence);
    }
    let delete = |uri: &str| json!({ "uri": uri });
    let refused = said(dan.request("resourceDelete", delete("user://ada")).await).unwrap_err();
    assert_eq!(refused, "user:dan does not have *:*, which user ada has");
    write(&mut dan, "user://eve", json!({ "roles": ["keeper"], "primary": "core:search" })).await.unwrap();
    let mut ada = signed_in(&host, "ada's").await;
    write(&mut ada, "user://eve", json!({ "memberships": ["core"] })).await.unwrap();
    write(&mut dan, "user://eve", json!({ "memberships": ["core"], "primary": null, "issuer": " " }))
        .await
        .unwrap();
    assert_eq!(
        read(&mut dan, "user://eve").await.unwrap(),
        json!({ "roles": ["keeper"], "memberships": ["core"] })
    );

    let again = json!({ "uri": "user://eve", "data": "{}", "encoding": "utf-8", "createOnly": true });
    assert_eq!(ada.request("resourceWrite", again).await.unwrap_err()["code"], code::ALREADY_EXISTS);
    for (uri, sentence) in [
        ("role://keeper", "role keeper is still used by user dan, user eve"),
        ("team://core", "team core is still used by user ben, user eve"),
        ("project://search", "project search is still used by user ben"),
        ("role://admin", "role admin is built in and cannot be removed"),
        ("team://moon", "unknown team moon"),
    ] {
        assert_eq!(said(ada.request("resourceDelete", delete(uri)).await).unwrap_err(), sentence);
    }
    ada.request("resourceDelete", delete("user://eve")).await.unwrap();
    assert_eq!(read(&mut ada, "user://eve").await.unwrap_err(), "unknown user eve");
}

/// Who names the issuer of a user decides which roles it names, and who joins a team has its work done.
#[tokio::test]
async fn nobody_gives_by_an_issuer_or_a_membership_what_they_do_not_hold() {
    let host = host().await;
    let mut more = file();
    more["roles"]["minders"] = json!(["role:write"]);
    more["roles"]["guest"] = json!([]);
    let users = more["users"].as_array_mut().unwrap();
    users.push(json!({ "id": "eve", "roles": ["keeper"], "issuer": "github", "rolesFrom": "groups" }));
    users.push(json!({ "id": "fay", "roles": ["none"], "memberships": ["core"] }));
    users.push(json!({ "id": "gil", "roles": ["minders"], "token": hash_of("gil's") }));
    set(&host, &more);
    let mut dan = signed_in(&host, "dan's").await;
    let own = "https://dans.example.org";
    let any_role = |id: &str| {
        format!(
            "user:dan does not have *:*, and the issuer of user {id} could assign the role admin, which has it"
        )
    };
    let of_team = |what: &str| format!("user:dan does not have file:read, which {what} has");
    for (uri, body, refusal) in [
        // The way up: one's own record, a new one, and half of it at a time.
        ("user://dan", json!({ "issuer": own, "rolesFrom": "groups" }), any_role("dan")),
        ("user://new", json!({ "roles": [], "issuer": own, "rolesFrom": "groups" }), any_role("new")),
        ("user://dan", json!({ "rolesFrom": "groups" }), any_role("dan")),
        ("user://eve", json!({ "issuer": own }), any_role("eve")),
        ("user://eve", json!({ "issuer": null }), any_role("eve")),
        ("user://eve", json!({ "rolesFrom": "bio" }), any_role("eve")),
        ("user://dan", json!({ "memberships": ["core"] }), of_team("team core")),
        ("user://dan", json!({ "memberships": ["core:search"] }), of_team("project core:search")),
        ("user://fay", json!({ "issuer": own }), of_team("team core")),
    ] {
        assert_eq!(write(&mut dan, uri, body.clone()).await.unwrap_err(), refusal, "{uri} {body}");
    }
    // What gives nothing the caller lacks is theirs to change.
    write(&mut dan, "user://dan", json!({ "issuer": own })).await.unwrap();
    write(&mut dan, "user://eve", json!({ "roles": ["none"], "rolesFrom": "groups" })).await.unwrap();
    write(&mut dan, "user://eve", json!({ "rolesFrom": null })).await.unwrap();
    write(&mut dan, "user://eve", json!({ "issuer": own })).await.unwrap();
    assert_eq!(
        write(&mut dan, "user://eve", json!({ "rolesFrom": "groups" })).await.unwrap_err(),
        any_role("eve")
    );
    write(&mut dan, "user://fay", json!({ "memberships": [] })).await.unwrap();

    // Nor does a role come back larger by taking away what stands in its place.
    let mut gil = signed_in(&host, "gil's").await;
    let gone = gil.request("resourceDelete", json!({ "uri": "role://guest" })).await;
    assert_eq!(
        said(gone).unwrap_err(),
        "user:gil does not have session:read, which the built-in role guest has"
    );

    let mut ada = signed_in(&host, "ada's").await;
    write(&mut ada, "user://eve", json!({ "issuer": own, "rolesFrom": "groups", "memberships": ["core"] }))
        .await
        .unwrap();
    assert_eq!(read(&mut ada, "user://eve").await.unwrap()["rolesFrom"], "groups");
}

/// A token signs in as a member of a team.
#[test]
fn a_token_of_a_member_is_for_who_holds_what_the_team_does() {
    use ostler_engine::users::Caller;
    use ostler_protocol::grants::Grant;
    let mut plain = file();
    plain["users"][1]["roles"] = json!([]);
    let mut users = UsersFile::parse(&plain.to_string()).unwrap();
    let nothing = Caller::holding("user:dan", Vec::new());
    let refused = users.set_token("ben", &hash_of("mine"), &nothing).unwrap_err();
    assert_eq!(refused.message, "user:dan does not have file:read, which project core:search has");
    let member = ostler_engine::users::BUILT_IN_ROLES.iter().find(|(role, _)| *role == "member").unwrap().1;
    let member = Caller::holding("user:dan", member.iter().filter_map(|grant| Grant::parse(grant)).collect());
    users.set_token("ben", &hash_of("mine"), &member).unwrap();
}

#[tokio::test]
async fn the_door_takes_a_token_for_a_word_only_where_it_was_told() {
    let host = host().await;
    let gate = &host.host.access.gate;
    assert_eq!(gate.by_token("nobody's"), None);
    assert_eq!(gate.by_token(""), None);
    assert_eq!(gate.by_token("ben's"), Some(Principal::Anyone), "the token admits and says nothing more");
    let cleo = gate.by_token("cleo's").unwrap();
    assert_eq!(cleo.owner("inn").as_deref(), Some("user:cleo"));
    let mut trusting = file();
    trusting["trustToken"] = json!(true);
    trusting["users"][2]["trustToken"] = json!(false);
    set(&host, &trusting);
    assert_eq!(gate.by_token("ben's").unwrap().owner("inn").as_deref(), Some("user:ben"));
    assert_eq!(gate.by_token("cleo's"), Some(Principal::Anyone), "the record wins");
}

/// Work is charged to a team as long as its user is a member, and gets its secrets as long.
#[test]
fn work_is_charged_to_a_membership_only() {
    for (memberships, primary, is_one) in [
        (json!(["core"]), "core", true),
        (json!(["core"]), "core:search", true),
        (json!(["core:search"]), "core:search", true),
        (json!(["core:search"]), "core", false),
        (json!(["moon"]), "core", false),
        (json!([]), "core", false),
    ] {
        let file = json!({
            "teams": { "core": {}, "moon": {} }, "projects": { "search": {} },
            "users": [{ "id": "ben", "memberships": memberships, "primary": primary }]
        });
        let people = People::new(SIGN_IN, "inn");
        let lines = people.set(UsersFile::parse(&file.to_string()).unwrap()).unwrap();
        let line = format!("user ben: primary {primary} is not one of its memberships; ignored");
        assert_eq!(lines.contains(&line), !is_one, "{lines:?}");
        let charged = people.now().person("ben").unwrap().primary.clone();
        assert_eq!(charged.as_deref(), is_one.then_some(primary));
    }
}

#[test]
fn a_file_that_breaks_says_where_and_shows_nothing() {
    let people = People::new(SIGN_IN, "inn");
    people.set(UsersFile::parse(&file().to_string()).unwrap()).unwrap();
    for broken in ["{ \"users\": [ { \"token\": \"s3cret\" ", "[]", "s3cret"] {
        let why = UsersFile::parse(broken).unwrap_err();
        assert!(!why.contains("s3cret"), "{why}");
    }
    for wrong in [
        json!({ "users": {} }),
        json!({ "roles": [] }),
        json!({ "trustToken": "yes" }),
        json!({ "teams": 1 }),
    ] {
        people.set(UsersFile::parse(&wrong.to_string()).unwrap()).unwrap_err();
    }
    assert!(people.now().person("ben").is_some(), "the last one that read is in force");
    let lines = people
        .set(
            UsersFile::parse(
                &json!({
                    "roles": { "old": ["users:read", "session:nope", "notes:anything", "word"], "member": "all" },
                    "users": [
                        { "id": "a", "roles": ["old", "lost"], "token": "s3cret" },
                        { "id": "a" }, { "id": "b", "roles": "admin" }, 5, { "roles": ["admin"] },
                        { "id": "m", "roles": ["member"] }
                    ]
                })
                .to_string(),
            )
            .unwrap(),
        )
        .unwrap();
    assert_eq!(
        lines,
        [
            "role old: users:read is now called user:read",
            "role old: session:nope is not a grant: session has no operation nope; ignored",
            "role old: word is not a grant: use <subject>:<operation>, such as session:read; ignored",
            "role member must be a list of grants; it has no grants",
            "user a has unknown role lost; ignored; the roles are admin, guest, member, old",
            "user a: token is not a sha256: hash and is ignored; create one with ostler user token a",
            "users[1]: duplicate user a; ignored",
            "users[2].roles must be a list of strings; ignored",
            "users[3] must be an object; ignored",
            "users[4].id must be a string without whitespace, / and :; ignored",
        ]
    );
    let held: Vec<String> =
        people.now().person("a").unwrap().grants.iter().map(ToString::to_string).collect();
    assert_eq!(held, ["user:read", "notes:anything"]);
    assert_eq!(
        people.now().person("m").unwrap().grants,
        [],
        "what the file means for member is not the built-in"
    );
}

mod any_file {
    use ostler_contract::Value;
    use ostler_engine::People;
    use ostler_engine::users::{Caller, Kind, UsersFile};
    use ostler_testkit::SIGN_IN;
    use proptest::prelude::*;

    /// Any JSON, with the words of a users file in it more often than chance has them.
    fn json() -> impl Strategy<Value = Value> {
        let word = prop_oneof![
            Just("admin".to_owned()),
            Just("ada".to_owned()),
            Just("*:*".to_owned()),
            Just("core:*".to_owned()),
            Just("s3cret-s3cret".to_owned()),
            ".{0,6}",
        ];
        let key = prop_oneof![
            Just("users".to_owned()),
            Just("roles".to_owned()),
            Just("teams".to_owned()),
            Just("projects".to_owned()),
            Just("id".to_owned()),
            Just("memberships".to_owned()),
            Just("trustToken".to_owned()),
            "[a-z]{0,4}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            word.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever stands in the file, nobody gets what no role gives, no token is shown, and what is read is
        /// written back the same.
        #[test]
        fn is_read_or_refused(mut file in json(), token in json()) {
            if let Some(user) = file.pointer_mut("/users/0").and_then(Value::as_object_mut) {
                user.insert("token".to_owned(), token);
            }
            let text = file.to_string();
            let people = People::new(SIGN_IN, "inn");
            let Ok(mut read) = UsersFile::parse(&text) else { return Ok(()) };
            prop_assert_eq!(UsersFile::parse(&read.text()), Ok(read.clone()));
            let lines = people.set(read.clone());
            for kind in Kind::ALL {
                for id in read.ids(*kind) {
                    let _ = read.body(*kind, &id);
                    let nobody = Caller::holding("nobody", Vec::new());
                    let before = read.clone();
                    if *kind == Kind::User && people.now().person(&id).is_some_and(|person| !person.grants.is_empty()) {
                        prop_assert!(read.set_token(&id, "", &nobody).is_err(), "nobody changes who holds something");
                        prop_assert!(read.remove(*kind, &id, &nobody).is_err());
                        prop_assert_eq!(&read, &before);
                    }
                }
            }
            if lines.is_err() {
                prop_assert!(people.now().person("ada").is_none());
            }
            prop_assert!(people.person_of_token("s3cret-s3cret").is_none(), "only a hash signs anybody in");
        }
    }
}
