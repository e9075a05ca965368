//! The client side: small, the same for both sides, and far cheaper than what it measures. It takes frames and
//! answers apart by hand and decodes no JSON while a clock runs.

pub mod crowd;
pub mod frames;
pub mod http_load;
pub mod ws;
