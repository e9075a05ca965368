//! What the requests take and return that measure a plugin.

use std::collections::BTreeMap;

use ostler_contract::{Value, json};
use ostler_js::{HeapSummary, HeapUse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// The maximum length of a profile, in seconds.
pub const LONGEST: u32 = 60;
/// The length of a profile where none is given, in seconds.
pub const SECONDS: u32 = 10;
/// The number of functions that a command lists.
const LISTED: usize = 10;

/// Records a CPU profile of a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ProfilePlugin {
    /// Plugin id or configured spec.
    #[schemars(length(min = 1), extend("examples" = ["notes"]))]
    pub name: String,
    /// How long to record. Default: 10.
    #[serde(default)]
    #[schemars(range(min = 1, max = 60))]
    pub seconds: Option<u32>,
}

/// The CPU profile of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PluginProfile {
    /// Id of the plugin.
    pub plugin: String,
    /// Whether it ended early because it has the maximum number of samples.
    pub full: bool,
    /// The profile: the content of a `.cpuprofile` file.
    pub profile: CpuProfile,
}

/// A CPU profile, as V8 writes it. Times are in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuProfile {
    /// The tree of calls; the first node is its root.
    pub nodes: Vec<ProfileNode>,
    /// When it began, by a clock of its own.
    pub start_time: u64,
    /// When it ended, by the same clock.
    pub end_time: u64,
    /// The ids of nodes: each ran from the time of its sample until the next one.
    pub samples: Vec<u32>,
    /// The time of each sample since the one before.
    pub time_deltas: Vec<u64>,
}

/// A function of a profile, called along one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileNode {
    /// Its number.
    pub id: u32,
    /// The function.
    pub call_frame: CallFrame,
    /// How many samples it was the innermost function of.
    pub hit_count: u32,
    /// The ids of the functions that it called.
    pub children: Vec<u32>,
}

/// A function of a profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFrame {
    /// Its name, `(root)`, `(program)` or `(idle)`; empty if it has none.
    pub function_name: String,
    /// A number for the file.
    pub script_id: String,
    /// URL of the file that defines it; empty for a function of the engine.
    pub url: String,
    /// The line of its definition, counted from 0; -1 if there is none.
    pub line_number: i64,
    /// The column of its definition, counted from 0; -1 if there is none.
    pub column_number: i64,
}

impl CpuProfile {
    /// Converts a profile of an engine.
    pub fn of(profile: ostler_js::CpuProfile) -> Self {
        let place = |number: Option<u32>| number.map_or(-1, i64::from);
        let node = |node: ostler_js::ProfileNode| ProfileNode {
            id: node.id,
            call_frame: CallFrame {
                function_name: node.function,
                script_id: node.script.to_string(),
                url: node.url,
                line_number: place(node.at.map(|(line, _)| line)),
                column_number: place(node.at.map(|(_, column)| column)),
            },
            hit_count: node.hits,
            children: node.children,
        };
        Self {
            nodes: profile.nodes.into_iter().map(node).collect(),
            start_time: profile.start,
            end_time: profile.end,
            samples: profile.samples,
            time_deltas: profile.deltas,
        }
    }

    /// Returns the time in each function itself, without those that it called: the longest first.
    fn own_times(&self) -> Vec<(&CallFrame, u64)> {
        let frames: BTreeMap<u32, &CallFrame> =
            self.nodes.iter().map(|node| (node.id, &node.call_frame)).collect();
        let mut times: BTreeMap<&CallFrame, u64> = BTreeMap::new();
        for (sample, time) in self.samples.iter().zip(self.time_deltas.iter().skip(1)) {
            if let Some(frame) = frames.get(sample).copied() {
                *times.entry(frame).or_default() += time;
            }
        }
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        times
    }

    /// Returns it as lines for a person: how long it is, and the functions that take the most time.
    pub fn lines(&self) -> Vec<String> {
        let times = self.own_times();
        let idle = times.iter().filter(|(frame, _)| frame.function_name == "(idle)").map(|(_, time)| time);
        let all = self.end_time.saturating_sub(self.start_time);
        let busy = all.saturating_sub(idle.sum());
        let mut lines = vec![format!("{} recorded, {} of it busy", seconds(all), seconds(busy))];
        let running = times.iter().filter(|(frame, _)| frame.function_name != "(idle)");
        lines.extend(running.take(LISTED).map(|(frame, time)| {
            let percent = time.saturating_mul(100) / busy.max(1);
            format!("{:>9} {percent:>3} %  {}", seconds(*time), frame.line())
        }));
        lines
    }

    /// Returns the lines as JSON: the functions that take the most time.
    pub fn summary(&self) -> Value {
        let row = |(frame, time): &(&CallFrame, u64)| {
            json!({
                "function": frame.function_name, "place": frame.place(), "micros": time,
            })
        };
        let times = self.own_times();
        Value::Array(times.iter().take(LISTED).map(row).collect())
    }
}

impl CallFrame {
    /// Returns where it is defined, if it is known.
    fn place(&self) -> Option<String> {
        if self.line_number < 0 {
            return None;
        }
        let file = Url::parse(&self.url).ok().and_then(|url| url.to_file_path().ok());
        let file = file.map_or_else(|| self.url.clone(), |file| file.display().to_string());
        Some(format!("{file}:{}", self.line_number + 1))
    }

    fn line(&self) -> String {
        let name = if self.function_name.is_empty() { "(anonymous)" } else { &self.function_name };
        match self.place() {
            Some(place) => format!("{name} ({place})"),
            None => name.to_owned(),
        }
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

/// What a plugin has in memory. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginMemory {
    /// Id of the plugin.
    pub plugin: String,
    /// What counts against its limit: `heap`, `outside` and `workers`.
    pub used: u64,
    /// Its limit; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Its values and the code of its modules.
    pub heap: u64,
    /// What the host has for it outside its heap: memory of WebAssembly, source maps, bytes that are sent.
    pub outside: u64,
    /// What its workers use, as they last reported it.
    pub workers: u64,
    /// The heap by kind.
    pub kinds: Vec<MemoryKind>,
    /// Number of its functions that the host can call: registrations, listeners, callbacks.
    pub functions_held: u64,
    /// Number of its promises that wait for the host.
    pub promises_waiting: u64,
    /// Number of its timers.
    pub timers: u64,
    /// Number of its running workers.
    pub workers_running: u64,
}

/// The memory of one kind of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryKind {
    /// The kind.
    pub kind: String,
    /// Their number; absent where they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Their memory; absent where it is that of other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl PluginMemory {
    /// Converts a summary of an engine.
    pub fn of(plugin: &str, summary: HeapSummary) -> Self {
        let HeapSummary { used, limit, heap, outside, workers, kinds, .. } = summary;
        let kind = |HeapUse { kind, count, bytes }| MemoryKind { kind: kind.to_owned(), count, bytes };
        Self {
            plugin: plugin.to_owned(),
            used,
            limit,
            heap,
            outside,
            workers,
            kinds: kinds.into_iter().map(kind).collect(),
            functions_held: summary.functions_held,
            promises_waiting: summary.promises_waiting,
            timers: summary.timers,
            workers_running: summary.workers_running,
        }
    }

    /// Returns it as a table for a person.
    pub fn lines(&self) -> Vec<String> {
        let limit = self.limit.map(|limit| format!(" of {} MiB", limit >> 20)).unwrap_or_default();
        let mut lines = vec![format!("plugin {}: {}{limit}", self.plugin, kib(self.used))];
        let row = |kind: &str, count: Option<u64>, bytes: Option<u64>| {
            let count = count.map(|count| count.to_string()).unwrap_or_default();
            let bytes = bytes.map(kib).unwrap_or_default();
            format!("  {kind:<42} {count:>9} {bytes:>14}").trim_end().to_owned()
        };
        lines.push(row("heap", None, Some(self.heap)));
        lines.extend(
            self.kinds
                .iter()
                .map(|MemoryKind { kind, count, bytes }| row(&format!("  {kind}"), *count, *bytes)),
        );
        lines.push(row("outside of it", None, Some(self.outside)));
        lines.push(row("workers", Some(self.workers_running), Some(self.workers)));
        lines.push(row("functions that the host can call", Some(self.functions_held), None));
        lines.push(row("promises that wait for the host", Some(self.promises_waiting), None));
        lines.push(row("timers", Some(self.timers), None));
        lines
    }
}

fn kib(bytes: u64) -> String {
    format!("{}.{} KiB", bytes >> 10, ((bytes & 1023) * 10) >> 10)
}
