//! A small HTTP server on the loopback.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What came, as far as tests look at it.
#[derive(Clone, Debug, Default)]
pub struct Came {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Came {
    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is written back, and whether the connection then stays open with nothing more said.
pub struct Say {
    pub text: Vec<u8>,
    pub hang: bool,
}

impl From<String> for Say {
    fn from(text: String) -> Self {
        Self { text: text.into_bytes(), hang: false }
    }
}

pub fn ok(headers: &str, body: &str) -> Say {
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into()
}

pub struct Server {
    pub origin: String,
    pub came: Arc<Mutex<Vec<Came>>>,
    /// Told when a client goes away from a response that hangs.
    pub left: Arc<tokio::sync::Notify>,
}

impl Server {
    pub async fn new(answer: impl Fn(&Came) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (came, left) = (Arc::<Mutex<Vec<Came>>>::default(), Arc::<tokio::sync::Notify>::default());
        let (keeps, tells, answer) = (came.clone(), left.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (keeps, tells, answer) = (keeps.clone(), tells.clone(), answer.clone());
                tokio::spawn(async move { serve(socket, &keeps, &tells, &*answer).await });
            }
        });
        Self { origin, came, left }
    }

    pub fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }
}

async fn serve(
    socket: TcpStream,
    keeps: &Mutex<Vec<Came>>,
    tells: &tokio::sync::Notify,
    answer: &(dyn Fn(&Came) -> Say + Send + Sync),
) -> Option<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let mut came = Came { line: line(&mut socket).await?, ..Came::default() };
        loop {
            let header = line(&mut socket).await?;
            let Some((name, value)) = header.split_once(':') else { break };
            came.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut body = Vec::new();
        if came.header("transfer-encoding").is_some() {
            loop {
                let length = usize::from_str_radix(&line(&mut socket).await?, 16).ok()?;
                let mut chunk = vec![0; length];
                socket.read_exact(&mut chunk).await.ok()?;
                line(&mut socket).await?;
                body.extend(chunk);
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = came.header("content-length") {
            body = vec![0; length.parse().ok()?];
            socket.read_exact(&mut body).await.ok()?;
        }
        came.body = String::from_utf8_lossy(&body).into_owned();
        keeps.lock().unwrap().push(came.clone());
        let say = answer(&came);
        socket.write_all(&say.text).await.ok()?;
        if say.hang {
            let _ = socket.read(&mut [0; 1]).await;
            tells.notify_one();
            return None;
        }
    }
}

async fn line(socket: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match socket.read_line(&mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}
