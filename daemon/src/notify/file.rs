//! The file of the rules: read at the start and after every change. A file that cannot be read leaves the current rules
//! unchanged.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_ports::Stamp;

use super::rules::Rules;
use super::{FILE, Notify};

/// The interval between checks of the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The largest file that is read.
const LARGEST: u64 = 1024 * 1024;

/// Reads the rules in a folder; there are none without a file.
///
/// # Errors
/// The reason why the file cannot be read, with its name and without its values.
pub fn read(folder: &Path) -> Result<Rules, String> {
    let path = folder.join(FILE);
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    match fs::metadata(&path) {
        Ok(found) if found.len() > LARGEST => return Err(failed(&"the file is larger than 1 MiB")),
        _ => {}
    }
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Rules::default()),
        Err(error) => return Err(failed(&error)),
    };
    Rules::parse(&text).map_err(|why| failed(&why))
}

/// Whether the file differs from the one seen last.
fn has_changed(found: Option<&Metadata>, seen: Option<&Stamp>) -> bool {
    match (found, seen) {
        (None, None) => false,
        (Some(found), Some(seen)) => !seen.still(found),
        _ => true,
    }
}

/// Reads the file. Returns its stamp from before the read, so that a concurrent write is noticed at the next check.
async fn load(notify: &Notify, folder: &Path, found: Option<Metadata>) -> Option<Stamp> {
    let stamp = found.as_ref().map(Stamp::before_reading);
    let folder = folder.to_owned();
    match tokio::task::spawn_blocking(move || read(&folder)).await {
        Ok(read) => take(notify, read),
        Err(_) => return None,
    }
    stamp
}

fn take(notify: &Notify, read: Result<Rules, String>) {
    let mut failed = notify.failed.lock();
    match read {
        Ok(rules) => {
            *failed = None;
            if rules != *notify.rules() {
                let count = rules.0.len();
                let plural = if count == 1 { "" } else { "s" };
                notify.set_rules(rules);
                notify.log().info(format_args!("{FILE}: {count} rule{plural} in force"));
            }
        }
        // A file that was just written is read twice; the same error is logged once.
        Err(why) if failed.as_ref() == Some(&why) => {}
        Err(why) => {
            notify.log().warn(format_args!("{why}; keeping the last valid rules"));
            *failed = Some(why);
        }
    }
}

/// Reads the file at the start.
pub(super) async fn first(notify: &Notify, folder: &Path) -> Option<Stamp> {
    match fs::metadata(folder.join(FILE)) {
        Ok(found) => load(notify, folder, Some(found)).await,
        Err(_) => None,
    }
}

/// Reads the file after every change, for as long as the host runs.
pub(super) async fn follow(notify: Arc<Notify>, folder: PathBuf, mut seen: Option<Stamp>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // The check takes microseconds; a blocking thread for it would stay for seconds each time.
        let found = fs::metadata(folder.join(FILE)).ok();
        if has_changed(found.as_ref(), seen.as_ref()) {
            seen = load(&notify, &folder, found).await;
        }
    }
}
