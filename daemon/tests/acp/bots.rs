//! A webhook to a bot whose backend is an ACP agent.

use serde_json::{Value, json};

use crate::agent;
use crate::support::{Client, Folder};

/// Calls an endpoint of a bot that this agent answers, twice in one thread.
pub async fn a_webhook_is_answered(entry: &Value, text: &str) {
    a_webhook_gets(entry, text, str::to_owned, async |_| std::future::pending().await).await;
}

/// The same for an agent whose answer holds this of the text it is sent, while a client does something.
pub async fn a_webhook_gets(
    entry: &Value,
    text: &str,
    told: impl Fn(&str) -> String,
    meanwhile: impl AsyncFnOnce(Client),
) {
    let folder = Folder::new(json!({}));
    let plugins = json!([
        { "name": "@ostler/acp", "options": { "agents": { "fake": entry } } },
        { "name": "@ostler/bot", "options": { "root": folder.path().join("bot-folders") } },
        { "name": "@ostler/webhook" },
    ]);
    folder.write("config.json", &json!({ "port": 0, "deltaWindowMs": 0, "plugins": plugins }).to_string());
    folder.write("vault.json", r#"{ "host:in": "right" }"#);
    folder.write(
        "bots/helper.md",
        "---\nid: helper\nname: Helper\nharness: fake\nanswers: true\n---\nBe brief.\n",
    );
    folder.write("webhooks/ask.md", "---\nid: ask\nbot: bot://helper\nsecret: host:in\nreply: sync\n---\n");
    let daemon = folder.start();
    folder.wait_for_status(&daemon, "/plugins/webhook/ask", 400).await;
    let meanwhile = meanwhile(daemon.initialized("beside").await);
    tokio::pin!(meanwhile);
    for at in ["first", "second"] {
        let text = format!("{text} {at}");
        let body = json!({ "thread": "t", "text": text }).to_string();
        let (status, answer) = tokio::select! {
            answered = daemon.post("/plugins/webhook/ask", Some("right"), &body) => answered,
            () = &mut meanwhile => unreachable!(),
        };
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &answer["status"]), (200, &json!("complete")), "{answer}");
        assert!(answer["text"].as_str().unwrap().contains(&told(&text)), "{answer}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_bot_answers_a_webhook_with_the_agents_text() {
    a_webhook_is_answered(&agent::entry(json!({})), "how many horses").await;
}
