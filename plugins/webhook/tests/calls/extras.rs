//! What a record may ask for beyond the specification.

use crate::support::{Outside, SECRET, World, automation, endpoint, folder, read, request, until};
use ostler_contract::http::Response;
use ostler_contract::{Value, json};

const BACK: &str = "https://hooks.example/in/a";

fn with<'a>(bearer: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("authorization", bearer)], more].concat()
}

#[tokio::test]
async fn a_delivery_sent_again_is_answered_as_the_first_and_fires_nothing() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery");
    endpoint(dir.path(), "talk", "bot: bot://echo\nreply: sync\ndedupe: X-Delivery");
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    let deliver = async |world: &World, path: &str, id: &str, body: &str| {
        world.post_with(path, body.to_owned(), &with(&bearer, &[("x-delivery", id)])).await
    };
    assert_eq!(deliver(&world, "fire", "1", "{").await.0, 400, "a refusal is no first answer");
    for _ in 0..3 {
        assert_eq!(
            deliver(&world, "fire", "1", r#"{"what":"it"}"#).await,
            (202, json!({ "endpoint": "fire" }))
        );
    }
    assert_eq!(world.runs("fire").await, 1);
    assert_eq!(deliver(&world, "fire", "2", "{}").await.0, 202);
    assert_eq!(world.post("fire", "{}").await.0, 202, "a call without the header is one like any other");
    assert_eq!(world.post("fire", "{}").await.0, 202);
    assert_eq!(world.runs("fire").await, 4);

    let (first, at_once) = tokio::join!(
        deliver(&world, "talk", "1", r#"{"thread":"t","text":"/slow 50ms hello"}"#),
        deliver(&world, "talk", "1", r#"{"thread":"t","text":"/slow 50ms hello"}"#),
    );
    assert_eq!((first.0, &first.1["text"]), (200, &json!("hello")));
    assert_eq!(first, at_once, "one that comes meanwhile waits for the first");
    assert_eq!(world.chat(&world.chat_of("talk").await).await["turns"].as_array().unwrap().len(), 1);

    let rows = world.deliveries("fire", 7).await;
    assert_eq!(rows.iter().filter(|row| row["again"] == true).count(), 2);
    let world = world.again().await;
    assert_eq!(deliver(&world, "fire", "2", "{}").await.0, 202);
    assert_eq!(deliver(&world, "talk", "1", "{}").await, first, "the next start knows them");
    assert_eq!(world.runs("fire").await, 4);
}

#[tokio::test]
async fn only_so_many_first_answers_are_kept() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\ndedupe: X-Delivery");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    for at in 0..1010 {
        let id = at.to_string();
        assert_eq!(world.post_with("fire", "{}", &with(&bearer, &[("x-delivery", &id)])).await.0, 202);
    }
    assert_eq!(world.kept("webhook-repeats").await.len(), 1000);
}

#[tokio::test]
async fn an_endpoint_takes_so_many_calls_and_says_when_the_next_may_come() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true\nlimit: { calls: 2, per: 1h }");
    endpoint(dir.path(), "free", "automation: true");
    let world = World::start(&dir).await;
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(
        world.post_with("fire", "{}", &[("authorization", "Bearer wrong")]).await.0,
        401,
        "not counted"
    );
    assert_eq!((world.post("fire", "{}").await.0, world.post("fire", "{}").await.0), (202, 202));
    let response: Response = world.send(request("fire", "{}", &with(&bearer, &[]))).await;
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    let (status, body) = read(response).await;
    assert_eq!(
        (status, body),
        (429, json!({ "message": format!("The rate limit is exceeded; retry in {wait} seconds") }))
    );
    assert_eq!(world.post("free", "{}").await.0, 202);
}

#[tokio::test]
async fn a_callback_is_tried_again_until_it_is_taken() {
    let dir = folder();
    endpoint(
        dir.path(),
        "back",
        "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/\nretry: { times: 2, first: 1s }",
    );
    let world = World::start(&dir).await;
    world.posts.answer(&[Outside::Status(500)]);
    assert_eq!(world.say_back("back", "t", "hello", BACK).await.0, 202);
    let posts = world.posts.wait_for(2).await;
    assert_eq!(posts[0], posts[1]);
    assert_eq!(posts[1].1["text"], "hello");
    until(async || world.kept("webhook-callbacks").await.is_empty().then_some(())).await;
    assert!(world.host.log.has("failed: response 500; retrying in 1 seconds"));
}

#[tokio::test]
async fn a_callback_on_its_way_is_found_again_by_the_next_start() {
    let dir = folder();
    endpoint(
        dir.path(),
        "back",
        "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/\nretry: { times: 1, first: 1s }",
    );
    let world = World::start(&dir).await;
    world.posts.answer(&[Outside::Fails, Outside::Fails]);
    assert_eq!(world.say_back("back", "t", "hello", BACK).await.0, 202);
    let before = world.posts.wait_for(1).await;
    until(async || (world.kept("webhook-callbacks").await.first()?["failures"] == 1).then_some(())).await;
    let world = world.again().await;
    assert_eq!(world.posts.wait_for(1).await, before, "the same again");
    until(async || world.kept("webhook-callbacks").await.is_empty().then_some(())).await;

    world.posts.answer(&[Outside::Fails]);
    assert_eq!(world.say_back("back", "t", "hello", BACK).await.0, 202);
    until(async || {
        world.kept("webhook-callbacks").await.iter().any(|kept| kept["failures"] == 1).then_some(())
    })
    .await;
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://other.example/\nretry: true");
    let world = world.again().await;
    until(async || world.kept("webhook-callbacks").await.is_empty().then_some(())).await;
    assert!(world.host.log.has("dropped a callback of an earlier start that its endpoint no longer allows"));
    assert!(world.posts.all().is_empty(), "the record says otherwise now");
}

#[tokio::test]
async fn a_callback_without_retries_is_posted_once_by_the_next_start() {
    let dir = folder();
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
    let mut world = World::start(&dir).await;
    for taken in [true, false] {
        let (status, body) = world.say_back("back", "t", "/hang", BACK).await;
        assert_eq!(status, 202);
        let kept = world.kept("webhook-callbacks").await;
        assert_eq!((kept.len(), &kept[0]["turn"]), (1, &body["turn"]));
        world = world.again_with(if taken { &[] } else { &[Outside::Fails] }).await;
        let posts = world.posts.wait_for(1).await;
        assert_eq!((&posts[0].1["turn"], &posts[0].1["status"]), (&body["turn"], &json!("error")));
        until(async || world.kept("webhook-callbacks").await.is_empty().then_some(())).await;
        assert_eq!(world.posts.all().len(), 1);
    }
    // Its end is posted before that of a later call, if it is posted again.
    world = world.again().await;
    assert_eq!(world.say_back("back", "t", "hello", BACK).await.0, 202);
    assert_eq!(world.posts.wait_for(1).await[0].1["text"], "hello");
}

#[tokio::test]
async fn what_an_endpoint_was_sent_is_put_down_without_a_secret() {
    let dir = folder();
    endpoint(dir.path(), "fire", "automation: true");
    endpoint(dir.path(), "back", "bot: bot://echo\ncallbackPrefix: https://hooks.example/in/");
    automation(dir.path(), "fire");
    let world = World::start(&dir).await;
    let hush = "hush-hush";
    world.post("fire?key=hush-hush", json!({ "what": hush }).to_string()).await;
    world.post("fire", hush).await;
    world.post_with("fire", "{}", &[("authorization", "Bearer hush-hush")]).await;
    let (_, body) = world.say_back("back", "t", hush, &format!("{BACK}?token={hush}")).await;
    world.posts.wait_for(1).await;
    let rows = world.deliveries("fire", 2).await;
    assert_eq!((&rows[0]["status"], &rows[1]["status"]), (&json!(202), &json!(400)));
    assert_eq!(rows[1]["why"], "The body is not JSON");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    assert_eq!(world.post("fire", deep).await.0, 400);
    let why = world.deliveries("fire", 3).await[2]["why"].clone();
    assert_eq!(why, "The body is JSON with more than 127 levels of lists and objects");
    let run = rows[0]["runs"][0].as_str().unwrap();
    assert_eq!(world.chat(run).await["resource"], json!(run), "it names the run");
    let told = until(async || {
        let row = world.deliveries("back", 1).await[0].clone();
        (row["callback"] == "200").then_some(row)
    })
    .await;
    assert_eq!((&told["turn"], &told["thread"]), (&body["turn"], &json!("t")));
    assert_eq!(told["chat"], json!(world.chat_of("back").await));
    let kept = until(async || {
        let kept = world.kept("webhook-deliveries").await;
        let fire = kept.iter().find(|record| record["id"] == "fire")?.clone();
        (fire["refused"].as_array()?.len() == 1).then_some(fire)
    })
    .await;
    assert_eq!(kept["refused"][0]["status"], 401);
    let all =
        Value::from_iter(world.kept("webhook-deliveries").await.into_iter().map(Value::Object)).to_string();
    assert!(!all.contains(hush) && !all.contains(SECRET), "{all}");

    for _ in 0..60 {
        world.post("fire", "[]").await;
        world.post_with("fire", "{}", &[]).await;
    }
    let world = world.again().await;
    world.post("fire", "[2]").await;
    let kept = until(async || {
        let kept = world.kept("webhook-deliveries").await;
        let fire = kept.iter().find(|record| record["id"] == "fire")?.clone();
        (fire["deliveries"][49]["bytes"] == 3).then_some(fire)
    })
    .await;
    let lengths = (kept["deliveries"].as_array().unwrap().len(), kept["refused"].as_array().unwrap().len());
    assert_eq!(lengths, (50, 1), "bounded, and one row of the calls that were rejected for one reason");
    assert_eq!(kept["refused"][0]["times"], 61, "those of an earlier start among them");
}
