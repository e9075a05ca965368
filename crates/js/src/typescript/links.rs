//! What a module imports from others, and what it exports.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_syntax::module_record::{ExportExportName, ExportImportName, ImportImportName};

use super::source_type;

/// The names that a module links to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// A specifier, and a name that is imported or exported from there.
    pub(crate) imports: Vec<(String, String)>,
    /// The exported names.
    pub(crate) exports: Vec<String>,
    /// Whether it exports everything that another module exports.
    pub(crate) exports_all: bool,
}

/// Reads the links of a module's source; there are none if it cannot be parsed.
pub(crate) fn links(path: &Path, source: &str) -> Links {
    let allocator = Allocator::default();
    let record = Parser::new(&allocator, source, source_type(path)).parse().module_record;
    let mut links = Links { exports_all: !record.star_export_entries.is_empty(), ..Links::default() };
    for entry in &record.import_entries {
        let name = match &entry.import_name {
            ImportImportName::Name(name) => name.name.to_string(),
            ImportImportName::Default(_) => "default".to_owned(),
            ImportImportName::NamespaceObject => continue,
        };
        links.imports.push((entry.module_request.name.to_string(), name));
    }
    for entry in &record.indirect_export_entries {
        if let (Some(from), ExportImportName::Name(name)) = (&entry.module_request, &entry.import_name) {
            links.imports.push((from.name.to_string(), name.name.to_string()));
        }
    }
    for entry in record.local_export_entries.iter().chain(&record.indirect_export_entries) {
        match &entry.export_name {
            ExportExportName::Name(name) => links.exports.push(name.name.to_string()),
            ExportExportName::Default(_) => links.exports.push("default".to_owned()),
            ExportExportName::Null => {}
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_each_form() {
        let source = "import a, { b as c, type T } from './one.js';\nimport * as all from './two.js';\n\
                      export { d as e } from './three.js';\nexport const f = 1, { g } = all;\n\
                      export default class {}\nexport * as h from './four.js';\nexport { c as 'i j' };";
        let links = links(Path::new("x.ts"), source);
        let imports: Vec<_> = links.imports.iter().map(|(from, name)| format!("{from} {name}")).collect();
        for import in ["./one.js default", "./one.js b", "./three.js d"] {
            assert!(imports.iter().any(|known| known == import), "{import}: {imports:?}");
        }
        for export in ["e", "f", "g", "default", "h", "i j"] {
            assert!(links.exports.iter().any(|known| known == export), "{export}: {:?}", links.exports);
        }
        assert!(!links.exports_all);
        assert!(super::links(Path::new("x.js"), "export * from 'y'").exports_all);
        assert_eq!(super::links(Path::new("x.js"), "export {"), Links::default());
    }
}
