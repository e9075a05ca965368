//! Serves the pages of links. GET shows the request and changes nothing, because mail scanners open every link; POST
//! answers it.

use std::sync::Arc;

use ostler_contract::http::{BodyError, HeaderValue, Method, Request, Response, StatusCode, header};
use ostler_engine::Principal;
use ostler_protocol::grants::Grant;
use ostler_protocol::origins::WayIn;
use ostler_server::{Guard, HostNames, Mount};

use super::client::{Client, Failed, Now};
use super::links::{Answerer, Link, State};
use super::page::{self, RequestDetails};
use super::request::{Form, Request as Asked, SHOWN};
use super::{Notify, PATH, TEST};

/// The maximum size of a form.
const FORM_LIMIT: usize = 256 * 1024;

/// A response instead of the page of a request.
struct Ending(StatusCode, &'static str, String);

impl Ending {
    fn response(self) -> Response {
        page::says(self.0, self.1, &self.2)
    }
}

/// Returns the mount of the links. It checks the `Host`; the token of a link is its credential.
pub fn mount(notify: &Arc<Notify>, names: HostNames) -> Mount {
    let notify = notify.clone();
    Mount::new(
        PATH,
        Guard::Host { names, what: "page" },
        Arc::new(move |request| {
            let notify = notify.clone();
            Box::pin(async move { serve(&notify, request).await })
        }),
    )
}

async fn serve(notify: &Arc<Notify>, request: Request) -> Response {
    let method = request.method().clone();
    if ![Method::GET, Method::HEAD, Method::POST].contains(&method) {
        let mut response = page::says(
            StatusCode::METHOD_NOT_ALLOWED,
            "This method is not supported",
            "Open the link in a browser.",
        );
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
        return response;
    }
    let path = request.uri().path().strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/'));
    if path == Some(TEST) {
        return page::says(
            StatusCode::OK,
            "Links of this host can be opened",
            "This page is the link of a test message. Links of other messages show a request here.",
        );
    }
    let Some(link) = path.and_then(|path| notify.links.find(path)) else { return unknown(notify) };
    let answered = match method == Method::POST {
        true => post(notify, &link, request).await,
        false => get(notify, &link).await,
    };
    answered.unwrap_or_else(Ending::response)
}

/// Returns the response for an invalid link. All callers of invalid links share one rate limit, which does not affect
/// valid links.
fn unknown(notify: &Notify) -> Response {
    if notify.guesses.is_over() {
        let mut response = page::says(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many invalid links",
            "Many links that do not exist were opened. Try again in a minute.",
        );
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        return response;
    }
    page::says(
        StatusCode::NOT_FOUND,
        "This link is not valid",
        "It is incomplete, or it is so old that the host has forgotten it. Open the session to see what it waits for.",
    )
}

/// Returns why a link cannot be used any more, as far as its own state shows.
fn over(notify: &Notify, link: &Link) -> Option<Ending> {
    let gone = |heading, message: &str| Some(Ending(StatusCode::GONE, heading, message.to_owned()));
    match link.state() {
        State::Used => {
            gone("This link was used", "A link answers one request, once. The answer was sent with it.")
        }
        State::Elsewhere => {
            gone("No answer is needed any more", "The request was answered elsewhere, or its turn ended.")
        }
        State::Ended => gone("No answer is needed any more", "The host restarted, which ended the turn."),
        State::Open if link.has_expired(notify.now()) => {
            gone("This link has expired", "Open the session to see whether it still waits for an answer.")
        }
        State::Open => None,
    }
}

/// Returns the principal that a link currently answers as; an error if the user was removed.
fn principal(notify: &Notify, link: &Link) -> Result<Principal, Ending> {
    let gate = &notify.host.access.gate;
    gate.check_users()
        .map_err(|unread| Ending(StatusCode::SERVICE_UNAVAILABLE, "Try again in a moment", unread.message))?;
    let people = gate.people().map(|people| people.now());
    match (&link.bound.answerer, people) {
        (Answerer::User(id), Some(people)) => people.person(id).map(Principal::Person).ok_or_else(|| {
            Ending(
                StatusCode::GONE,
                "This link is not valid any more",
                format!("The user {id} was removed from this host."),
            )
        }),
        (Answerer::Host, _) => Ok(gate.root()),
        (Answerer::Nobody, None) => Ok(Principal::Anyone),
        // The users file was added or removed since, so the link's principal is unknown.
        (Answerer::User(_), None) | (Answerer::Nobody, Some(_)) => Err(Ending(
            StatusCode::GONE,
            "This link is not valid any more",
            "The users of this host were set up otherwise since.".to_owned(),
        )),
    }
}

fn slow() -> Ending {
    Ending(
        StatusCode::SERVICE_UNAVAILABLE,
        "The host is busy",
        "It did not answer in time. Try again.".to_owned(),
    )
}

fn denied(why: String) -> Ending {
    Ending(StatusCode::FORBIDDEN, "Not allowed", why)
}

/// Returns the current request of a link. A session that is asleep has no requests and is not woken.
async fn asked(notify: &Notify, link: &Arc<Link>, client: &mut Client) -> Result<(Asked, Now), Ending> {
    let elsewhere = || {
        Ending(
            StatusCode::GONE,
            "No answer is needed any more",
            "The request was answered elsewhere, or its turn ended.".to_owned(),
        )
    };
    let awake = notify.host.sessions.by_uri(&link.bound.session).is_some_and(|entry| entry.is_awake());
    if !awake {
        return Err(elsewhere());
    }
    let mut now = client.session(&link.bound.session).await.map_err(|why| match why {
        Failed::Slow => slow(),
        Failed::Refused(why) => denied(why),
    })?;
    let at = now.requests.iter().position(|request| request.id == link.bound.request);
    match at {
        Some(at) => Ok((now.requests.swap_remove(at), now)),
        None => Err(elsewhere()),
    }
}

/// Connects as the host to show a request, so that viewing it does not count as a sign-in of the user. The user's
/// grants are checked before.
async fn watcher(notify: &Notify, principal: &Principal) -> Result<Client, Ending> {
    let gate = &notify.host.access.gate;
    for grant in [Grant::of("session", "state"), Grant::of("chat", "answer")] {
        gate.require(principal, &grant).map_err(|why| denied(why.message))?;
    }
    Client::open(&notify.host.front, gate.root(), WayIn::NotificationLink).await.map_err(|_| slow())
}

fn around(notify: &Notify, link: &Link, now: Now, problem: Option<String>) -> RequestDetails {
    RequestDetails {
        title: now.title,
        session: link.bound.session.clone(),
        url: notify.host.core.options.links.of(&link.bound.session),
        user: match &link.bound.answerer {
            Answerer::User(user) => Some(user.clone()),
            Answerer::Host => Some("the host".to_owned()),
            Answerer::Nobody => None,
        },
        expires: link.until.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        problem,
    }
}

async fn get(notify: &Arc<Notify>, link: &Arc<Link>) -> Result<Response, Ending> {
    over(notify, link).map_or(Ok(()), Err)?;
    let principal = principal(notify, link)?;
    let mut client = watcher(notify, &principal).await?;
    let (request, now) = asked(notify, link, &mut client).await?;
    Ok(page::request(StatusCode::OK, &request, &around(notify, link, now, None)))
}

async fn post(notify: &Arc<Notify>, link: &Arc<Link>, request: Request) -> Result<Response, Ending> {
    over(notify, link).map_or(Ok(()), Err)?;
    let form = form(notify, request).await?;
    // Answers run one after the other, so that the result of the previous one is known.
    let _answering = link.answering.lock().await;
    over(notify, link).map_or(Ok(()), Err)?;
    let principal = principal(notify, link)?;
    let mut watcher = watcher(notify, &principal).await?;
    let (asked, now) = asked(notify, link, &mut watcher).await?;
    drop(watcher);
    let again = |problem: String, now: Now| {
        Ok(page::request(StatusCode::UNPROCESSABLE_ENTITY, &asked, &around(notify, link, now, Some(problem))))
    };
    let shown = form.get(SHOWN).and_then(|values| values.first());
    if shown.is_some_and(|shown| *shown != asked.digest) {
        return again("The request has changed since it was shown. Check it again.".to_owned(), now);
    }
    let action = match asked.action(&form) {
        Ok(action) => action,
        Err(problem) => return again(problem, now),
    };
    let mut client =
        Client::open(&notify.host.front, principal, WayIn::NotificationLink).await.map_err(|_| slow())?;
    // The link is used up before the answer is sent, so the answer is never sent twice.
    let taken = notify.change(link, State::Open, State::Used).await;
    match taken {
        Ok(true) => {}
        Ok(false) => return Err(over(notify, link).unwrap_or_else(slow)),
        Err(why) => {
            notify.host.core.log.warn(format_args!("the use of a link could not be stored: {why}"));
            return Err(Ending(
                StatusCode::SERVICE_UNAVAILABLE,
                "The answer was not sent",
                "The host could not store that the link is used. Try again.".to_owned(),
            ));
        }
    }
    match client.dispatch(&asked.chat, &action).await {
        Ok(()) => {
            notify.answered(link);
            Ok(page::says(StatusCode::OK, "Answer sent", "The session continues. You can close this page."))
        }
        Err(Failed::Slow) => Err(Ending(
            StatusCode::ACCEPTED,
            "The answer was sent",
            "The host has not confirmed it yet. Open the session to see what came of it.".to_owned(),
        )),
        Err(Failed::Refused(why)) => Err(refused(notify, link, &mut client, why).await),
    }
}

/// Returns the response for a rejected answer. If the request was answered elsewhere, the link ends; if the user lacks
/// a grant, the link is open again.
async fn refused(notify: &Notify, link: &Arc<Link>, client: &mut Client, why: String) -> Ending {
    let waits = asked(notify, link, client).await;
    let (to, ending) = match waits {
        Ok(_) => (State::Open, denied(why)),
        Err(Ending(StatusCode::GONE, heading, message)) => {
            (State::Elsewhere, Ending(StatusCode::CONFLICT, heading, message))
        }
        Err(_) => (State::Open, denied(why)),
    };
    if let Err(why) = notify.change(link, State::Used, to).await {
        notify.host.core.log.warn(format_args!("the state of a link could not be stored: {why}"));
    }
    ending
}

async fn form(notify: &Notify, request: Request) -> Result<Form, Ending> {
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let is_form = media.is_some_and(|media| {
        let media = media.split(';').next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    if !is_form {
        return Err(Ending(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The answer was not sent",
            "The content type must be application/x-www-form-urlencoded.".to_owned(),
        ));
    }
    let read = notify.host.core.bodies.read(request.into_body(), FORM_LIMIT).await;
    let body = read.map_err(|why| {
        let (status, advice) = match &why {
            BodyError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, " Send a shorter answer."),
            BodyError::Slow(_) => (StatusCode::REQUEST_TIMEOUT, " Send it again."),
            BodyError::NoMemory => (StatusCode::SERVICE_UNAVAILABLE, ""),
            BodyError::Cut(_) | BodyError::TooManyValues { .. } => {
                (StatusCode::BAD_REQUEST, " Send it again.")
            }
        };
        Ending(status, "The answer was not sent", format!("{why}.{advice}"))
    })?;
    let mut form = Form::new();
    for (name, value) in url::form_urlencoded::parse(&body) {
        form.entry(name.into_owned()).or_default().push(value.into_owned());
    }
    Ok(form)
}
