//! Records: valid names, options and records of a collection. Spec: *Records*.

use ostler_protocol::JsonObject;

use crate::id::{SLUG_RULE, Slug};
use crate::points::CollectionOptions;
use crate::thrown::Thrown;

/// Names that are folders of the host's own. Spec: *Records*.
const RESERVED: [&str; 5] = ["sessions", "usage", "automations", "agentPlugins", "node_modules"];

/// Validates the name and the options of a collection.
///
/// # Errors
/// What is wrong.
pub fn check_options(name: &str, options: &CollectionOptions) -> Result<(), Thrown> {
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

/// Returns the id of a record, which is valid.
///
/// # Errors
/// What is wrong.
pub fn check_record(name: &str, body: Option<&str>, record: &JsonObject) -> Result<String, Thrown> {
    let refuse =
        |why: String| Err(Thrown::new(format_args!("records {name} cannot store this record: {why}")));
    let Some(id) = record.get("id").and_then(|id| id.as_str()).filter(|id| Slug::parse(id).is_some()) else {
        return refuse(format!("id must be a slug: {SLUG_RULE}"));
    };
    match body.and_then(|body| Some((body, record.get(body)?))) {
        Some((body, text)) if !text.is_string() && !text.is_null() => {
            refuse(format!("{body} of {id} must be text, because it is stored as the body of a file"))
        }
        _ => Ok(id.to_owned()),
    }
}
