//! The main figures of the benchmarks over time: `benches/history.jsonl`, a line for each figure of a run, and the drawing of
//! them in the documentation.
//!
//! What is drawn are ratios to the peer that was measured in the same rounds, because figures of different runs do not compare.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// The file of the figures, in the repository.
pub const FILE: &str = "benches/history.jsonl";
/// The drawing of them.
pub const DRAWING: &str = "docs/images/history.svg";

/// A main figure, as `cargo benchmarks run --json` names it.
struct Main {
    benchmark: &'static str,
    figure: &'static str,
    title: &'static str,
}

const MAIN: [Main; 3] = [
    Main {
        benchmark: "start",
        figure: "start to first connection",
        title: "Start to first connection: time, in times that of the Node server (lower is better)",
    },
    Main {
        benchmark: "webhook",
        figure: "webhook calls, right token",
        title: "Webhook calls a second, in times those of the Node server (higher is better)",
    },
    Main {
        benchmark: "turn",
        figure: "1,000 deltas to 100 subscribers",
        title: "Actions a second to 100 subscribers, in times those of the Node server (higher is better)",
    },
];

/// Adds the main figures of a report of `cargo benchmarks run --json`; returns a line about each.
///
/// # Errors
/// A report that lacks one of them or its ratio, and files that cannot be read or written.
pub fn add(root: &Path, report: &Path, date: &str, commit: &str) -> Result<String, String> {
    let of_report = |why: &dyn std::fmt::Display| format!("{}: {why}", report.display());
    let text = fs::read_to_string(report).map_err(|error| of_report(&error))?;
    let measured: Value = serde_json::from_str(&text).map_err(|error| of_report(&error))?;
    let path = root.join(FILE);
    let mut history = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = Vec::new();
    for Main { benchmark, figure, .. } in &MAIN {
        let found = figures(&measured)
            .find(|one| one["benchmark"] == *benchmark && one["figure"] == *figure)
            .ok_or_else(|| of_report(&format_args!("it has no figure {figure:?} of {benchmark}")))?;
        let ratio = found["ratio"]
            .as_f64()
            .ok_or_else(|| of_report(&format_args!("{figure:?} has no peer; the benchmarks need Node")))?;
        let mut row = Map::new();
        row.insert("date".to_owned(), json!(date));
        row.insert("commit".to_owned(), json!(commit));
        for field in ["benchmark", "figure", "unit", "ostler", "floor", "ratio"] {
            row.insert(field.to_owned(), found[field].clone());
        }
        let _ = writeln!(history, "{}", Value::Object(row));
        lines.push(format!("{figure}: {ratio:.2} times the peer"));
    }
    fs::write(&path, &history).map_err(|error| format!("{FILE}: {error}"))?;
    let file = root.join(DRAWING);
    fs::write(&file, drawing(root)?).map_err(|error| format!("{DRAWING}: {error}"))?;
    Ok(lines.join("; "))
}

fn figures(measured: &Value) -> impl Iterator<Item = &Value> {
    measured["figures"].as_array().into_iter().flatten()
}

/// A point of a drawing.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    date: String,
    ratio: f64,
}

const WIDTH: f64 = 760.0;
/// The height of one figure, with its title and its dates.
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 64.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 30.0;

/// Returns the drawing of the recorded figures.
///
/// # Errors
/// A line that is no figure.
pub fn drawing(root: &Path) -> Result<String, String> {
    let history = fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    let mut rows = Vec::new();
    for (at, line) in history.lines().enumerate() {
        let row: Value = serde_json::from_str(line).map_err(|error| format!("{FILE}:{}: {error}", at + 1))?;
        rows.push(row);
    }
    let height = HEIGHT * MAIN.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>The three main figures over time</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (at, Main { benchmark, figure, title }) in MAIN.iter().enumerate() {
        let of_figure = rows.iter().filter(|row| row["benchmark"] == *benchmark && row["figure"] == *figure);
        let points: Option<Vec<Point>> = of_figure
            .map(|row| Some(Point { date: row["date"].as_str()?.to_owned(), ratio: row["ratio"].as_f64()? }))
            .collect();
        let points = points.ok_or_else(|| format!("{FILE}: a line of {figure:?} has no date or no ratio"))?;
        draw(&mut svg, HEIGHT * at as f64, title, &points);
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Draws a figure below `top`.
fn draw(svg: &mut String, top: f64, title: &str, points: &[Point]) {
    let largest = points.iter().map(|point| point.ratio).fold(0.0, f64::max) * 1.15;
    let (bottom, right) = (top + HEIGHT - BOTTOM, WIDTH - RIGHT);
    let x = |at: usize| match points.len() {
        1 => right,
        count => LEFT + (right - LEFT) * at as f64 / (count - 1) as f64,
    };
    let y = |ratio: f64| bottom - (bottom - top - TOP) * ratio / largest;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\" fill=\"#1f2328\">{title}</text>",
        top + 22.0
    );
    let _ = writeln!(svg, "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#8c959f\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\" fill=\"#59636e\">0</text>",
        LEFT - 8.0
    );
    let line: Vec<String> =
        points.iter().enumerate().map(|(at, point)| format!("{:.1},{:.1}", x(at), y(point.ratio))).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#0969da\" stroke-width=\"2\"/>",
        line.join(" ")
    );
    for (at, point) in points.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#0969da\"><title>{}: {:.2}</title></circle>",
            x(at),
            y(point.ratio),
            point.date,
            point.ratio
        );
    }
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1f2328\">{:.2}</text>",
            right + 8.0,
            y(last.ratio) + 4.0,
            last.ratio
        );
        let _ = writeln!(
            svg,
            "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\" fill=\"#59636e\">{}</text>",
            bottom + 18.0,
            last.date
        );
        if points.len() > 1 {
            let _ = writeln!(
                svg,
                "<text x=\"{LEFT}\" y=\"{}\" fill=\"#59636e\">{}</text>",
                bottom + 18.0,
                first.date
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ratio: Value) -> Value {
        let figures: Vec<Value> = MAIN
            .iter()
            .map(|Main { benchmark, figure, .. }| {
                json!({ "benchmark": benchmark, "figure": figure, "unit": "ms", "ostler": 1.0, "floor": 2.0, "ratio": ratio })
            })
            .collect();
        json!({ "figures": figures })
    }

    #[test]
    fn each_run_is_a_point_of_each_figure() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("benches")).unwrap();
        fs::create_dir_all(root.path().join("docs/images")).unwrap();
        let file = root.path().join("report.json");
        for (date, ratio) in [("2026-01-01", 0.5), ("2026-01-02", 0.25)] {
            fs::write(&file, report(json!(ratio)).to_string()).unwrap();
            add(root.path(), &file, date, "0123456789").unwrap();
        }
        let svg = fs::read_to_string(root.path().join(DRAWING)).unwrap();
        assert_eq!(svg, drawing(root.path()).unwrap());
        assert_eq!(svg.matches("<circle").count(), 2 * MAIN.len());
        // The first is twice as high above the line as the second.
        let heights: Vec<f64> = svg
            .lines()
            .filter_map(|line| line.split_once("cy=\"")?.1.split_once('"')?.0.parse().ok())
            .take(2)
            .map(|y: f64| HEIGHT - BOTTOM - y)
            .collect();
        assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");

        fs::write(&file, report(Value::Null).to_string()).unwrap();
        let why = add(root.path(), &file, "2026-01-03", "0123456789").unwrap_err();
        assert!(why.contains("has no peer"), "{why}");
        fs::write(&file, "{}").unwrap();
        let why = add(root.path(), &file, "2026-01-03", "0123456789").unwrap_err();
        assert!(why.contains("it has no figure"), "{why}");
        assert_eq!(fs::read_to_string(root.path().join(FILE)).unwrap().lines().count(), 2 * MAIN.len());
    }

    /// The drawing names figures of the benchmarks, which measure them.
    #[test]
    fn the_benchmarks_measure_the_main_figures() {
        let root = crate::tidy::root();
        for Main { benchmark, figure, .. } in &MAIN {
            let source =
                fs::read_to_string(root.join(format!("tools/bench/src/figures/{benchmark}.rs"))).unwrap();
            assert!(source.contains(&format!("\"{figure}\"")), "{figure}");
        }
    }
}
