//! Generated programs, run on the engine and on Node: what they return is the same, but for the known differences.
//!
//! Each area in `tests/differential` makes random calls from a seed. `known.json` names the calls whose outcomes differ,
//! with the reason and the number of rows that differ. A difference that it does not name fails, and so does another number
//! of rows, so that the file only shrinks. Where there is no Node (`support::node`), nothing is compared; `.ci/run` fails
//! then. `OSTLER_SEEDS` is the number of programs of each area; with another than the usual one, numbers of rows are not
//! compared. `OSTLER_SHOWN` is how many rows of a label a failure shows, and with `OSTLER_KNOWN=1` it shows the known ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use ostler_contract::*;

const SEEDS: u64 = 40;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

/// What the programs of an area return on Node.
fn on_node(node: &Path, area: &str, seeds: u64) -> Vec<Value> {
    let ran = Command::new(node)
        .args(["--no-warnings", "--experimental-eventsource"])
        .arg(folder().join("run.mjs"))
        .args([area, "1", &seeds.to_string()])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// What they return here.
async fn here(area: &str, seeds: u64) -> Vec<Value> {
    let text = format!(
        "import program from {};\nexport const apply = (host) => host.registerTool({{ definition: {{ name: 'run' }}, \
         run: async (seed) => JSON.stringify(await program(seed)) }});",
        json!(folder().join(format!("{area}.mjs")))
    );
    let loader = Loader::default();
    let plugin = loader.text(&text).await.unwrap_or_else(|thrown| panic!("{area}: {}", thrown.for_log()));
    let mut answers = Vec::new();
    for seed in 1..=seeds {
        let answer = plugin.run("run", json!(seed)).await;
        let answer = answer.unwrap_or_else(|thrown| panic!("{area} {seed}: {}", thrown.for_log()));
        answers.push(serde_json::from_str(answer.as_str().unwrap()).unwrap());
    }
    answers
}

async fn same(area: &str) {
    let Some(node) = node() else {
        not_run("Node is not installed");
        return;
    };
    let seeds = std::env::var("OSTLER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let (theirs, ours) = (on_node(&node, area, seeds), here(area, seeds).await);
    let known = std::fs::read_to_string(folder().join("known.json")).unwrap();
    let mut known: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(&known).unwrap();
    // A label, and how many of its rows differ.
    let known: BTreeMap<String, usize> = known
        .remove(area)
        .unwrap_or_default()
        .into_iter()
        .map(|(label, known)| {
            assert!(known["reason"].is_string(), "{area}: {label} has no reason");
            (label, usize::try_from(known["rows"].as_u64().unwrap()).unwrap())
        })
        .collect();
    let show_known = std::env::var_os("OSTLER_KNOWN").is_some();
    let mut differing = BTreeMap::<String, Vec<String>>::new();
    for (seed, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
        for (ours, theirs) in ours.iter().zip(theirs).filter(|(ours, theirs)| ours != theirs) {
            let label = theirs[0].as_str().unwrap().to_owned();
            differing.entry(label).or_default().push(format!(
                "{area}, seed {}, {}\n  given {}\n  here {}\n  Node {}",
                seed + 1,
                theirs[0],
                theirs[1],
                ours[2],
                theirs[2]
            ));
        }
        assert_eq!(ours.len(), theirs.len(), "{area}, seed {}: another number of calls", seed + 1);
    }
    let shown = std::env::var("OSTLER_SHOWN").ok().and_then(|shown| shown.parse().ok()).unwrap_or(2);
    let unknown = |label: &String, rows: &Vec<String>| match known.get(label) {
        Some(known) => show_known || (seeds == SEEDS && rows.len() > *known),
        None => true,
    };
    let new: Vec<String> = differing
        .iter()
        .filter(|(label, rows)| unknown(label, rows))
        .flat_map(|(label, rows)| {
            std::iter::once(format!("{label}: {} rows differ", rows.len()))
                .chain(rows.iter().take(shown).cloned())
        })
        .collect();
    assert!(new.is_empty(), "{}", new.join("\n"));
    if seeds == SEEDS {
        let fewer: BTreeMap<&String, usize> = known
            .iter()
            .map(|(label, known)| (label, *known, differing.get(label).map_or(0, Vec::len)))
            .filter(|(_, known, rows)| known > rows)
            .map(|(label, _, rows)| (label, rows))
            .collect();
        assert!(fewer.is_empty(), "fewer rows differ, correct known.json: {fewer:?}");
    }
}

macro_rules! areas {
    ($($area:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $area() {
                same(stringify!($area)).await;
            }
        )*
    };
}

areas! { buffer calls clone events eventsource inspect intl languages mocktimers nodestreams path querystring timers url urlpattern webstreams }
