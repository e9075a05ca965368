//! `@ostler/console`: the web console. The route serves static files without data. The pages load all data over the
//! Agent Host Protocol and the HTTP API of their own listener, with the rights of the user who signed in there.

mod files;

use std::collections::HashSet;
use std::sync::Arc;

use ostler_contract::events::EventName;
use ostler_contract::http::{self, HeaderValue, Method, Request, Response, StatusCode, header};
use ostler_contract::points::{Channel, Description, Reader};
use ostler_contract::{Call, JsonObject, Plugin, PluginHost, Thrown, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

pub use files::SIZE;

/// The plugin's spec.
pub const NAME: &str = "@ostler/console";
/// The scheme of the console's channel.
const SCHEME: &str = "x-console";
/// The channel that notifies pages of changes to displayed data.
const CHANGES: &str = "x-console://changes";
/// How many changes are queued for publication; a page that misses one reloads its data with the next.
const WAITING: usize = 64;
/// The content security policy of pages: only content from this listener.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Changes outside the protocol, for the pages that display them.
#[derive(Debug, Clone)]
pub struct Changes {
    told: broadcast::Sender<&'static str>,
    /// The subscribed clients.
    pages: watch::Sender<HashSet<String>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { told: broadcast::channel(WAITING).0, pages: watch::Sender::default() }
    }
}

impl Changes {
    /// Notifies the pages of a change in a topic.
    pub fn tell(&self, topic: &'static str) {
        let _ = self.told.send(topic);
    }

    /// Waits until a page is subscribed.
    pub async fn watched(&self) {
        // `self` owns the sender, so the channel stays open.
        let _ = self.pages.subscribe().wait_for(|pages| !pages.is_empty()).await;
    }
}

/// Creates the plugin. It notifies pages of the changes reported to `changes`.
pub fn plugin(changes: Changes) -> Plugin {
    Plugin::new(NAME, move |host, _| {
        let changes = changes.clone();
        Box::pin(async move { apply(&host, &changes) })
    })
    .title("Console")
}

fn apply(host: &PluginHost, changes: &Changes) -> Result<(), Thrown> {
    let (come, gone) = (changes.pages.clone(), changes.pages.clone());
    let channel = host.register_channel(
        SCHEME.into(),
        Channel {
            grant: "config:settings".into(),
            // A topic tells nothing but that a page has to read again what its user may read.
            authorize: Some(Call::now(|(uri, _): (String, Reader)| Ok(uri == CHANGES))),
            snapshot: Call::now(move |(uri, _, client): (String, _, String)| {
                if uri != CHANGES {
                    return Err(Thrown::new(format_args!("unknown channel {uri}")));
                }
                come.send_if_modified(|pages| pages.insert(client));
                Ok(json!({}))
            }),
            left: Some(Call::now(move |(client,): (String,)| {
                gone.send_if_modified(|pages| pages.remove(&client));
                Ok(())
            })),
            describe: Some(Call::now(|()| {
                let description = "Which of the things that the console shows have changed.";
                Ok(Description {
                    title: Some("Console".to_owned()),
                    description: Some(description.to_owned()),
                })
            })),
        },
    )?;
    let (changes, told) = (changes.clone(), host.clone());
    host.on(
        EventName::Listening,
        Call::new(move |_| {
            let (mut heard, channel, host) = (changes.told.subscribe(), channel.clone(), told.clone());
            tokio::spawn(async move {
                loop {
                    let topic = match heard.recv().await {
                        Ok(topic) => topic,
                        Err(RecvError::Lagged(_)) => "all",
                        Err(RecvError::Closed) => return,
                    };
                    let action = JsonObject::from_iter([
                        ("type".to_owned(), json!(format!("{SCHEME}/changed"))),
                        ("topic".to_owned(), json!(topic)),
                    ]);
                    if let Err(why) = channel.publish.call((CHANGES.to_owned(), action, None)) {
                        let _ = host.log(format!("the change of {topic} is not published: {}", why.message));
                    }
                }
            });
            async { Ok(()) }
        }),
    )?;
    let files = Arc::new(files::Files::new());
    host.register_route(Call::now(move |(request,): (Request,)| Ok(serve(&files, &request))))
}

fn serve(files: &files::Files, request: &Request) -> Response {
    let path = request.uri().path();
    let Some(name) = path.strip_prefix("/plugins/console") else {
        return http::message(StatusCode::NOT_FOUND, format_args!("{path} does not exist"));
    };
    if name.is_empty() {
        let mut response = http::message(StatusCode::PERMANENT_REDIRECT, "The console is at console/");
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/plugins/console/"));
        return response;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = http::message(StatusCode::METHOD_NOT_ALLOWED, "The console is read with GET");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Some(file) = files.get(&name[1..]) else {
        return http::message(StatusCode::NOT_FOUND, format_args!("{path} does not exist"));
    };
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == file.tag));
    let mut response = Response::new(match is_known || *request.method() == Method::HEAD {
        true => Default::default(),
        false => file.body.clone().into(),
    });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, file.media),
        // The browser revalidates each time and gets an empty answer for an unchanged file, so that no page mixes two
        // versions after an update.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::try_from(&file.tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use ostler_contract::http::Body;

    use super::*;

    fn get(path: &str, tag: Option<&str>) -> Response {
        let mut request = Request::new(Body::Empty);
        *request.uri_mut() = path.parse().unwrap();
        if let Some(tag) = tag {
            request.headers_mut().insert(header::IF_NONE_MATCH, tag.parse().unwrap());
        }
        serve(&files::Files::new(), &request)
    }

    #[tokio::test]
    async fn a_page_is_sent_once_and_nothing_else_is_there() {
        let first = get("/plugins/console/", None);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        let page = first.into_body().read(1 << 20).await.unwrap();
        let page = std::str::from_utf8(&page).unwrap();
        assert!(!page.contains("<script>") && !page.contains("<style") && !page.contains(" style="));
        let again = get("/plugins/console/", Some(&format!("\"other\", {tag}")));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(again.into_body().read(1).await.unwrap().len(), 0);
        for nothing in ["/plugins/console/nothing.js", "/plugins/console/../webhook/in", "/plugins/console//"]
        {
            assert_eq!(get(nothing, None).status(), StatusCode::NOT_FOUND, "{nothing}");
        }
        assert_eq!(get("/plugins/console", None).status(), StatusCode::PERMANENT_REDIRECT);
    }
}
