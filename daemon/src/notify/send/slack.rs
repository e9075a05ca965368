//! A message for an incoming webhook of Slack.

use ostler_contract::http::Request;
use ostler_contract::{Value, json};

use super::{Message, post_of};
use crate::notify::rules::checked_url;

/// The most characters of a text in a block: Slack takes 3,000, and each may become an entity.
const LONGEST: usize = 500;
/// The most characters of a header. Slack rejects a message with a longer one.
const LONGEST_HEADER: usize = 150;

/// The request that sends a message.
///
/// # Errors
/// What the URL has to be.
pub(super) fn request(url: &str, message: &Message) -> Result<Request, &'static str> {
    checked_url(url)?;
    post_of(url, blocks(message).to_string()).ok_or("is not a URL to post to")
}

fn blocks(message: &Message) -> Value {
    let headline = message.headline();
    let plain = |text: &str| json!({ "type": "plain_text", "text": cut(text, LONGEST_HEADER) });
    let by = match message.user.as_ref().filter(|_| message.is_answered()) {
        Some(user) => format!("The link answers as {user} and expires on {}.", message.expiry()),
        None => format!("The link expires on {}.", message.expiry()),
    };
    let mut blocks = vec![
        json!({ "type": "header", "text": plain(&headline) }),
        json!({ "type": "section", "text": { "type": "mrkdwn", "text": escaped(&cut(&message.asks, LONGEST)) } }),
    ];
    blocks.push(json!({ "type": "actions", "elements": [
        { "type": "button", "text": plain("Open the request"), "url": message.link, "style": "primary" },
    ] }));
    if !message.is_test {
        blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": escaped(&by) }] }));
    }
    json!({ "text": escaped(&cut(&headline, LONGEST)), "blocks": blocks })
}

/// Text in which nothing is markup or mentions anybody.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Shortens a text to so many characters, with the ellipsis. They are counted in UTF-16, where some count twice: Slack
/// does not say how it counts, and no other count is larger.
fn cut(text: &str, most: usize) -> String {
    if text.encode_utf16().count() <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let fits = |c: &char| {
        let fits = c.len_utf16() <= left;
        left = left.saturating_sub(c.len_utf16());
        fits
    };
    let mut shortened: String = text.chars().take_while(fits).collect();
    shortened.push('…');
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::send::sample;

    #[test]
    fn a_message_has_the_request_and_a_button_and_no_markup_of_others() {
        let message = Message { asks: "<!channel> & <https://evil.example|ok>".to_owned(), ..sample() };
        let body = blocks(&message);
        assert_eq!(
            body["blocks"][1]["text"]["text"],
            "&lt;!channel&gt; &amp; &lt;https://evil.example|ok&gt;"
        );
        assert_eq!(body["blocks"][2]["elements"][0]["url"], "https://host.example/notify/n1/TOKEN");
        assert_eq!(body["text"], "Approval needed: Deploy &lt;b&gt; &amp; more");
        for title in ["x".repeat(200), "😀".repeat(200)] {
            let body = blocks(&Message { title, ..sample() });
            let header = body["blocks"][0]["text"]["text"].as_str().unwrap();
            assert_eq!(header.encode_utf16().count(), 150, "{header}");
        }
        let exactly = "x".repeat(150);
        assert_eq!(cut(&exactly, 150), exactly);
        let long = blocks(&Message { asks: "<".repeat(5000), ..sample() });
        assert!(long["blocks"][1]["text"]["text"].as_str().unwrap().len() < 3000);
    }

    #[test]
    fn the_url_is_encrypted_or_at_this_computer() {
        assert!(request("https://hooks.slack.example/x", &sample()).is_ok());
        assert!(request("http://127.0.0.1:1/x", &sample()).is_ok());
        for bad in ["http://hooks.slack.example/x", "nonsense", ""] {
            assert!(request(bad, &sample()).is_err(), "{bad}");
        }
    }
}
