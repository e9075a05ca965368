//! The attacks of `peaks`: each on a separate daemon, for a few seconds.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::failure::{During, Failure, Result};
use super::super::net::ws::Ws;
use super::super::ostler::{ENDPOINT, Folder, SECRET, call};
use super::super::process::pin_thread;
use super::super::rounds::Side;
use super::kinds::{self, ASKERS, ASKS, Kind, LARGE, LONG, LONGEST, PUBLISHED_TO, PUBLISHED_URI, READS};
use super::peaks::{WASTERS, wasted};

/// How long a peer sends.
const LASTS: Duration = Duration::from_secs(2);
/// The timeout of a write, after which the peer checks whether its time is up.
const STALL: Duration = Duration::from_millis(100);
/// The same timeout with many peers.
const SHORT_STALL: Duration = Duration::from_millis(2);
/// The timeout of a response.
const LIMIT: Duration = Duration::from_secs(30);
/// Peers that each send an unfinished body.
const SLOW: usize = 1200;
/// Callers that post long JSON.
const CALLERS: usize = 40;
/// Peers that send an unfinished request head.
const HEADS: usize = 2000;
/// How long sessions are created.
const MAKING: Duration = Duration::from_secs(10);
/// The minimum number of sessions with drafts that the memory of sessions has room for.
const DRAFTS: usize = 12;
/// The endpoint with signed bodies.
const SIGNED: &str = "signed";

/// Returns the peak memory of a daemon under an attack in MB, and the waiting time of another client in ms.
///
/// # Errors
/// The daemon does not start, or it ends.
pub fn attacked(context: &Context, kind: Kind) -> Result<[f64; 2]> {
    match kind {
        Kind::Reads => reads(context),
        Kind::Attachments => attachments(context),
        Kind::Published => published(context),
        Kind::Pings => greedy(context, |_| kinds::pings(), 1, usize::MAX),
        Kind::Values => {
            let (values, unended) = (kinds::many_values(), kinds::never_ended());
            greedy(context, |at| if at % 2 == 0 { values.clone() } else { unended.clone() }, 20, 1)
        }
        Kind::Unverified => unverified(context),
        Kind::Route => route(context),
        Kind::Calls => calls(context),
        Kind::Sessions => sessions(context),
        Kind::Prompts => prompts(context),
        Kind::Snapshots => long_chat(context, "subscribe", false),
        Kind::Pages => long_chat(context, "fetchTurns", true),
        Kind::Lists => lists(context),
        Kind::Tools => tools(context),
        Kind::Queued => queued(context),
        Kind::Drafts => drafts(context),
        Kind::Heads => heads(context),
    }
}

/// Runs several peers concurrently, each on its own thread on the attackers' core.
fn together(count: usize, peer: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let peers: Vec<_> = (0..count)
            .map(|at| {
                let peer = &peer;
                scope.spawn(move || {
                    pin_thread(WASTERS);
                    peer(at)
                })
            })
            .collect();
        peers.into_iter().try_for_each(|peer| peer.join().map_err(|_| Failure::new("a thread panicked"))?)
    })
}

/// Runs peers that write bytes over a WebSocket connection and read nothing.
fn greedy(
    context: &Context,
    bytes: impl Fn(usize) -> Vec<u8>,
    peers: usize,
    times: usize,
) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let address = server.address;
    let bytes: Vec<Vec<u8>> = (0..peers.min(2)).map(bytes).collect();
    wasted(&server.process, address, || {
        together(peers, |at| {
            let mut stream = Ws::connect(address)?.into_parts().0;
            send_for_a_while(&mut stream, &bytes[at % bytes.len()], times)
        })
    })
}

/// Runs peers that initialize, send requests and read nothing.
fn ask_and_read_nothing(
    address: SocketAddr,
    peers: usize,
    asks: impl Fn(usize) -> Vec<u8> + Sync,
) -> Result<()> {
    together(peers, |at| {
        let mut stream = Ws::connect(address)?.into_parts().0;
        send_for_a_while(&mut stream, &asks(at), 1)
    })
}

fn reads(context: &Context) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    folder.write("served/large", &"0123456789abcde\n".repeat(LARGE / 16))?;
    let served = folder.path().join("served");
    let (process, address) = context.ostler.start_serving(&folder, &served)?;
    let file = json!({ "channel": "ahp-root://", "uri": uri_of(&served.join("large")) });
    wasted(&process, address, || {
        ask_and_read_nothing(address, 4, |at| kinds::asking(at, None, "resourceRead", &file, READS / 4))
    })
}

fn attachments(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let address = server.address;
    let mut client = Ws::introduced(address, "writer")?;
    let chat = made(&mut client, "echo:/attached")?;
    client.ask("subscribe", json!({ "channel": chat }))?;
    client.write(&dispatch(&chat, 1, &kinds::attaching()))?;
    let started: Value = serde_json::from_slice(&client.find(b"\"chat/turnStarted\"")?)?;
    client.until(b"\"chat/turnComplete\"")?;
    let attached = &started["params"]["action"]["message"]["attachments"][0];
    let read = kinds::reading(attached["uri"].as_str().unwrap_or_default());
    wasted(&server.process, address, || {
        ask_and_read_nothing(address, ASKERS, |at| kinds::asking(at, None, "resourceRead", &read, ASKS))
    })
}

fn published(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let address = server.address;
    let read = kinds::reading(PUBLISHED_URI);
    let mut publisher = Ws::introduced(address, "publisher")?;
    let over = AtomicBool::new(false);
    wasted(&server.process, address, || {
        std::thread::scope(|scope| {
            let publishing = scope.spawn(|| -> Result<()> {
                pin_thread(WASTERS);
                loop {
                    let asked: Value = serde_json::from_slice(&publisher.find(b"\"resourceRead\"")?)?;
                    if over.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    publisher.write(&kinds::frame(0x81, kinds::published(&asked["id"]).as_bytes()))?;
                }
            });
            let asked = ask_and_read_nothing(address, PUBLISHED_TO, |at| {
                kinds::asking(at, None, "resourceRead", &read, ASKS)
            });
            over.store(true, Ordering::Relaxed);
            // The publisher may wait for a request.
            let last = kinds::asking(PUBLISHED_TO, None, "resourceRead", &read, 1);
            Ws::connect(address)?.write(&last)?;
            publishing.join().map_err(|_| Failure::new("a thread panicked"))??;
            asked
        })
    })
}

fn uri_of(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Runs many senders that begin a body each.
fn bodies(address: SocketAddr, heads: &[String]) -> Result<()> {
    let parts: Vec<Vec<u8>> =
        heads.iter().map(|head| [head.as_bytes(), &vec![b' '; 2 << 20]].concat()).collect();
    let mut streams = Vec::new();
    for at in 0..SLOW {
        let mut stream = TcpStream::connect(address).during(address)?;
        stream.set_write_timeout(Some(SHORT_STALL))?;
        // A rejection is part of what is measured.
        let _ = stream.write_all(&parts[at % parts.len()]);
        streams.push(stream);
    }
    std::thread::sleep(LASTS);
    Ok(())
}

fn unverified(context: &Context) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    folder.endpoint(SIGNED, "automation: true\nverify: github")?;
    let (process, address) = context.ostler.start(&folder)?;
    let headers = format!("Content-Type: application/json\r\n{}", kinds::wrong_signature());
    let head = kinds::head(&format!("POST /plugins/webhook/{SIGNED}"), &address.to_string(), &headers);
    wasted(&process, address, || bodies(address, &[head]))
}

fn route(context: &Context) -> Result<[f64; 2]> {
    let plugins = [json!({ "name": "@ostler/echo" }), json!({ "name": "./collect.mjs" })];
    let folder = Folder::new(&context.root, &plugins)?;
    folder.write("collect.mjs", kinds::COLLECT)?;
    let (process, address) = context.ostler.start(&folder)?;
    let heads = kinds::COLLECTS.map(|request| kinds::head(request, &address.to_string(), ""));
    wasted(&process, address, || bodies(address, &heads))
}

fn calls(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let address = server.address;
    let request = call(address, ENDPOINT, SECRET, &kinds::long_json());
    wasted(&server.process, address, || {
        together(CALLERS, |_| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(LIMIT))?;
            // A daemon whose budget is exhausted responds before it has read the whole request.
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read(&mut [0; 512]);
            Ok(())
        })
    })
}

fn sessions(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    wasted(&server.process, server.address, || {
        let mut client = Ws::introduced(server.address, "maker")?;
        let begun = Instant::now();
        let mut made = 0;
        while begun.elapsed() < MAKING {
            made += 1;
            let session = json!({ "channel": format!("echo:/{made:032x}"), "provider": "echo" });
            client.ask("createSession", session)?;
        }
        Ok(())
    })
}

/// Creates a session of the echo backend; returns its default chat.
pub fn made(client: &mut Ws, session: &str) -> Result<Value> {
    client.ask("createSession", json!({ "channel": session, "provider": "echo" }))?;
    let subscribed = client.ask("subscribe", json!({ "channel": session }))?;
    Ok(subscribed["snapshot"]["state"]["defaultChat"].clone())
}

/// Returns the frame of an action that a client dispatches.
pub fn dispatch(chat: &Value, seq: usize, action: &Value) -> Vec<u8> {
    let params = json!({ "channel": chat, "clientSeq": seq, "action": action });
    kinds::message(&json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params }))
}

fn prompts(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let texts = ["word".repeat(LONGEST / 4), "word ".repeat((16 << 20) / 5)];
    wasted(&server.process, server.address, || {
        together(20, |at| {
            let mut client = Ws::introduced(server.address, &format!("greedy {at}"))?;
            let chat = made(&mut client, &format!("echo:/p{at}"))?;
            client.ask("subscribe", json!({ "channel": chat }))?;
            let said = dispatch(&chat, 1, &kinds::prompt(&texts[at % 2]));
            send_for_a_while(&mut client.into_parts().0, &said, 1)
        })
    })
}

/// Runs peers that request a chat of 20 MB, which an earlier daemon has stored.
fn long_chat(context: &Context, method: &str, watches: bool) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    let chat = {
        let (_process, address) = context.ostler.start(&folder)?;
        let mut client = Ws::introduced(address, "writer")?;
        let chat = made(&mut client, "echo:/long")?;
        client.ask("subscribe", json!({ "channel": chat }))?;
        for turn in 0..5 {
            let mut said = kinds::prompt(&"x".repeat(2_000_000));
            said["turnId"] = format!("t{turn}").into();
            client.write(&dispatch(&chat, turn + 1, &said))?;
            client.until(b"\"chat/turnComplete\"")?;
        }
        chat
    };
    let (process, address) = context.ostler.start(&folder)?;
    let chat = chat.as_str().unwrap_or_default();
    let (watching, page) = (watches.then(|| kinds::watching(chat)), kinds::page(chat));
    wasted(&process, address, || {
        ask_and_read_nothing(address, ASKERS, |at| kinds::asking(at, watching.as_ref(), method, &page, ASKS))
    })
}

fn lists(context: &Context) -> Result<[f64; 2]> {
    let folder = Folder::usual(&context.root)?;
    let served = folder.path().join("served");
    for name in kinds::long_names() {
        folder.write(&format!("served/{name}"), "")?;
    }
    let (process, address) = context.ostler.start_serving(&folder, &served)?;
    let uri = uri_of(&served);
    let mut client = Ws::introduced(address, "maker")?;
    for at in 0..200 {
        let chat = made(&mut client, &kinds::long_uri(at))?;
        // Sessions without a turn are not listed.
        client.ask("subscribe", json!({ "channel": chat }))?;
        client.write(&dispatch(&chat, 1, &kinds::prompt("listed")))?;
        client.until(b"\"chat/turnComplete\"")?;
    }
    let typed = json!({ "channel": "echo:/typed", "provider": "echo", "workingDirectories": [uri] });
    client.ask("createSession", typed)?;
    let asks = kinds::lists(&uri);
    wasted(&process, address, || {
        ask_and_read_nothing(address, asks.len(), |at| {
            let (method, params) = &asks[at];
            kinds::asking(at, None, method, params, ASKS)
        })
    })
}

fn tools(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    wasted(&server.process, server.address, || {
        let mut client = Ws::introduced(server.address, "greedy")?;
        let active = kinds::with_tools("greedy");
        for at in 0..60 {
            let session =
                json!({ "channel": format!("echo:/t{at}"), "provider": "echo", "activeClient": active });
            // A rejection is part of what is measured.
            let _ = client.ask("createSession", session);
        }
        Ok(())
    })
}

fn queued(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let text = "x".repeat(LONG);
    wasted(&server.process, server.address, || {
        together(4, |at| {
            let mut client = Ws::introduced(server.address, &format!("greedy {at}"))?;
            let chat = made(&mut client, &format!("echo:/q{at}"))?;
            client.ask("subscribe", json!({ "channel": chat }))?;
            client.write(&dispatch(&chat, 1, &kinds::prompt("/hang")))?;
            for nth in 0..20 {
                client.write(&dispatch(&chat, nth + 2, &kinds::queued(nth as i64, &text)))?;
                client.until(b"\"chat/pendingMessageSet\"")?;
            }
            Ok(())
        })
    })
}

fn drafts(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    let draft = kinds::draft(&"x".repeat(LONG));
    let sessions = AtomicUsize::new(0);
    let wasted = wasted(&server.process, server.address, || {
        together(4, |maker| {
            let mut client = Ws::introduced(server.address, &format!("maker {maker}"))?;
            for at in 0..12 {
                let chat = match made(&mut client, &format!("echo:/d{maker}-{at}")) {
                    // The makers are subscribed to all of these sessions, which together exceed the limit.
                    Err(refused) if refused.to_string().contains("limits.sessionMemoryMb") => break,
                    made => made?,
                };
                sessions.fetch_add(1, Ordering::Relaxed);
                client.write(&dispatch(&chat, at + 1, &draft))?;
            }
            // The daemon has read everything before it responds to this.
            client.ask("listSessions", json!({ "channel": "ahp-root://" })).map(drop)
        })
    })?;
    match sessions.into_inner() {
        made if made < DRAFTS => Err(Failure::new(format!("only {made} sessions were accepted"))),
        _ => Ok(wasted),
    }
}

fn heads(context: &Context) -> Result<[f64; 2]> {
    let server = context.start(Side::Ostler)?;
    wasted(&server.process, server.address, || {
        let mut streams = Vec::new();
        for _ in 0..HEADS {
            let mut stream = TcpStream::connect(server.address).during(server.address)?;
            let begun = [kinds::UNENDED_HEAD.as_bytes(), &[b'x'; 8 << 10]].concat();
            let _ = stream.write_all(&begun);
            streams.push(stream);
        }
        std::thread::sleep(LASTS);
        Ok(())
    })
}

/// Writes bytes `times` times or until the time is up. The daemon is expected to stop reading or to close the
/// connection.
fn send_for_a_while(stream: &mut TcpStream, bytes: &[u8], times: usize) -> Result<()> {
    stream.set_write_timeout(Some(STALL))?;
    let begun = Instant::now();
    for _ in 0..times {
        let mut left = bytes;
        while !left.is_empty() {
            if begun.elapsed() > LASTS {
                return Ok(());
            }
            match stream.write(left) {
                Ok(0) => return Ok(()),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
                Err(_) => return Ok(()),
            }
        }
    }
    std::thread::sleep(LASTS.saturating_sub(begun.elapsed()));
    Ok(())
}
