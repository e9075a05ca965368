//! Generates the page of the configuration keys from their declarations; `cargo xtask generate` writes it.

use ostler_contract::Cross;
use ostler_contract::shape::{ObjectShape, Shape};

use super::keys::Config;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
/// Set by `cargo xtask generate`: the test writes the page instead of comparing it.
const WRITE: &str = "OSTLER_WRITE_PAGES";
/// The heading above the keys, and the beginning of the heading below them.
const BEGIN: &str = "## Keys\n\n";
const END: &str = "\n## ";

/// Adds a section for each key of an object and of its nested objects.
fn sections(object: &ObjectShape, under: &str, level: &str, text: &mut String) {
    for field in &object.fields {
        let key = format!("{under}{}", field.name);
        text.push_str(&format!("{level} `{key}`\n\n{}\n\n", field.docs));
        nested(&field.shape, &key, level, text);
    }
}

fn nested(shape: &Shape, key: &str, level: &str, into: &mut String) {
    match shape {
        Shape::Optional(inner) | Shape::Frozen(inner) => nested(inner, key, level, into),
        Shape::List(inner) => nested(inner, &format!("{key}[]"), level, into),
        Shape::Object(object) => sections(object(), &format!("{key}."), &format!("{level}#"), into),
        _ => {}
    }
}

#[test]
fn the_page_has_each_key_as_it_is_declared() {
    let Shape::Object(config) = Config::shape() else { panic!("the configuration is an object") };
    let mut text = String::new();
    sections(config(), "", "###", &mut text);
    let text = text.trim_end();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (held, after) = rest.split_once(END).unwrap();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{text}\n{END}{after}")).unwrap();
    } else {
        let stale = "docs/configuration.md is not what the declarations say; run cargo xtask generate";
        assert_eq!(held.trim_end(), text, "{stale}");
    }
}
