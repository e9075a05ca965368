//! Generates the page of the configuration keys from their declarations; `cargo xtask generate` writes it.

use ostler_contract::Cross;
use ostler_contract::shape::{ObjectShape, Shape};

use super::keys::Config;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
/// Set by `cargo xtask generate`: the test writes the page instead of comparing it.
const WRITE: &str = "OSTLER_WRITE_PAGES";
const HEAD: &str = "| key | description |\n|---|---|\n";

/// Returns a row for each key of an object and of its nested objects.
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
    let mut table = HEAD.to_owned();
    rows(config(), "", &mut table);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(HEAD).unwrap();
    let (held, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, format!("{before}{table}\n{after}")).unwrap();
    } else {
        let stale = "docs/configuration.md is not what the declarations say; run cargo xtask generate";
        assert_eq!(format!("{HEAD}{held}\n"), table, "{stale}");
    }
}
