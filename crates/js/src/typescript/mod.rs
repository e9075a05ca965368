use std::path::Path;
pub(crate) fn is_typescript(path: &Path) -> bool { path.extension().is_some_and(|e| ["ts","mts","cts"].iter().any(|t| e == *t)) }
pub(crate) fn has_module_syntax(_: &Path, source: &str) -> bool { source.contains("export ") || source.contains("import ") }
pub(crate) fn strip(_: &Path, source: &str) -> Result<String, String> { Ok(source.to_owned()) }
