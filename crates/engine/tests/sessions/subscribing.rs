//! A subscription begins with its snapshot, whatever is published meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ostler_contract::points::{Terminal, TerminalEvents, TerminalRequest, TerminalStore};
use ostler_contract::{Call, Func, json};
use ostler_testkit::MemoryHost;

/// How often a client subscribes.
const TIMES: u32 = 3000;

const TERMINAL: &str = "ahp-terminal:/t";

type Titled = Arc<Mutex<Option<Func<fn(String)>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_talks_all_the_time_says_nothing_before_its_snapshot() {
    let titled = Titled::default();
    let create = {
        let titled = titled.clone();
        Call::now(move |(_, events): (TerminalRequest, TerminalEvents)| {
            *titled.lock().unwrap() = Some(events.title);
            let input = Call::now(|_| Ok(()));
            Ok(Terminal { input, dispose: Call::now(|()| Ok(())), ..Terminal::default() })
        })
    };
    let register = |host: &ostler_contract::PluginHost| {
        host.register_terminals(TerminalStore { create, ..TerminalStore::default() }, None)
    };
    let host = MemoryHost::builder().own(register).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    let shell = json!({ "channel": TERMINAL, "claim": { "kind": "client", "clientId": "c" } });
    client.request("createTerminal", shell).await.unwrap();
    client.notify("unsubscribe", json!({ "channel": "ahp-root://" })).await;

    let done = Arc::new(AtomicBool::new(false));
    let talks = {
        let (done, title) = (done.clone(), titled.lock().unwrap().take().unwrap());
        std::thread::spawn(move || {
            let mut at = 0_u64;
            while !done.load(Ordering::Relaxed) {
                at += 1;
                title.call((format!("title {at}"),)).unwrap();
            }
        })
    };
    for number in 0..TIMES {
        let id = format!("s{number}");
        let params = json!({ "channel": TERMINAL });
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": "subscribe", "params": params });
        client.send(&frame.to_string()).await;
        let first = client.next_frame().await.unwrap();
        assert_eq!(first["id"], id, "the snapshot comes first, the {number}th time");
        client.notify("unsubscribe", json!({ "channel": TERMINAL })).await;
        // What was said until then is taken.
        client.request("ping", json!({ "channel": "ahp-root://" })).await.unwrap();
        client.ready_frames().await;
    }
    done.store(true, Ordering::Relaxed);
    talks.join().unwrap();
}
