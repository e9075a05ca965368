//! What plugins may count on, with native ones as the subjects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use ostler_contract::events::{Event, EventName};
use ostler_contract::points::RecordChange;
use ostler_contract::{Call, Plugin, PluginHost, Thrown, json};
use ostler_ports::memory_records;
use ostler_testkit::{Builder, MemoryHost, cases};
use tokio::sync::Notify;

fn plugin(
    spec: &'static str,
    apply: impl Fn(PluginHost) -> Result<(), Thrown> + Send + Sync + 'static,
) -> Plugin {
    Plugin::new(spec, move |host, _| {
        let applied = apply(host);
        Box::pin(async move { applied })
    })
}

fn subject(apply: impl Fn(&PluginHost) -> Result<(), Thrown> + Send + Sync + 'static) -> Builder {
    MemoryHost::builder().plugin(plugin("@test/subject", move |host| apply(&host)), json!({}))
}

#[tokio::test]
async fn events_are_told_with_their_fields() {
    let builder = subject(|host| {
        for name in cases::EVENTS {
            let name: EventName = serde_json::from_value(json!(name)).unwrap();
            host.on(
                name,
                Call::new(
                    |(event, context): (ostler_contract::Frozen<_>, ostler_contract::Frozen<_>)| async move {
                        let event: ostler_contract::events::Event = event.0;
                        let context: ostler_contract::PluginContext = context.0;
                        context.log.call((serde_json::to_string(&event).unwrap(),))
                    },
                ),
            )?;
        }
        Ok(())
    });
    cases::events_are_told_with_their_fields(builder).await;
}

#[tokio::test]
async fn listeners_run_in_order_and_a_throw_stops_nothing() {
    let builder = subject(|host| {
        let first = host.clone();
        host.on(
            EventName::TurnEnd,
            Call::new(move |_| {
                let host = first.clone();
                async move {
                    host.log("first begun".into())?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    host.log("first ended".into())?;
                    Err("boom".into())
                }
            }),
        )?;
        for line in ["second", "third"] {
            let host_of = host.clone();
            host.on(EventName::TurnEnd, Call::now(move |_| host_of.log(line.into())))?;
        }
        Ok(())
    });
    cases::listeners_run_in_order_and_a_throw_stops_nothing(builder).await;
}

#[tokio::test]
async fn what_is_said_is_announced_until_listening_was_heard() {
    let builder = subject(|host| {
        host.say("early".into())?;
        let saying = host.clone();
        host.on(EventName::Listening, Call::now(move |_| saying.say("while".into())))
    });
    cases::what_is_said_is_announced_until_listening_was_heard(builder).await;
}

#[tokio::test]
async fn connect_is_refused_while_plugins_are_applied() {
    let builder = subject(|host| host.log(host.connect().unwrap_err().message));
    cases::connect_is_refused_while_plugins_are_applied(builder).await;
}

#[tokio::test]
async fn records_asked_for_in_apply_wait_for_every_plugin() {
    let builder = subject(|host| {
        let notes = host.records("notes".into(), None)?;
        let watching = host.clone();
        notes.watch.call((Call::now(move |(change,): (RecordChange,)| {
            watching.log(format!("{} {}", change.r#type.as_str(), change.id))
        }),))?;
        let put = notes.put.call((json!({ "id": "a", "n": 1 }).as_object().unwrap().clone(),));
        let host = host.clone();
        tokio::spawn(async move {
            put.await.unwrap();
            host.log("put".into()).unwrap();
            let got = notes.get.call(("a".into(),)).await.unwrap();
            host.log(json!(got).to_string()).unwrap();
        });
        Ok(())
    });
    let later = Plugin::new("@test/later", |host, _| {
        Box::pin(async move {
            // Whatever is asked for too early would be done by now.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            host.log("applied".into())
        })
    });
    let builder = builder.plugin(later, json!({})).records(memory_records());
    cases::records_asked_for_in_apply_wait_for_every_plugin(builder).await;
}

#[tokio::test(start_paused = true)]
async fn the_host_closes_in_order() {
    let first = plugin("@test/first", |host| {
        let (one, two) = (host.clone(), host.clone());
        host.register_close(Call::new(move |()| {
            let one = one.clone();
            async move {
                one.log("one".into())?;
                Err("boom".into())
            }
        }))?;
        host.register_close(Call::now(move |()| two.log("two".into())))
    });
    let second = plugin("@test/second", |host| {
        host.register_close(Call::new(|()| std::future::pending()))?;
        let four = host.clone();
        host.register_close(Call::now(move |()| four.log("four".into())))
    });
    let builder = MemoryHost::builder().plugin(first, json!({})).plugin(second, json!({}));
    cases::the_host_closes_in_order(builder).await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_never_answers_does_not_hold_the_end() {
    let builder = subject(|host| {
        host.on(EventName::Stopping, Call::new(|_| std::future::pending()))?;
        let log = host.clone();
        host.register_close(Call::now(move |()| log.log("closed".into())))
    });
    let host = builder.start().await;
    let begun = tokio::time::Instant::now();
    host.host.close().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let said: Vec<String> =
        host.log.all().into_iter().filter(|line| line.starts_with("plugin subject:")).collect();
    assert_eq!(
        said,
        [
            "plugin subject: its stopping listener did not answer within 5 seconds; the host stops without it",
            "plugin subject: closed",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_limit_are_dropped_while_a_listener_does_not_return() {
    const MOST: usize = 65_536;
    let (release, heard) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (released, counted) = (release.clone(), heard.clone());
    let builder = subject(move |host| {
        let (released, counted) = (released.clone(), counted.clone());
        host.on(
            EventName::SessionEnd,
            Call::new(move |_| {
                let (released, counted) = (released.clone(), counted.clone());
                async move {
                    if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                        released.notified().await;
                    }
                    Ok(())
                }
            }),
        )
    });
    let host = builder.start().await;
    let events = &host.host.core.events;
    let ended = || Event::SessionEnd { session: "stage:/1".into(), reason: "disposed".into() };
    let lines = || {
        let lines = host.log.all().into_iter();
        lines.filter(|line| line.starts_with("plugin subject:")).collect::<Vec<_>>()
    };
    events.raise(ended());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    for _ in 0..MOST {
        events.raise(ended());
    }
    assert_eq!(lines(), [""; 0]);
    for _ in 0..3 {
        events.raise(ended());
    }
    let blocked = "plugin subject: its session_end listener has not returned; 65536 events wait, and further ones are \
                   dropped";
    assert_eq!(lines(), [blocked]);
    // An event that a caller waits for is not dropped.
    let mut waiting = Box::pin(events.raise_and_wait(ended()));
    assert!(waiting.as_mut().now_or_never().is_none());
    release.notify_one();
    waiting.await;
    assert_eq!(heard.load(Ordering::Relaxed), 1 + MOST + 1);
    let returned = "plugin subject: its session_end listener returned; 3 events were dropped";
    assert_eq!(lines(), [blocked, returned]);
    // There is room again.
    events.raise(ended());
    events.all_heard().await;
    assert_eq!(heard.load(Ordering::Relaxed), 1 + MOST + 2);
    assert_eq!(lines(), [blocked, returned]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_closes_does_not_hold_the_end() {
    let stage = ostler_testkit::Stage::default().never_closing();
    let host = MemoryHost::builder().plugin(stage.plugin(), json!({})).start().await;
    let mut client = host.raw();
    client.initialize("c").await;
    client.request("createSession", json!({ "channel": "stage:/1" })).await.unwrap();
    let begun = tokio::time::Instant::now();
    host.host.close().await;
    assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
    let refused = client.request("createSession", json!({ "channel": "stage:/2" })).await.unwrap_err();
    assert_eq!(refused["message"], "the host is stopping");
}

#[tokio::test]
async fn listeners_hear_who_sent_a_turn_where_the_host_knows() {
    let builder = subject(|host| {
        let log = host.clone();
        host.on(
            EventName::TurnStart,
            Call::now(move |(event, _)| {
                let event: ostler_contract::Frozen<ostler_contract::events::Event> = event;
                log.log(serde_json::to_string(&event.0).unwrap())
            }),
        )
    });
    cases::listeners_hear_who_sent_a_turn_where_the_host_knows(builder).await;
}
