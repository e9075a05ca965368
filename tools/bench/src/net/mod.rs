//! The client side: small, identical for both sides, and far cheaper than the measured servers. It parses frames and
//! responses by hand and decodes no JSON during a measurement.

pub mod crowd;
pub mod frames;
pub mod http_load;
pub mod talk;
pub mod turns;
pub mod ws;
