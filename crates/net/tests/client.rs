//! What goes out and what comes back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{Empty, Full};
use ostler_net::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each connection once with these bytes; tells what it was sent.
async fn server(answer: &'static str) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sent, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = Vec::new();
            while !String::from_utf8_lossy(&read).contains("\r\n\r\n") {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            sent.send(String::from_utf8_lossy(&read).into_owned()).unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, seen)
}

#[tokio::test]
async fn a_redirect_is_answered_and_not_followed() {
    let (url, mut seen) =
        server("HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let client = Client::default();
    let request = Request::post(format!("{url}/in")).body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers()["location"].to_str().unwrap()),
        (307, "/elsewhere")
    );
    assert!(response.body().is_none());
    let asked = seen.recv().await.unwrap();
    assert!(asked.starts_with("POST /in HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("content-length: 2\r\n"), "{asked}");
    assert!(asked.contains("user-agent: ostler/"), "{asked}");
    assert!(seen.try_recv().is_err(), "nobody was asked a second time");
}

#[tokio::test]
async fn a_body_comes_as_it_is_read_and_a_failure_says_its_cause() {
    let (url, _seen) =
        server("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
            .await;
    let client = Client::default();
    let request = Request::get(&url).body(Empty::<Bytes>::new()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 500);
    let chunks: Vec<_> = response.into_body().unwrap().collect().await;
    let body: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
    assert_eq!(body, b"oops");

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let request = Request::get(format!("http://{free}/")).body(Empty::<Bytes>::new()).unwrap();
    let why = client.send(request).await.map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("refused"), "{why}");
}
