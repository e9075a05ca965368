//! The members of the body of a request.

use schemars::generate::SchemaSettings;

use super::rows::Row;

/// A member of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Whether a body without it is rejected.
    pub required: bool,
}

impl Row {
    /// The members of the body.
    pub fn members(&self) -> Vec<Member> {
        let Some(body) = self.body else { return Vec::new() };
        let settings = SchemaSettings::draft2020_12().for_deserialize();
        let mut generator = settings.with(|with| with.inline_subschemas = true).into_generator();
        let schema = body(&mut generator).to_value();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required = |name: &str| {
            schema["required"]
                .as_array()
                .is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
        };
        properties.map(|(name, _)| Member { name: name.clone(), required: required(name) }).collect()
    }
}
