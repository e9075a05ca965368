//! Time zones by name.

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The database in this program.
static BUNDLED: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Returns a time zone of the system, or of this program if the system has an older database without the name.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    in_one_of([jiff::tz::db(), &BUNDLED], name)
}

fn in_one_of(databases: [&TimeZoneDatabase; 2], name: &str) -> Option<TimeZone> {
    databases.iter().find_map(|database| database.get(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_system_lacks_is_known_and_no_other() {
        let older = TimeZoneDatabase::none();
        assert!(older.get("Europe/Kyiv").is_err());
        let name_of = |name| in_one_of([&older, &BUNDLED], name)?.iana_name().map(str::to_owned);
        assert_eq!(name_of("Europe/Kyiv").as_deref(), Some("Europe/Kyiv"));
        assert_eq!(name_of("Mars/Olympus"), None);
    }
}
