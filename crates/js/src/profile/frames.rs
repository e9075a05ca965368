//! The functions that run, by name and place.

use rquickjs::{Array, Ctx};

use crate::engine::State;

/// The maximum number of characters of a name.
const LONGEST_NAME: usize = 200;
/// The maximum number of characters of a file; the URL of a `data:` module is as long as its text.
const LONGEST_FILE: usize = 1000;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Frame {
    /// Its name; empty if it has none.
    pub(crate) name: String,
    /// The file that defines it; empty if the engine does.
    pub(crate) file: String,
    /// Where its definition begins, line and column counted from 1.
    pub(crate) at: Option<(u32, u32)>,
}

/// Returns the functions that run, the innermost first. Returns none if they could not be read, which leaves no exception.
pub(crate) fn running(ctx: &Ctx<'_>, state: &State) -> Vec<Frame> {
    let Some(reader) = state.frame_reader.borrow().clone() else { return Vec::new() };
    // Code that unwinds can run more code before the exception reaches its handler.
    let pending = ctx.has_exception().then(|| ctx.catch());
    let was_short = state.watch.memory().take_refused();
    let read =
        reader.restore(ctx).and_then(|reader| reader.call::<_, Array>(())).and_then(|listed| read(&listed));
    if read.is_err() {
        drop(ctx.catch());
    }
    // A refused allocation here is none of the plugin.
    state.watch.memory().set_refused(was_short);
    if let Some(pending) = pending {
        let _ = ctx.throw(pending);
    }
    read.unwrap_or_default()
}

fn read(listed: &Array<'_>) -> rquickjs::Result<Vec<Frame>> {
    let frame = |at: usize| {
        let (line, column): (Option<u32>, Option<u32>) = (listed.get(at + 2)?, listed.get(at + 3)?);
        Ok(Frame {
            name: shortened(listed.get(at)?, LONGEST_NAME),
            file: shortened(listed.get::<Option<String>>(at + 1)?.unwrap_or_default(), LONGEST_FILE),
            at: line.zip(column),
        })
    };
    (0..listed.len()).step_by(4).map(frame).collect()
}

fn shortened(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        text.truncate(end);
    }
    text
}
