//! The cases any plugin can be the subject of, with JavaScript ones as the subjects. The native ones are beside the
//! engine.

use ostler_contract::json;
use ostler_loader::PluginConfig;
use ostler_ports::memory_records;
use ostler_testkit::{Builder, cases};

use crate::side::builder;

/// A host that loads these plugins, by their names and texts.
fn subjects(folder: &tempfile::TempDir, plugins: &[(&str, &str)]) -> Builder {
    plugins.iter().fold(builder(), |builder, (name, text)| {
        let file = folder.path().join(format!("{name}.mjs"));
        std::fs::write(&file, text).unwrap();
        builder.entry(PluginConfig::named(&file.display().to_string()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_with_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "export function apply(host) {{\n\
           for (const name of {}) host.on(name, (event, context) => context.log(JSON.stringify(event)));\n\
         }}",
        json!(cases::EVENTS)
    );
    cases::events_are_told_with_their_fields(subjects(&folder, &[("subject", &text)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_hear_who_sent_a_turn_where_the_host_knows() {
    let folder = tempfile::tempdir().unwrap();
    let text = "export function apply(host) {\n\
        host.on('turn_start', (event) => host.log(JSON.stringify(event)));\n\
      }";
    cases::listeners_hear_who_sent_a_turn_where_the_host_knows(subjects(&folder, &[("subject", text)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_run_in_order_and_a_throw_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = "export function apply(host) {\n\
        host.on('turn_end', async () => {\n\
          host.log('first begun');\n\
          await new Promise((resolve) => setTimeout(resolve, 20));\n\
          host.log('first ended');\n\
          throw Object.assign(new Error('boom'), { stack: undefined });\n\
        });\n\
        host.on('turn_end', () => { host.log('second'); return false; });\n\
        host.on('turn_end', () => host.log('third'));\n\
      }";
    cases::listeners_run_in_order_and_a_throw_stops_nothing(subjects(&folder, &[("subject", text)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_is_announced_until_listening_was_heard() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "export function apply(host) { host.say('early'); host.on('listening', () => host.say('while')); }";
    cases::what_is_said_is_announced_until_listening_was_heard(subjects(&folder, &[("subject", text)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_is_refused_while_plugins_are_applied() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "export function apply(host) { try { host.connect(); } catch (error) { host.log(error.message); } }";
    cases::connect_is_refused_while_plugins_are_applied(subjects(&folder, &[("subject", text)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_asked_for_in_apply_wait_for_every_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let subject = "export function apply(host) {\n\
        const notes = host.records('notes');\n\
        notes.watch(({ type, id }) => host.log(`${type} ${id}`));\n\
        notes.put({ id: 'a', n: 1 }).then(async () => {\n\
          host.log('put');\n\
          host.log(JSON.stringify(await notes.get('a')));\n\
        });\n\
      }";
    // Whatever is asked for too early would be done by the time this one has applied.
    let later = "export async function apply(host) {\n\
        for (let at = 0; at < 50; at += 1) await new Promise((resolve) => setImmediate(resolve));\n\
        host.log('applied');\n\
      }";
    let builder = subjects(&folder, &[("subject", subject), ("later", later)]).records(memory_records());
    cases::records_asked_for_in_apply_wait_for_every_plugin(builder).await;
}
