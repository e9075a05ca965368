//! The record stores: in files, and in memory. Spec: *Records*.

mod direct;
mod file;
mod find;
mod format;
mod memory;
mod packed;

pub use file::FileRecords;
pub use memory::memory_records;

use ostler_contract::id::SLUG_RULE;
use ostler_contract::points::CollectionOptions;
use ostler_contract::{JsonObject, Slug, Thrown};

/// Names that are folders of the host's own. Spec: *Records*.
const RESERVED: [&str; 5] = ["sessions", "usage", "automations", "agentPlugins", "node_modules"];

fn check_options(name: &str, options: &CollectionOptions) -> Result<(), Thrown> {
    let why = if RESERVED.contains(&name) {
        "the name is reserved for the host".to_owned()
    } else if Slug::parse(name).is_none() {
        format!("the name must be a slug: {SLUG_RULE}")
    } else if options.body.as_deref() == Some("id") {
        "body must not be id".to_owned()
    } else {
        return Ok(());
    };
    Err(Thrown::new(format_args!("records {name} cannot be opened: {why}")))
}

/// The id of a record that may be kept.
fn check_record(name: &str, body: Option<&str>, record: &JsonObject) -> Result<String, Thrown> {
    let refuse =
        |why: String| Err(Thrown::new(format_args!("records {name} cannot store this record: {why}")));
    let Some(id) = record.get("id").and_then(|id| id.as_str()).filter(|id| Slug::parse(id).is_some()) else {
        return refuse(format!("id must be a slug: {SLUG_RULE}"));
    };
    match body.and_then(|body| Some((body, record.get(body)?))) {
        Some((body, text)) if !text.is_string() && !text.is_null() => {
            refuse(format!("{body} of {id} has to be text: it is kept as the body of a file"))
        }
        _ => Ok(id.to_owned()),
    }
}
