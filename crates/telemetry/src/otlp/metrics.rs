//! The metrics as an OTLP request, converted from the text of `GET /api/metrics`, so that each metric is declared once.

use ostler_contract::{Value, json};

use super::{attribute, resource, scope};

/// OTLP's number for values that count from the start of the process.
const CUMULATIVE: u8 = 2;
/// The kind of a metric whose labels are its content.
const INFO: &str = "info";

/// A metric with its points.
#[derive(Debug, Default)]
struct Family {
    name: String,
    help: String,
    unit: String,
    kind: String,
    points: Vec<Point>,
}

/// The values of a metric for one set of labels.
#[derive(Debug, Default)]
struct Point {
    labels: Vec<(String, String)>,
    value: f64,
    sum: f64,
    count: f64,
    /// The upper bounds of a histogram's buckets, and how many values are at or below each.
    buckets: Vec<(f64, f64)>,
}

/// The request that exports metrics in the OpenMetrics text format.
pub(super) fn request(text: &str, began: &str, now: &str) -> Value {
    let metrics: Vec<Value> = families(text).iter().map(|family| encoded(family, began, now)).collect();
    let scoped = json!([{ "scope": scope(), "metrics": metrics }]);
    json!({ "resourceMetrics": [{ "resource": resource(), "scopeMetrics": scoped }] })
}

fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            let Some(family) = families.last_mut() else { continue };
            match what {
                "HELP" => family.help = value.trim_end_matches('.').to_owned(),
                "TYPE" => family.kind = value.to_owned(),
                "UNIT" => family.unit = unit(value).to_owned(),
                _ => {}
            }
        } else if let Some(family) = families.last_mut() {
            sample(family, line);
        }
    }
    families
}

/// The unit as OTLP names it (UCUM).
fn unit(name: &str) -> &str {
    match name {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    }
}

/// Adds the sample in a line to the metric it belongs to.
fn sample(family: &mut Family, line: &str) -> Option<()> {
    let rest = line.strip_prefix(family.name.as_str())?;
    let end = rest.find(['{', ' '])?;
    let (suffix, rest) = rest.split_at(end);
    let (mut labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
    let at = family.points.iter().position(|point| point.labels == labels).unwrap_or_else(|| {
        family.points.push(Point { labels, ..Point::default() });
        family.points.len() - 1
    });
    let point = &mut family.points[at];
    match suffix {
        "_sum" => point.sum = value,
        "_count" => point.count = value,
        "_bucket" => point.buckets.push((bound?.parse().ok()?, value)),
        _ => point.value = value,
    }
    Some(())
}

/// Parses the labels up to the closing brace; returns also the rest.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &quoted[end..];
    }
}

fn encoded(family: &Family, began: &str, now: &str) -> Value {
    let points: Vec<Value> =
        family.points.iter().map(|point| encoded_point(family, point, began, now)).collect();
    let (kind, data) = match family.kind.as_str() {
        "histogram" => ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE })),
        "counter" => (
            "sum",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }),
        ),
        _ => ("gauge", json!({ "dataPoints": points })),
    };
    // OTLP has no such kind: a gauge with the labels has the name that others give it.
    let name = if family.kind == INFO { format!("{}_{INFO}", family.name) } else { family.name.clone() };
    json!({ "name": name, "description": family.help, "unit": family.unit, kind: data })
}

fn encoded_point(family: &Family, point: &Point, began: &str, now: &str) -> Value {
    let labels = point.labels.iter().map(|(name, value)| attribute(name, &value.as_str().into()));
    let mut encoded = json!({ "attributes": labels.collect::<Vec<_>>(), "timeUnixNano": now });
    if !["gauge", INFO].contains(&family.kind.as_str()) {
        encoded["startTimeUnixNano"] = began.into();
    }
    if family.kind != "histogram" {
        encoded["asDouble"] = json!(point.value);
        return encoded;
    }
    let mut below = 0.0;
    let mut counts = Vec::new();
    for (_, count) in &point.buckets {
        counts.push(Value::from(format!("{:.0}", count - below)));
        below = *count;
    }
    let bounds = point.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
    encoded["count"] = format!("{:.0}", point.count).into();
    encoded["sum"] = json!(point.sum);
    encoded["bucketCounts"] = counts.into();
    encoded["explicitBounds"] = bounds.map(|bound| json!(bound)).collect::<Vec<_>>().into();
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_metric_is_converted() {
        let text = concat!(
            "# HELP a_duration_seconds Time it takes.\n",
            "# TYPE a_duration_seconds histogram\n",
            "# UNIT a_duration_seconds seconds\n",
            "a_duration_seconds_sum{method=\"x,y\\\"}\\\\\\n\"} 1.5\n",
            "a_duration_seconds_count{method=\"x,y\\\"}\\\\\\n\"} 3\n",
            "a_duration_seconds_bucket{le=\"0.1\",method=\"x,y\\\"}\\\\\\n\"} 1\n",
            "a_duration_seconds_bucket{le=\"1.0\",method=\"x,y\\\"}\\\\\\n\"} 1\n",
            "a_duration_seconds_bucket{le=\"+Inf\",method=\"x,y\\\"}\\\\\\n\"} 3\n",
            "# HELP b Open connections.\n",
            "# TYPE b gauge\n",
            "b 2\n",
            "# HELP c_seconds CPU time.\n",
            "# TYPE c_seconds counter\n",
            "# UNIT c_seconds seconds\n",
            "c_seconds_total{plugin=\"p\"} 0.25\n",
            "c_seconds_total{plugin=\"q\"} 0.5\n",
            "# HELP d The version.\n",
            "# TYPE d info\n",
            "d_info{version=\"1\"} 1\n",
            "# EOF\n",
        );
        let request = request(text, "1", "2");
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let label = |name: &str, value: &str| json!([{ "key": name, "value": { "stringValue": value } }]);
        assert_eq!(
            metrics[3],
            json!({ "name": "d_info", "description": "The version", "unit": "", "gauge": { "dataPoints": [
                { "attributes": label("version", "1"), "timeUnixNano": "2", "asDouble": 1.0 }] } })
        );
        assert_eq!(
            metrics[0],
            json!({ "name": "a_duration_seconds", "description": "Time it takes", "unit": "s", "histogram": {
                "dataPoints": [{ "attributes": label("method", "x,y\"}\\\n"), "timeUnixNano": "2",
                    "startTimeUnixNano": "1", "count": "3", "sum": 1.5, "bucketCounts": ["1", "0", "2"],
                    "explicitBounds": [0.1, 1.0] }],
                "aggregationTemporality": 2 } })
        );
        assert_eq!(
            metrics[1],
            json!({ "name": "b", "description": "Open connections", "unit": "", "gauge": {
                "dataPoints": [{ "attributes": [], "timeUnixNano": "2", "asDouble": 2.0 }] } })
        );
        let point = |plugin: &str, value: f64| {
            json!({ "attributes": label("plugin", plugin), "timeUnixNano": "2", "startTimeUnixNano": "1",
                "asDouble": value })
        };
        assert_eq!(
            metrics[2]["sum"],
            json!({ "dataPoints": [point("p", 0.25), point("q", 0.5)], "aggregationTemporality": 2,
                "isMonotonic": true })
        );
        assert_eq!(metrics.as_array().unwrap().len(), 4);
    }
}
