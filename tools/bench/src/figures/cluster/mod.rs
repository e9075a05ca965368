//! Hosts that store everything in PostgreSQL, on a server of their own: one beside a host on SQLite, a client of another host
//! beside one of the owner, two and three hosts beside one, and runs beside the jobs of a queue.

mod hosts;
mod queue;
mod relay;
mod scaling;
mod stores;

use super::super::context::Context;
use super::super::failure::Result;
use super::super::figure::Figure;
use super::super::postgres::Postgres;
use super::super::progress;

pub fn measure(context: &Context) -> Result<Vec<Figure>> {
    let Some(server) = Postgres::start(&context.root)? else {
        progress("PostgreSQL is not installed, so nothing is measured on it (apt install postgresql)");
        return Ok(Vec::new());
    };
    let mut figures = stores::measure(context, &server)?;
    figures.extend(relay::measure(context, &server)?);
    figures.extend(scaling::measure(context, &server)?);
    figures.extend(queue::measure(context, &server)?);
    Ok(figures)
}
