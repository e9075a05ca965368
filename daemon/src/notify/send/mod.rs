//! Messages on their way: what one says, and how it is sent. A failure never shows a credential or a link.

pub(super) mod email;
mod slack;
mod webhook;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use ostler_contract::http::{Body, HeaderValue, Method, Request, header};
use ostler_contract::points::Vault;
use ostler_contract::{Value, VaultName, json, limit};
use ostler_net::Client;

use super::request::{APPROVAL, CLIENT_TOOL, QUESTION, SIGN_IN};
use super::rules::{Facts, Rule, Target};

/// How long a server may take to take a message.
const LIMIT: Duration = Duration::from_secs(30);

/// A message about a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The same in every try, and of this message alone.
    pub id: String,
    /// The rule that sends it.
    pub rule: String,
    /// Seconds since 1970, now.
    pub now: i64,
    /// Whether it only tests the rule.
    pub is_test: bool,
    /// The session's URI.
    pub session: String,
    /// The session's title.
    pub title: String,
    /// The chat's URI.
    pub chat: String,
    /// The request's id in the session.
    pub request: String,
    /// The kind of the request.
    pub kind: &'static str,
    /// What is asked, in one line.
    pub asks: String,
    /// Whose session it is, and what started it.
    pub facts: Facts,
    /// The run that started it.
    pub run: Option<String>,
    /// The user who answers with the link.
    pub user: Option<String>,
    pub link: String,
    /// When the link expires.
    pub expires: Timestamp,
}

/// Why a message was not taken.
pub type Failure = String;

/// What messages are sent with.
#[derive(Debug, Clone, Default)]
pub struct Sender {
    http: Client,
}

impl Message {
    pub fn test(rule: &Rule, now: Timestamp, link: String) -> Self {
        Self {
            id: format!("test-{}", uuid::Uuid::new_v4().simple()),
            rule: rule.id.to_string(),
            now: now.as_second(),
            is_test: true,
            session: "ostler-test:/test".to_owned(),
            title: "Test".to_owned(),
            chat: "ostler-test:/test".to_owned(),
            request: "test".to_owned(),
            kind: APPROVAL,
            asks: "This message tests a rule of notify.yaml. Nothing waits for an answer.".to_owned(),
            facts: Facts::default(),
            run: None,
            user: rule.user.clone(),
            link,
            expires: now,
        }
    }

    /// `Approval needed: …`, in one line.
    fn headline(&self) -> String {
        let what = match (self.is_test, self.kind) {
            (true, _) => "Test",
            (false, QUESTION) => "Question",
            (false, SIGN_IN) => "Sign-in needed",
            (false, CLIENT_TOOL) => "A client has to run a tool",
            (false, _) => "Approval needed",
        };
        format!("{what}: {}", self.title)
    }

    /// Whether the link answers the request, rather than only showing it.
    fn is_answered(&self) -> bool {
        ![SIGN_IN, CLIENT_TOOL].contains(&self.kind)
    }

    fn expiry(&self) -> String {
        self.expires.strftime("%Y-%m-%d %H:%M UTC").to_string()
    }
}

impl Sender {
    /// Sends a message as a rule says.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn send(&self, vault: &Vault, rule: &Rule, message: &Message) -> Result<(), Failure> {
        match &rule.target {
            Target::Webhook { url, secret } => {
                let secret = secret_of(vault, secret).await?;
                self.post(webhook::request(url, &secret, message)?, "webhook").await
            }
            Target::Slack { url: name } => {
                let url = secret_of(vault, name).await?;
                let request = slack::request(url.trim(), message)
                    .map_err(|why| format!("the value of {name} {why}"))?;
                self.post(request, "Slack").await
            }
            Target::Email(target) => {
                let password = match &target.login {
                    Some((_, name)) => Some(secret_of(vault, name).await?),
                    None => None,
                };
                let sent = email::send(target, password, message);
                tokio::time::timeout(LIMIT, sent).await.unwrap_or_else(|_| Err(slow(&target.server)))
            }
        }
    }

    /// Posts a request. What the server says in its answer is not read: it may repeat the message.
    async fn post(&self, request: Request, what: &str) -> Result<(), Failure> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answered = tokio::time::timeout(LIMIT, self.http.send(request)).await;
        let status = match answered {
            Err(_) => return Err(slow(&host)),
            // The reason of the client ends in its cause, without the URL.
            Ok(Err(why)) => return Err(format!("{host}: {why}")),
            Ok(Ok(response)) => response.status(),
        };
        match status {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(format!(
                "{host} redirects the {what} message ({}), which is not followed",
                status.as_u16()
            )),
            status => Err(format!("{host} answered {} to the {what} message", status.as_u16())),
        }
    }
}

fn slow(host: &str) -> Failure {
    format!("{host}: no response within {} seconds", LIMIT.as_secs())
}

async fn secret_of(vault: &Vault, name: &VaultName) -> Result<String, Failure> {
    let read = vault.get.read(limit::STORE, (name.to_string(),)).await;
    let value = read.known().map_err(|why| format!("{name} could not be read: {why}"))?;
    value
        .filter(|value| !value.trim().is_empty())
        .ok_or_else(|| format!("{name} is not set; set it with: ostler vault set {name}"))
}

/// A request with a JSON body.
fn post_of(url: &str, body: String) -> Option<Request> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().ok()?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(request)
}

/// What a message says, as data.
fn data(message: &Message) -> Value {
    let Facts { owner, automation, bots } = &message.facts;
    json!({
        "rule": message.rule,
        "test": message.is_test,
        "session": message.session,
        "title": message.title,
        "chat": message.chat,
        "request": message.request,
        "kind": message.kind,
        "message": message.asks,
        "owner": owner,
        "automation": automation,
        "run": message.run,
        "bots": bots,
        "user": message.user,
        "url": message.link,
        "expiresAt": message.expires.to_string(),
    })
}

/// Whether a host is this computer.
pub(super) fn is_private(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
pub(super) fn sample() -> Message {
    Message {
        id: "n1".to_owned(),
        rule: "one".to_owned(),
        now: 1_614_265_330,
        is_test: false,
        session: "echo:/s1".to_owned(),
        title: "Deploy <b> & more".to_owned(),
        chat: "echo:/s1/chat".to_owned(),
        request: "r1".to_owned(),
        kind: "approval",
        asks: "Run `rm -rf /` <now> & here\nplease".to_owned(),
        facts: Facts { owner: Some("user:ada".to_owned()), ..Facts::default() },
        run: None,
        user: Some("ada".to_owned()),
        link: "https://host.example/notify/n1/TOKEN".to_owned(),
        expires: "2026-01-02T03:04:05Z".parse().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_computer_is_private() {
        for host in ["127.0.0.1", "127.1.2.3", "localhost", "[::1]", "::1"] {
            assert!(is_private(host), "{host}");
        }
        for host in ["127.0.0.1.example.org", "localhost.example.org", "10.0.0.1", "[::2]", ""] {
            assert!(!is_private(host), "{host}");
        }
    }
}
