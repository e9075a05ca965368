//! The report of the benchmarks: a table for humans, JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::figure::{Figure, Target};

/// The machine of the measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    processors: usize,
    system: String,
    node: Option<String>,
}

impl Machine {
    /// Returns this machine.
    pub fn here(node: Option<&str>) -> Self {
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            node: node.map(str::to_owned),
        }
    }
}

const HEAD: [&str; 6] = ["figure", "ostler", "floor", "ratio", "target", ""];

/// Formats the table.
pub fn table(machine: &Machine, measured: &[(&str, Vec<Figure>)]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(measured.iter().flat_map(|(_, figures)| figures).map(row));
    let widths: [usize; 6] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default());
    let mut text = match &machine.node {
        Some(node) => format!("{} processors, {}, Node {node}\n\n", machine.processors, machine.system),
        None => format!("{} processors, {}, no Node: ostler alone\n\n", machine.processors, machine.system),
    };
    for (at, row) in rows.iter().enumerate() {
        let line: Vec<String> = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, (cell, width))| match at {
                // Text is left-aligned, numbers are right-aligned.
                0 | 4 | 5 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
        if at == 0 {
            let _ = writeln!(text, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
        }
    }
    text
}

fn row(figure: &Figure) -> [String; 6] {
    let with_unit = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{} {}", number(value), figure.unit))
    };
    [
        figure.label.to_owned(),
        with_unit(figure.ostler()),
        with_unit(figure.floor()),
        figure.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
        match figure.target {
            None => String::new(),
            Some(Target::AtMost(most)) => format!("at most {most}x"),
            Some(Target::AtLeast(least)) => format!("at least {least}x"),
            Some(Target::Under(limit)) => format!("under {limit} {}", figure.unit),
        },
        match figure.meets() {
            None => String::new(),
            Some(true) => "meets".to_owned(),
            Some(false) => "falls short".to_owned(),
        },
    ]
}

/// Formats a number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        small if small >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns the report as JSON, including every round.
pub fn json(machine: &Machine, measured: &[(&str, Vec<Figure>)]) -> Value {
    let figures: Vec<Value> = measured
        .iter()
        .flat_map(|(name, figures)| figures.iter().map(move |figure| (name, figure)))
        .map(|(name, figure)| {
            json!({
                "benchmark": name,
                "figure": figure.label,
                "unit": figure.unit,
                "ostler": figure.ostler(),
                "floor": figure.floor(),
                "ratio": figure.ratio(),
                "target": match figure.target {
                    None => Value::Null,
                    Some(Target::AtMost(most)) => json!({ "ratioAtMost": most }),
                    Some(Target::AtLeast(least)) => json!({ "ratioAtLeast": least }),
                    Some(Target::Under(limit)) => json!({ "under": limit }),
                },
                "meets": figure.meets(),
                "rounds": figure.rounds.iter().map(|pair| json!({ "ostler": pair.ostler, "floor": pair.floor })).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "processors": machine.processors,
        "system": machine.system,
        "node": machine.node,
        "figures": figures,
    })
}

#[cfg(test)]
mod tests {
    use super::super::figure::Pair;
    use super::*;

    fn machine(node: Option<&str>) -> Machine {
        Machine { processors: 2, system: "linux x86_64".to_owned(), node: node.map(str::to_owned) }
    }

    fn measured() -> Vec<(&'static str, Vec<Figure>)> {
        let figure = |label, unit, target, ostler, floor| Figure {
            label,
            unit,
            target,
            rounds: vec![Pair { ostler, floor }],
        };
        vec![
            ("start", vec![figure("start", "ms", Some(Target::AtMost(0.25)), 12.34, Some(124.0))]),
            (
                "turn",
                vec![
                    figure(
                        "to 100 subscribers",
                        "k actions/s",
                        Some(Target::AtLeast(4.0)),
                        999.96,
                        Some(500.0),
                    ),
                    figure("p99", "ms", None, 0.0512, None),
                ],
            ),
        ]
    }

    #[test]
    fn columns_stand_under_each_other() {
        let expected = "\
2 processors, linux x86_64, Node v22.0.0

figure                         ostler            floor  ratio  target
-------------------------------------------------------------------------------------
start                         12.3 ms           124 ms  0.10x  at most 0.25x  meets
to 100 subscribers  1000 k actions/s  500 k actions/s  2.00x  at least 4x    falls short
p99                          0.051 ms                -      -
";
        let table = table(&machine(Some("v22.0.0")), &measured());
        let strip = |text: &str| text.lines().map(|line| line.replace('-', "")).collect::<Vec<_>>();
        let squeezed = |text: &str| {
            strip(text)
                .iter()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&table), squeezed(expected));
        // Every number ends where its heading ends.
        let lines: Vec<&str> = table.lines().skip(2).collect();
        let end = lines[0].find("ostler").unwrap() + "ostler".len();
        for (line, unit) in [(lines[2], "ms"), (lines[3], "k actions/s"), (lines[4], "ms")] {
            assert!(line[..end].ends_with(unit), "{line}");
        }
    }

    #[test]
    fn a_machine_without_node_is_said_to_be_one() {
        assert!(table(&machine(None), &measured()).starts_with("2 processors, linux x86_64, no Node"));
    }

    #[test]
    fn programs_are_told_every_round() {
        let json = json(&machine(None), &measured());
        assert_eq!(json["figures"][0]["meets"], true);
        assert_eq!(json["figures"][1]["meets"], false);
        assert_eq!(json["figures"][1]["rounds"], json!([{ "ostler": 999.96, "floor": 500.0 }]));
        assert_eq!(json["figures"][2]["floor"], Value::Null);
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.05124, "0.051"),
            (1.234, "1.23"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (1234.5, "1234"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
