//! The lines a store reports.

use std::sync::{Arc, Mutex};

use ostler_ports::Report;

#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub fn report(&self) -> Report {
        let lines = self.0.clone();
        Report::new(move |line| lines.lock().unwrap().push(line))
    }

    /// The lines since the last look, without the folder they name.
    pub fn taken(&self, folder: &str) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
            .into_iter()
            .map(|line| line.replace(folder, ""))
            .collect()
    }
}
