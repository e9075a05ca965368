//! Claims: each record of work is handled by one task at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// What tasks have claimed, by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<HashSet<String>>>);

/// The claim of a task. It ends when it is dropped, also with a call whose caller left.
#[derive(Debug)]
pub(crate) struct Claim {
    id: String,
    claims: Claims,
}

impl Claims {
    /// Claims a record; `None` if a task has it.
    pub fn take(&self, id: String) -> Option<Claim> {
        let is_free = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        is_free.then(|| Claim { id, claims: self.clone() })
    }
}

impl Claim {
    /// The id of the record.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_with_the_task_that_has_it() {
        let claims = Claims::default();
        let claim = claims.take("a".to_owned()).unwrap();
        assert_eq!(claim.id(), "a");
        assert!(claims.take("a".to_owned()).is_none());
        assert!(claims.take("b".to_owned()).is_some());
        drop(claim);
        assert!(claims.take("a".to_owned()).is_some());
    }
}
