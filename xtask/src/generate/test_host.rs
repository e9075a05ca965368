//! The registration methods of the test host, `sdk/testing.js`.

use std::fs;
use std::path::Path;

use ostler_contract::points::POINTS;

/// The path of the module.
pub(super) const MODULE: &str = "sdk/testing.js";
const BEGIN: &str = "// The methods are generated from the contract by cargo xtask generate.\n";
const END: &str = "// End of the methods.\n";

/// Returns the module with the methods of the contract. `on` and `problem` do more there than to record their call.
pub(super) fn module(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join(MODULE)).map_err(|error| format!("{MODULE}: {error}"))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{MODULE} has no place for the methods"))?;
    let methods = POINTS.iter().map(|point| point.method).filter(|method| method.starts_with("register"));
    let rows: String = methods.map(|method| format!("  '{method}',\n")).collect();
    Ok(format!("{before}{BEGIN}const METHODS = [\n{rows}];\n{END}{after}"))
}
