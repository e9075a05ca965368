//! What output that is no longer stored drew and switched on: the state of the terminal where the stored output begins.

use std::sync::OnceLock;

use ostler_contract::{Budget, Charge};
use ostler_screen::Model;

/// The size of the model of a terminal for which the budget has no room.
const SMALL: (u16, u16) = (80, 24);

/// The state of a terminal before its stored output.
#[derive(Debug)]
pub(super) struct Past {
    budget: Budget,
    /// None before some output is dropped, with the charge for its memory.
    model: Option<(Model, Charge)>,
    /// The sequences for the model since its last change, with the charge for them. Not kept without room in the budget.
    dump: OnceLock<(String, Charge)>,
}

impl Past {
    pub fn new(budget: Budget) -> Self {
        Self { budget, model: None, dump: OnceLock::new() }
    }

    /// Takes output from the beginning of a text: at least this number of characters, and on to the end of the sequence
    /// that they end in. Returns how many bytes and how many characters it took.
    pub fn take(&mut self, size: (u16, u16), text: &str, least: usize) -> (usize, usize) {
        if self.model.is_none() {
            self.model = Self::model(&self.budget, size);
        }
        let Some((model, _)) = &mut self.model else { return (text.len(), text.chars().count()) };
        let taken = model.take(text, least);
        if taken.0 > 0 {
            self.dump.take();
        }
        taken
    }

    /// Returns a new model. A terminal is modelled in any case, so that its modes are known.
    fn model(budget: &Budget, (cols, rows): (u16, u16)) -> Option<(Model, Charge)> {
        let (cols, rows, charge) = match budget.try_take(Model::memory(cols, rows)) {
            Some(charge) => (cols, rows, charge),
            None => (SMALL.0, SMALL.1, budget.take_anyway(Model::memory(SMALL.0, SMALL.1))),
        };
        Some((Model::new(cols, rows)?, charge))
    }

    /// Returns whether the output so far ends between two sequences.
    pub fn is_between(&self) -> bool {
        self.model.as_ref().is_none_or(|(model, _)| model.is_between())
    }

    /// Changes the size, if the budget has room for it.
    pub fn resize(&mut self, (cols, rows): (u16, u16)) {
        let Some((model, charge)) = &mut self.model else { return };
        self.dump.take();
        if let Some(new) = self.budget.try_take(Model::memory(cols, rows)) {
            model.resize(cols, rows);
            *charge = new;
        }
    }

    /// Drops what is drawn, and the model if nothing else is left.
    pub fn erase(&mut self) {
        self.dump.take();
        if let Some((model, _)) = &mut self.model {
            model.erase();
            if model.is_new() {
                self.model = None;
            }
        }
    }

    /// Drops all.
    pub fn forget(&mut self) {
        self.dump.take();
        self.model = None;
    }

    /// Returns the sequences that bring a terminal from any state to this one.
    pub fn dump(&self) -> Option<String> {
        let (model, _) = self.model.as_ref()?;
        if let Some((dump, _)) = self.dump.get() {
            return Some(dump.clone());
        }
        let dump = model.dump();
        if let Some(charge) = self.budget.try_take(dump.len()) {
            // Fails if there is one by now, which is the same.
            let _ = self.dump.set((dump.clone(), charge));
        }
        Some(dump)
    }
}
