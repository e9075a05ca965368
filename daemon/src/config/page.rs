//! The page of the configuration keys says what their declarations say.

use ostler_contract::Cross;
use ostler_contract::shape::{ObjectShape, Shape};

use super::settings::Config;

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// A row for each key of an object, and for those of the objects in it.
fn rows(object: &ObjectShape, under: &str, rows: &mut String) {
    for field in &object.fields {
        let key = format!("{under}{}", field.name);
        rows.push_str(&format!("| `{key}` | {} |\n", field.docs.replace('\n', " ").replace('|', "\\|")));
        nested(&field.shape, &key, rows);
    }
}

fn nested(shape: &Shape, key: &str, into: &mut String) {
    match shape {
        Shape::Optional(inner) | Shape::Frozen(inner) => nested(inner, key, into),
        Shape::List(inner) => nested(inner, &format!("{key}[]"), into),
        Shape::Object(object) => rows(object(), &format!("{key}."), into),
        _ => {}
    }
}

#[test]
fn the_page_has_each_key_as_it_is_declared() {
    let Shape::Object(config) = Config::shape() else { panic!("the configuration is an object") };
    let mut table = "| key | description |\n|---|---|\n".to_owned();
    rows(config(), "", &mut table);
    assert!(PAGE.contains(&table), "docs/configuration.md must contain this table:\n{table}");
}
