//! The format of a record: the body field as the body, the others as frontmatter.

use std::sync::Arc;

use ostler_contract::id::SLUG_RULE;
use ostler_contract::{JsonObject, Slug, Value};

use super::encoded::EncodedRecord;
use super::find::Finder;
use crate::folder::Format;
use crate::frontmatter;

pub(crate) struct RecordFormat {
    pub(crate) body: Option<String>,
}

impl RecordFormat {
    pub(crate) fn text(&self, mut record: JsonObject) -> String {
        let body = self.body.as_ref().and_then(|body| record.shift_remove(body));
        frontmatter::join(&record, body.as_ref().and_then(Value::as_str).unwrap_or_default())
    }

    /// Returns the record as it is read back: its id first, and always with a body.
    pub(crate) fn complete(
        &self,
        id: &str,
        mut fields: JsonObject,
        body: &str,
    ) -> Result<JsonObject, String> {
        match fields.shift_remove("id") {
            None => {}
            Some(Value::String(written)) if written == id => {}
            Some(Value::String(written)) => {
                return Err(format!("id {written} does not match the file name {id}"));
            }
            Some(_) => return Err("id must be a string; put it in quotes".to_owned()),
        }
        let mut record = JsonObject::with_capacity(fields.len() + 2);
        record.insert("id".to_owned(), id.into());
        record.append(&mut fields);
        if let Some(field) = &self.body {
            if record.contains_key(field) {
                return Err(format!("{field} is the Markdown body and must not be in the frontmatter"));
            }
            record.insert(field.clone(), body.into());
        }
        Ok(record)
    }
}

impl Format for RecordFormat {
    type Value = EncodedRecord;
    type Index = Finder;

    fn check_id(&self, id: &str) -> Result<(), String> {
        match Slug::parse(id) {
            Some(_) => Ok(()),
            None => Err(format!("the file name must be the record's id, a slug: {SLUG_RULE}")),
        }
    }

    fn read(&self, id: &str, text: &str, _: &mut Vec<String>) -> Result<EncodedRecord, String> {
        let (fields, body) = frontmatter::split(text).map_err(|error| error.to_string())?;
        Ok(EncodedRecord::encode(&self.complete(id, fields, &body)?))
    }

    fn same(&self, one: &EncodedRecord, other: &EncodedRecord) -> bool {
        one.equals(other)
    }

    fn reindex(
        finder: &mut Finder,
        id: &Arc<str>,
        before: Option<&EncodedRecord>,
        after: Option<&EncodedRecord>,
    ) {
        finder.moved(id, before, after);
    }
}
