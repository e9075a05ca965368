//! How a person changes a file, in one step: nobody reads half of it, however slow the machine is.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// Writes over what is there; another file takes its place where the text gets shorter, or where there is none.
pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if fs::metadata(path).is_ok_and(|found| found.len() <= text.len() as u64) {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        assert_eq!(file.write(text.as_bytes()).unwrap(), text.len());
        return;
    }
    let beside = path.with_extension("swp");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}
