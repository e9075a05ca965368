//! The endpoints, by id. A record becomes an endpoint once, and again only after it has changed, because every call needs one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_contract::points::Collection;
use ostler_contract::read::Read;
use ostler_contract::{JsonObject, Slug};

use crate::endpoint::Endpoint;

#[derive(Debug)]
pub(crate) struct Endpoints {
    records: Collection,
    /// The valid endpoints that were called, each with its record. A call compares that record with the current one.
    parsed: Mutex<HashMap<Slug, (JsonObject, Arc<Endpoint>)>>,
}

impl Endpoints {
    pub fn new(records: Collection) -> Self {
        Self { records, parsed: Mutex::default() }
    }

    /// Returns the valid endpoint of an id, if any.
    pub async fn get(&self, id: &Slug) -> Read<Option<Arc<Endpoint>>> {
        let record = match self.records.get.read((id.to_string(),)).await {
            Read::Known(Some(record)) => record,
            Read::Known(None) => {
                self.forget(id);
                return Read::Known(None);
            }
            Read::Unknown(why) => return Read::Unknown(why),
        };
        if let Some((before, endpoint)) = self.parsed().get(id)
            && *before == record
        {
            return Read::Known(Some(endpoint.clone()));
        }
        // Others do not wait, because a long condition takes time.
        let Ok((endpoint, _)) = Endpoint::read(&record) else {
            self.forget(id);
            return Read::Known(None);
        };
        let endpoint = Arc::new(endpoint);
        self.parsed().insert(id.clone(), (record, endpoint.clone()));
        Read::Known(Some(endpoint))
    }

    /// Releases the memory of an endpoint whose record was removed or became invalid.
    pub fn forget(&self, id: &Slug) {
        self.parsed().remove(id);
    }

    fn parsed(&self) -> MutexGuard<'_, HashMap<Slug, (JsonObject, Arc<Endpoint>)>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ostler_contract::{Func, HostFunction, json};

    use super::*;

    /// A collection whose one record is the returned one.
    fn collection() -> (Collection, Arc<Mutex<Option<JsonObject>>>) {
        let record = Arc::<Mutex<Option<JsonObject>>>::default();
        let current = record.clone();
        let collection = Collection {
            get: HostFunction::now(move |(_,)| Ok(current.lock().unwrap().clone())),
            ids: HostFunction::default(),
            list: HostFunction::default(),
            find: HostFunction::default(),
            put: HostFunction::default(),
            remove: HostFunction::default(),
            watch: Func::new(|(_,)| Ok(Func::new(|()| Ok(())))),
        };
        (collection, record)
    }

    #[tokio::test]
    async fn an_endpoint_without_a_valid_record_leaves_memory() {
        let (records, record) = collection();
        let (endpoints, id) = (Endpoints::new(records), Slug::parse("deploy").unwrap());
        let valid =
            json!({ "id": "deploy", "automation": true, "secret": "host:deploy" }).as_object().cloned();
        let invalid = json!({ "id": "deploy" }).as_object().cloned();
        for gone in [None, invalid] {
            record.lock().unwrap().clone_from(&valid);
            let parsed = endpoints.get(&id).await.known().unwrap().unwrap();
            let again = endpoints.get(&id).await.known().unwrap().unwrap();
            assert!(Arc::ptr_eq(&parsed, &again), "a record is parsed once");
            drop(again);
            *record.lock().unwrap() = gone;
            assert!(endpoints.get(&id).await.known().unwrap().is_none());
            assert_eq!(Arc::strong_count(&parsed), 1);
        }
    }
}
