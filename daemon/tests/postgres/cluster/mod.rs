//! Several real daemons on one real PostgreSQL. `.ci/postgres` runs these tests.

mod clock;
mod drains;
mod faults;
mod history;
pub mod hosts;
mod load;
mod log;
mod ownership;
mod relay;
mod runs;
