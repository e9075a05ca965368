//! Servers that take messages: HTTP, and SMTP with TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::LIMIT;
use crate::support::tls::acceptor;

/// A request that was posted.
#[derive(Debug, Clone)]
pub struct Posted {
    pub head: String,
    pub body: String,
}

impl Posted {
    pub fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        });
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The path of the link in the message.
    pub fn path(&self) -> String {
        let json = self.json();
        let url = json["data"]["url"].as_str().or(json["blocks"][2]["elements"][0]["url"].as_str()).unwrap();
        url[url.find("/notify/").unwrap()..].to_owned()
    }
}

/// What came, and a way to wait for more.
#[derive(Debug)]
pub struct Inbox<T>(Arc<(Mutex<Vec<T>>, Notify)>);

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), Notify::new())))
    }
}

impl<T: Clone> Inbox<T> {
    fn add(&self, item: T) {
        self.0.0.lock().push(item);
        self.0.1.notify_waiters();
    }

    pub fn all(&self) -> Vec<T> {
        self.0.0.lock().clone()
    }

    /// Waits until so many have come; returns the last of them.
    pub async fn nth(&self, count: usize) -> T {
        let waits = async {
            loop {
                let more = self.0.1.notified();
                tokio::pin!(more);
                more.as_mut().enable();
                if let Some(item) = self.0.0.lock().get(count - 1).cloned() {
                    return item;
                }
                more.await;
            }
        };
        tokio::time::timeout(LIMIT, waits).await.expect("a message in time")
    }
}

/// An HTTP server that takes whatever is posted.
pub struct Receiver {
    pub url: String,
    pub inbox: Inbox<Posted>,
    /// How many requests it answers with 500 first.
    pub failing: Arc<AtomicUsize>,
}

impl Receiver {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (inbox, failing) = (Inbox::default(), Arc::new(AtomicUsize::new(0)));
        let (posted, fails) = (inbox.clone(), failing.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, posted.clone(), fails.clone()));
            }
        });
        Self { url, inbox, failing }
    }
}

async fn serve(stream: TcpStream, inbox: Inbox<Posted>, failing: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or_default() == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut body).await.unwrap();
        let fails =
            failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let status = if fails { "500 Internal Server Error" } else { "200 OK" };
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
        inbox.add(Posted { head, body: String::from_utf8(body).unwrap() });
    }
}

/// A mail that was taken.
#[derive(Debug, Clone, Default)]
pub struct Mail {
    /// The commands, those of the sign-in without what they show.
    pub commands: Vec<String>,
    /// What it was signed in with, as `user/password`.
    pub login: Option<String>,
    pub data: String,
    /// Whether all but the greeting was encrypted.
    pub encrypted: bool,
}

/// An SMTP server at `localhost`.
pub struct Smtp {
    pub port: u16,
    pub inbox: Inbox<Mail>,
}

impl Smtp {
    /// One that is encrypted after STARTTLS, or from the beginning.
    pub async fn new(tls_at_once: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inbox = Inbox::default();
        let taken = inbox.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(mail(stream, taken.clone(), tls_at_once));
            }
        });
        Self { port, inbox }
    }
}

async fn mail(stream: TcpStream, inbox: Inbox<Mail>, tls_at_once: bool) {
    if tls_at_once {
        let Ok(stream) = acceptor().accept(stream).await else { return };
        talk(BufReader::new(stream), &inbox, true, true).await;
        return;
    }
    if let Some(stream) = talk(BufReader::new(stream), &inbox, false, true).await {
        let Ok(stream) = acceptor().accept(stream).await else { return };
        talk(BufReader::new(stream), &inbox, true, false).await;
    }
}

/// Talks until the other side leaves; returns the stream where it asks for TLS.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: BufReader<S>,
    inbox: &Inbox<Mail>,
    encrypted: bool,
    greets: bool,
) -> Option<S> {
    if greets {
        stream.write_all(b"220 localhost ready\r\n").await.ok()?;
    }
    let mut mail = Mail { encrypted, ..Mail::default() };
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        let word = line.split(' ').next().unwrap().to_ascii_uppercase();
        let answer = match word.as_str() {
            "EHLO" if encrypted => "250-localhost\r\n250 AUTH PLAIN\r\n",
            "EHLO" => "250-localhost\r\n250 STARTTLS\r\n",
            "STARTTLS" => {
                stream.write_all(b"220 go ahead\r\n").await.ok()?;
                return Some(stream.into_inner());
            }
            "AUTH" => {
                use base64::Engine as _;
                let plain = line.rsplit(' ').next().unwrap();
                let plain = base64::engine::general_purpose::STANDARD.decode(plain).unwrap();
                let plain = String::from_utf8(plain).unwrap();
                let parts: Vec<&str> = plain.split('\0').collect();
                mail.login = Some(format!("{}/{}", parts[1], parts[2]));
                "235 welcome\r\n"
            }
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await.ok()?;
                let mut data = String::new();
                while !data.ends_with("\r\n.\r\n") {
                    if stream.read_line(&mut data).await.ok()? == 0 {
                        return None;
                    }
                }
                mail.data = data;
                inbox.add(std::mem::take(&mut mail));
                "250 taken\r\n"
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await.ok()?;
                return None;
            }
            _ => "250 ok\r\n",
        };
        if word != "AUTH" {
            mail.commands.push(line.to_owned());
        }
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}
