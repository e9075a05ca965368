use ostler_contract::points::{
    AnnotationCounts, KeptAttachment, KeptChat, KeptDraft, KeptSession, KeptTurn, ListedPlace, SessionFlags,
    SessionStore, StartingTurn, StoredSession,
};
use ostler_contract::protocol::wire::state::{Message, MessageKind, MessageOrigin, Turn, TurnState};
use ostler_contract::{JsonObject, Value, json};

/// Tests a session store, which is empty at the start. Tests optional members if it has them.
pub async fn sessions_conformance(store: SessionStore) {
    keeps_sessions(&store).await;
    keeps_what_belongs_to_one(&store).await;
    forgets(&store).await;
    lists_in_pages(&store).await;
    knows_whose_a_chat_is(&store).await;
    if let (Some(set), Some(get)) = (&store.set_attachment, &store.attachment) {
        let kept = |data: &str| KeptAttachment { content_type: "image/png".into(), data: data.into() };
        let put = async |session: &str, id: &str, data: &str| {
            set.unbounded((session.into(), id.into(), kept(data))).await.unwrap();
        };
        let at = async |id: &str| get.unbounded((id.into(),)).await.unwrap();
        assert_eq!(at("a").await, None);
        put("s", "a", "AAEC").await;
        put("s", "a", "AAEC").await;
        put("s2", "a", "AAEC").await;
        put("s", "b", "/w==").await;
        assert_eq!((at("a").await, at("b").await), (Some(kept("AAEC")), Some(kept("/w=="))));
        store.forget.unbounded(("s".into(),)).await.unwrap();
        assert_eq!(
            (at("a").await, at("b").await),
            (Some(kept("AAEC")), None),
            "the other session has it still"
        );
        store.forget.unbounded(("s2".into(),)).await.unwrap();
        assert_eq!(at("a").await, None);
    }
    if let (Some(turns), Some(set_turn), Some(drop_turns)) =
        (&store.turns, &store.set_turn, &store.drop_turns)
    {
        let of = async |id: &str, chat: &str| {
            let turns = turns.unbounded((id.into(), chat.into())).await.unwrap();
            turns.into_iter().map(|kept| kept.turn.id).collect::<Vec<_>>()
        };
        let set = async |id: &str, chat: &str, place: u64, turn: &str| {
            set_turn.unbounded((id.into(), chat.into(), place, kept_turn(turn))).await.unwrap();
        };
        assert_eq!(of("s", "a").await, [""; 0]);
        for place in 0..12 {
            set("s", "a", place, &format!("t{place}")).await;
        }
        set("s", "b", 0, "of b").await;
        set("s2", "a", 0, "of s2").await;
        set("s", "a", 3, "t3 again").await;
        assert_eq!(
            of("s", "a").await,
            ["t0", "t1", "t2", "t3 again", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11"]
        );
        let whole = turns.unbounded(("s".into(), "b".into())).await.unwrap();
        assert_eq!(whole, [kept_turn("of b")], "a turn is kept whole, with what the host wrote beside it");
        drop_turns.unbounded(("s".into(), "a".into(), 2)).await.unwrap();
        assert_eq!(of("s", "a").await, ["t0", "t1"]);
        assert_eq!((of("s", "b").await, of("s2", "a").await), (vec!["of b".into()], vec!["of s2".into()]));
        set("s", "a", 2, "anew").await;
        assert_eq!(of("s", "a").await, ["t0", "t1", "anew"]);
        store.forget.unbounded(("s".into(),)).await.unwrap();
        assert_eq!((of("s", "a").await, of("s", "b").await), (vec![], vec![]));
        assert_eq!(of("s2", "a").await, ["of s2"]);
        store.forget.unbounded(("s2".into(),)).await.unwrap();
    }
}

fn kept(uri: &str) -> KeptSession {
    let values: JsonObject =
        [("isolation".to_owned(), json!("folder")), ("n".to_owned(), json!(1.5))].into_iter().collect();
    KeptSession {
        worktree: None,
        uri: uri.into(),
        provider: "echo".into(),
        owner: Some("user:ada".into()),
        works_for: Some("team:ops".into()),
        model: Some("large".into()),
        client: None,
        title: "Milk \u{1F600}".into(),
        created_at: "2026-01-01T00:00:00.000Z".into(),
        modified_at: "2026-01-02T00:00:00.000Z".into(),
        values,
        working_directories: vec!["file:///stable".into()],
        project: Some(json!({ "uri": "file:///stable", "displayName": "stable" })),
        meta: JsonObject::from_iter([("herd".to_owned(), json!({ "cows": 3 }))]),
        activity: Some("Watching".into()),
        facts: JsonObject::from_iter([("git".to_owned(), json!({ "branchName": "main" }))]),
        origin: Some(
            json!({ "kind": "automation", "automation": "ahp-automation:/a", "run": "ahp-automation-run:/r" }),
        ),
        backend_id: Some("b-1".into()),
        scope: Some(json!({ "team": "inn", "project": null })),
        draft: Some(KeptDraft {
            client: Some("c".into()),
            moving: true,
            creating: true,
            detached: Some("echo:/other".into()),
        }),
        annotations: AnnotationCounts { annotations: 2, entries: 3 },
        toggled: JsonObject::from_iter([(
            "hay".to_owned(),
            json!([{ "kind": "session", "enabled": false }]),
        )]),
        reviewed: JsonObject::from_iter([("uncommitted".to_owned(), json!({ "file:///stable/hay": "1f" }))]),
    }
}

fn kept_turn(id: &str) -> KeptTurn {
    let message = Message {
        text: format!("say {id}"),
        origin: MessageOrigin { kind: MessageKind::User },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    };
    let turn = Turn {
        id: id.into(),
        started_at: Some("2026-01-01T00:00:00.000Z".into()),
        duration: Some(12),
        message,
        response_parts: vec![],
        usage: None,
        state: TurnState::Complete,
    };
    KeptTurn {
        turn,
        unended: false,
        charged_usage: None,
        broken: false,
        sender: Some("user:ada".into()),
        transcript_id: Some(format!("name of {id}")),
    }
}

async fn keeps_sessions(store: &SessionStore) {
    let ids = async || {
        let mut ids = store.sessions.unbounded(()).await.unwrap();
        ids.sort();
        ids
    };
    assert_eq!(ids().await, [""; 0]);
    assert_eq!(store.config.unbounded(("s".into(),)).await, Ok(None));
    assert_eq!(store.flags.unbounded(("s".into(),)).await, Ok(None));

    store.set_config.unbounded(("s".into(), kept("echo:/s"))).await.unwrap();
    store.set_config.unbounded(("s2".into(), KeptSession::default())).await.unwrap();
    assert_eq!(store.config.unbounded(("s".into(),)).await, Ok(Some(kept("echo:/s"))));
    assert_eq!(store.config.unbounded(("s2".into(),)).await, Ok(Some(KeptSession::default())));
    assert_eq!(ids().await, ["s", "s2"]);
    let renamed = KeptSession { title: "Oats".into(), ..kept("echo:/s") };
    store.set_config.unbounded(("s".into(), renamed.clone())).await.unwrap();
    assert_eq!(store.config.unbounded(("s".into(),)).await, Ok(Some(renamed.clone())));

    let flags = SessionFlags { is_read: true, is_archived: false };
    store.set_flags.unbounded(("s".into(), flags)).await.unwrap();
    assert_eq!(store.flags.unbounded(("s".into(),)).await, Ok(Some(flags)));
    let flags = SessionFlags { is_read: false, is_archived: true };
    store.set_flags.unbounded(("s".into(), flags)).await.unwrap();
    assert_eq!(store.flags.unbounded(("s".into(),)).await, Ok(Some(flags)));
    // Marks of a session that the backend lists and the host has not opened.
    store.set_flags.unbounded(("listed".into(), flags)).await.unwrap();
    assert_eq!(store.flags.unbounded(("listed".into(),)).await, Ok(Some(flags)));
    assert_eq!(ids().await, ["s", "s2"]);

    if let Some(all) = &store.all {
        let mut all = all.unbounded(()).await.unwrap();
        for stored in &mut all {
            assert!(stored.chats.take().unwrap_or_default().is_empty());
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        let first = StoredSession { id: "s".into(), session: renamed, flags, chats: None };
        let second = StoredSession { id: "s2".into(), ..StoredSession::default() };
        assert_eq!(all, [first, second]);
    }
    store.forget.unbounded(("listed".into(),)).await.unwrap();
}

async fn keeps_what_belongs_to_one(store: &SessionStore) {
    let id = || "s".to_owned();
    assert_eq!(store.artifacts.unbounded((id(),)).await, Ok(vec![]));
    let artifacts: Vec<Value> = vec![json!({ "uri": "file:///a", "n": [1, null] }), json!("plain")];
    store.set_artifacts.unbounded((id(), artifacts.clone())).await.unwrap();
    assert_eq!(store.artifacts.unbounded((id(),)).await, Ok(artifacts));
    store.set_artifacts.unbounded((id(), vec![])).await.unwrap();
    assert_eq!(store.artifacts.unbounded((id(),)).await, Ok(vec![]));

    if let (Some(read), Some(set)) = (&store.annotations, &store.set_annotations) {
        assert_eq!(read.unbounded((id(),)).await, Ok(vec![]));
        let annotations: Vec<Value> = vec![json!({ "id": "a", "entries": [{ "id": "e", "text": "Why?" }] })];
        set.unbounded((id(), annotations.clone())).await.unwrap();
        assert_eq!(read.unbounded((id(),)).await, Ok(annotations));
    }

    if let (Some(read), Some(set)) = (&store.reported, &store.set_reported) {
        assert_eq!(read.unbounded((id(),)).await, Ok(JsonObject::new()));
        let reported: JsonObject =
            [("serverTools".to_owned(), json!([{ "name": "rake" }]))].into_iter().collect();
        set.unbounded((id(), reported.clone())).await.unwrap();
        assert_eq!(read.unbounded((id(),)).await, Ok(reported));
        set.unbounded((id(), JsonObject::new())).await.unwrap();
        assert_eq!(read.unbounded((id(),)).await, Ok(JsonObject::new()));
    }

    assert_eq!(store.pull_requests.unbounded((id(),)).await, Ok(JsonObject::new()));
    let requests: JsonObject = [("file:///a".to_owned(), json!({ "number": 7 }))].into_iter().collect();
    store.set_pull_requests.unbounded((id(), requests.clone())).await.unwrap();
    assert_eq!(store.pull_requests.unbounded((id(),)).await, Ok(requests));

    let title = async |chat: &str| store.chat_title.unbounded((id(), chat.into())).await.unwrap();
    assert_eq!(title("a").await, None);
    store.set_chat_title.unbounded((id(), "a".into(), Some("Hay".into()))).await.unwrap();
    store.set_chat_title.unbounded((id(), "b".into(), Some("Straw".into()))).await.unwrap();
    store.set_chat_title.unbounded((id(), "a".into(), Some("Oats".into()))).await.unwrap();
    assert_eq!((title("a").await.as_deref(), title("b").await.as_deref()), (Some("Oats"), Some("Straw")));
    store.set_chat_title.unbounded((id(), "a".into(), None)).await.unwrap();
    assert_eq!((title("a").await, title("b").await.as_deref()), (None, Some("Straw")));

    assert_eq!(store.chats.unbounded((id(),)).await, Ok(vec![]));
    let chats = vec![
        KeptChat {
            uri: "ahp-chat:/1".into(),
            default: true,
            queued: vec![json!({ "text": "wait" })],
            ..KeptChat::default()
        },
        KeptChat {
            uri: "ahp-chat:/2".into(),
            backend_id: Some("b-2".into()),
            title: Some("Second".into()),
            origin: Some(json!({ "kind": "fork", "chat": "ahp-chat:/1", "turnId": "t" })),
            closed: true,
            draft: Some(json!({ "text": "half" })),
            derived: true,
            working_directories: Some(vec!["file:///stable".into()]),
            flags: SessionFlags { is_read: true, is_archived: false },
            context: Some("hidden".into()),
            told: true,
            activity: Some("Watching".into()),
            ..KeptChat::default()
        },
    ];
    store.set_chats.unbounded((id(), chats.clone())).await.unwrap();
    assert_eq!(store.chats.unbounded((id(),)).await, Ok(chats.clone()));
    if let Some(all) = &store.all {
        let all = all.unbounded(()).await.unwrap();
        let of = all.into_iter().find(|stored| stored.id == "s").unwrap().chats;
        assert!(of.is_none_or(|of| of == chats), "chats said with their session are all of them");
    }
    store.set_chats.unbounded((id(), chats[..1].to_vec())).await.unwrap();
    assert_eq!(store.chats.unbounded((id(),)).await, Ok(chats[..1].to_vec()));
}

async fn forgets(store: &SessionStore) {
    store.forget.unbounded(("s".into(),)).await.unwrap();
    store.forget.unbounded(("nobody".into(),)).await.unwrap();
    let id = || ("s".to_owned(),);
    assert_eq!(store.config.unbounded(id()).await, Ok(None));
    assert_eq!(store.flags.unbounded(id()).await, Ok(None));
    assert_eq!(store.artifacts.unbounded(id()).await, Ok(vec![]));
    assert_eq!(store.pull_requests.unbounded(id()).await, Ok(JsonObject::new()));
    assert_eq!(store.chats.unbounded(id()).await, Ok(vec![]));
    if let Some(annotations) = &store.annotations {
        assert_eq!(annotations.unbounded(id()).await, Ok(vec![]));
    }
    assert_eq!(store.chat_title.unbounded(("s".into(), "b".into())).await, Ok(None));
    assert_eq!(store.sessions.unbounded(()).await, Ok(vec!["s2".to_owned()]));

    // Calls are ordered by when they are made.
    let mut calls: Vec<_> = (0..20)
        .map(|n| {
            store
                .set_config
                .unbounded(("s2".into(), KeptSession { title: n.to_string(), ..kept("echo:/s2") }))
        })
        .collect();
    while let Some(call) = calls.pop() {
        call.await.unwrap();
    }
    assert_eq!(
        store.config.unbounded(("s2".into(),)).await.unwrap().map(|kept| kept.title).as_deref(),
        Some("19")
    );
    store.forget.unbounded(("s2".into(),)).await.unwrap();
    assert_eq!(store.sessions.unbounded(()).await, Ok(vec![]));
}

/// A session that is not a draft.
fn begun(uri: &str) -> KeptSession {
    KeptSession { draft: None, ..kept(uri) }
}

async fn lists_in_pages(store: &SessionStore) {
    let count = async || match &store.count {
        Some(count) => count.unbounded(()).await.unwrap(),
        None => store.sessions.unbounded(()).await.unwrap().len() as u64,
    };
    assert_eq!(count().await, 0);
    // In another order than the listing.
    let sessions = [("b", 2), ("e", 1), ("c", 2), ("a", 2), ("d", 3)];
    for (id, day) in sessions {
        let kept = KeptSession {
            modified_at: format!("2026-01-0{day}T00:00:00.000Z"),
            ..begun(&format!("echo:/{id}"))
        };
        store.set_config.unbounded((id.into(), kept)).await.unwrap();
    }
    let flags = SessionFlags { is_read: true, is_archived: true };
    store.set_flags.unbounded(("c".into(), flags)).await.unwrap();
    store.set_flags.unbounded(("nobody".into(), flags)).await.unwrap();
    let chats = vec![KeptChat { uri: "ahp-chat:/c1".into(), default: true, ..KeptChat::default() }];
    store.set_chats.unbounded(("c".into(), chats.clone())).await.unwrap();
    assert_eq!(count().await, 5);
    if let Some(session) = &store.session {
        let mut found = session.unbounded(("c".into(),)).await.unwrap().unwrap();
        assert!(found.chats.take().is_none_or(|found| found == chats));
        assert_eq!((found.id.as_str(), found.flags, found.session.uri.as_str()), ("c", flags, "echo:/c"));
        let found = session.unbounded(("d".into(),)).await.unwrap().unwrap();
        assert_eq!((found.flags, found.chats.unwrap_or_default()), (SessionFlags::default(), vec![]));
        assert_eq!(session.unbounded(("nobody".into(),)).await, Ok(None));
    }
    if let Some(drafts) = &store.drafts {
        assert_eq!(drafts.unbounded(()).await.unwrap(), [""; 0]);
        let draft = KeptSession { draft: Some(KeptDraft::default()), ..begun("echo:/f") };
        store.set_config.unbounded(("f".into(), draft)).await.unwrap();
        assert_eq!(drafts.unbounded(()).await.unwrap(), ["f"]);
        store.set_config.unbounded(("f".into(), begun("echo:/f"))).await.unwrap();
        assert_eq!(drafts.unbounded(()).await.unwrap(), [""; 0]);
        store.forget.unbounded(("f".into(),)).await.unwrap();
    }
    if let Some(waiting) = &store.waiting {
        assert_eq!(waiting.unbounded(()).await.unwrap(), [""; 0]);
        let message = json!({ "id": "q", "message": { "text": "\"queued\":[ \"starting\":{" } });
        let starting = StartingTurn { turn: "t".into(), queued: message.clone() };
        let title = Some("\"queued\":[".to_owned());
        let chats = [
            KeptChat { queued: vec![message], ..KeptChat::default() },
            KeptChat { starting: Some(starting), ..KeptChat::default() },
            KeptChat { title, ..KeptChat::default() },
        ];
        let ids = ["w1", "w2", "w3"];
        for (id, chat) in ids.iter().zip(chats) {
            store.set_config.unbounded(((*id).into(), begun(&format!("echo:/{id}")))).await.unwrap();
            let chat = KeptChat { uri: format!("ahp-chat:/{id}"), ..chat };
            store.set_chats.unbounded(((*id).into(), vec![KeptChat::default(), chat])).await.unwrap();
        }
        assert_eq!(waiting.unbounded(()).await.unwrap(), ["w1", "w2"]);
        let idle = KeptChat { uri: "ahp-chat:/w1".into(), ..KeptChat::default() };
        store.set_chats.unbounded(("w1".into(), vec![KeptChat::default(), idle])).await.unwrap();
        assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2"]);
        if let (Some(set_turn), Some(drop_turns)) = (&store.set_turn, &store.drop_turns) {
            let set = async |session: &str, place: u64, unended: bool| {
                let turn = KeptTurn { unended, ..kept_turn("\"unended\":true") };
                let chat = format!("ahp-chat:/{session}");
                set_turn.unbounded((session.into(), chat, place, turn)).await.unwrap();
            };
            set("w1", 0, false).await;
            assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2"]);
            // In both ways, and named once.
            set("w2", 0, true).await;
            set("w1", 1, true).await;
            set("w1", 1, true).await;
            set("w3", 0, true).await;
            set("w3", 1, true).await;
            assert_eq!(waiting.unbounded(()).await.unwrap(), ids);
            set("w1", 1, false).await;
            set("w3", 0, false).await;
            assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2", "w3"]);
            drop_turns.unbounded(("w3".into(), "ahp-chat:/w3".into(), 1)).await.unwrap();
            assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2"]);
            set("w3", 1, true).await;
            // A chat that the session no longer lists never goes on.
            store.set_chats.unbounded(("w3".into(), vec![KeptChat::default()])).await.unwrap();
            assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2"]);
            // A session that has stored no list has its first chat.
            let begun = KeptTurn { unended: true, ..kept_turn("t") };
            store.set_config.unbounded(("w4".into(), self::begun("echo:/w4"))).await.unwrap();
            set_turn.unbounded(("w4".into(), "ahp-chat:/w4".into(), 0, begun)).await.unwrap();
            assert_eq!(waiting.unbounded(()).await.unwrap(), ["w2", "w4"]);
            store.forget.unbounded(("w4".into(),)).await.unwrap();
        }
        for id in ids {
            store.forget.unbounded((id.into(),)).await.unwrap();
        }
        assert_eq!(waiting.unbounded(()).await.unwrap(), [""; 0]);
    }
    if let Some(page) = &store.page {
        let after = |listed: &StoredSession| ListedPlace {
            modified_at: listed.session.modified_at.clone(),
            uri: listed.session.uri.clone(),
        };
        let ids = |page: &[StoredSession]| page.iter().map(|listed| listed.id.clone()).collect::<Vec<_>>();
        let all = page.unbounded((100, None)).await.unwrap();
        assert_eq!(ids(&all), ["d", "a", "b", "c", "e"]);
        let marked = all.iter().find(|listed| listed.id == "c").unwrap();
        assert_eq!(
            (marked.flags, &marked.session),
            (flags, &store.config.unbounded(("c".into(),)).await.unwrap().unwrap())
        );
        assert!(marked.chats.as_ref().is_none_or(|of| *of == chats));
        for size in 1..=6 {
            let (mut seen, mut place) = (Vec::new(), None);
            loop {
                let rows = page.unbounded((size, place)).await.unwrap();
                seen.extend(ids(&rows));
                place = rows.last().map(after);
                if (rows.len() as u64) < size {
                    break;
                }
            }
            assert_eq!(seen, ["d", "a", "b", "c", "e"], "in pages of {size}");
        }
        // A position does not have to be that of an existing session.
        let place = ListedPlace { modified_at: "2026-01-02T00:00:00.000Z".into(), uri: "echo:/aa".into() };
        assert_eq!(ids(&page.unbounded((2, Some(place))).await.unwrap()), ["b", "c"]);
        // A changed session moves in the listing.
        let touched = KeptSession { modified_at: "2026-01-04T00:00:00.000Z".into(), ..begun("echo:/e") };
        store.set_config.unbounded(("e".into(), touched)).await.unwrap();
        store.forget.unbounded(("a".into(),)).await.unwrap();
        assert_eq!(ids(&page.unbounded((3, None)).await.unwrap()), ["e", "d", "b"]);
    }
    for id in ["a", "b", "c", "d", "e", "nobody"] {
        store.forget.unbounded((id.into(),)).await.unwrap();
    }
    assert_eq!(count().await, 0);
}

async fn knows_whose_a_chat_is(store: &SessionStore) {
    let Some(session_of_chat) = &store.session_of_chat else { return };
    let of = async |chat: &str| session_of_chat.unbounded((chat.into(),)).await.unwrap();
    let set = async |id: &str, chats: &[(&str, bool)]| {
        let chats = chats.iter().map(|(uri, closed)| KeptChat {
            uri: (*uri).into(),
            closed: *closed,
            ..KeptChat::default()
        });
        store.set_chats.unbounded((id.into(), chats.collect())).await.unwrap();
    };
    for id in ["s", "s2"] {
        store.set_config.unbounded((id.into(), kept(&format!("echo:/{id}")))).await.unwrap();
    }
    assert_eq!(of("ahp-chat:/1").await, None);
    set("s2", &[("ahp-chat:/2", false)]).await;
    set("s", &[("ahp-chat:/1", false), ("my:/own", false), ("ahp-chat:/3", true)]).await;
    assert_eq!(of("ahp-chat:/1").await.as_deref(), Some("s"));
    assert_eq!(of("my:/own").await.as_deref(), Some("s"));
    assert_eq!(of("ahp-chat:/2").await.as_deref(), Some("s2"));
    assert_eq!(of("ahp-chat:/3").await, None, "a closed chat is nobody's");
    // While it is moved, it is in both.
    set("s2", &[("ahp-chat:/2", false), ("ahp-chat:/1", false)]).await;
    assert_eq!(of("ahp-chat:/1").await.as_deref(), Some("s"));
    set("s", &[("my:/own", true)]).await;
    assert_eq!(of("ahp-chat:/1").await.as_deref(), Some("s2"));
    assert_eq!(of("my:/own").await, None);
    store.forget.unbounded(("s2".into(),)).await.unwrap();
    assert_eq!((of("ahp-chat:/1").await, of("ahp-chat:/2").await), (None, None));
    store.forget.unbounded(("s".into(),)).await.unwrap();
}
