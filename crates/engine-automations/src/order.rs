//! Runs ordered by a field of their events: runs with the same value run one after the other, in the order in which the
//! events were accepted.

use std::collections::{HashMap, VecDeque};

use ostler_contract::Value;
use ostler_contract::budget::VALUE;
use ostler_contract::host::Routing;
use ostler_protocol::event_path;
use ostler_protocol::message::count_values;
use ostler_protocol::names;
use ostler_protocol::sent::SentFields;
use ostler_protocol::wire::state::AutomationRunState;
use ring::digest::{Context, SHA256};

use super::fire::{event_id_of, event_of};

/// The most ordered runs of an automation that may wait.
pub(super) const MOST_WAITING: usize = 1000;
/// The most memory that the events of waiting runs may use, in bytes.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Facts of an ordered run under `_meta.ostler.<fact>`: the field, under one of two names, and the run's place in the
/// order.
const ORDER_BY: &str = "orderBy";
const SESSION_BY: &str = "sessionBy";
const ACCEPTED: &str = "accepted";

/// Runs of one automation with the same key run one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OrderKey([u8; 32]);

impl OrderKey {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The order that an event requests for its runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub key: OrderKey,
    /// The field.
    pub by: String,
    /// Its value for titles and records: a number whose digits JSON values do not keep is text.
    pub value: Value,
    /// Whether the runs share a session.
    pub session: bool,
    /// The memory that the event uses, in bytes.
    pub weight: usize,
}

impl Order {
    /// Returns the order of an event's runs, or `None` if the field is missing or is neither text, a number nor a
    /// boolean.
    pub fn of(routing: &Routing, data: SentFields<'_>) -> Option<Self> {
        let value = event_path::find(data, &routing.by)?;
        let text = value.key()?;
        let mut hash = Context::new(&SHA256);
        for part in [routing.by.as_bytes(), b"\0", text.as_bytes()] {
            hash.update(part);
        }
        let mut key = [0; 32];
        key.copy_from_slice(hash.finish().as_ref());
        let weigh = |text: Vec<u8>| text.len() + VALUE * count_values(&text);
        let weight = serde_json::to_vec(data.fields()).map_or(0, weigh) + data.literals_size();
        Some(Self {
            key: OrderKey(key),
            by: routing.by.clone(),
            value: match value.value() {
                Value::Number(_) if value.literal().is_some() => value.text().into(),
                value => value.clone(),
            },
            session: routing.session,
            weight,
        })
    }

    /// Returns the order with which a run was accepted.
    pub fn of_run(run: &AutomationRunState) -> Option<Self> {
        let fact = |fact: &str| run.meta.as_ref()?.get(&names::meta_key(fact))?.as_str();
        let (by, session) = match fact(SESSION_BY) {
            Some(by) => (by, true),
            None => (fact(ORDER_BY)?, false),
        };
        debug_assert!(by != "event" || event_id_of(run).is_some(), "the id that the host added is no field");
        Self::of(&Routing { by: by.to_owned(), session }, event_of(run)?)
    }

    /// Writes the order and the place into an accepted run.
    pub fn mark(&self, run: &mut AutomationRunState, place: u64) {
        let meta = run.meta.get_or_insert_default();
        let by = if self.session { SESSION_BY } else { ORDER_BY };
        meta.insert(names::meta_key(by), self.by.as_str().into());
        meta.insert(names::meta_key(ACCEPTED), place.into());
    }
}

/// Returns the place at which a run was accepted; 0 for an unordered one.
pub(super) fn place_of(run: &AutomationRunState) -> u64 {
    let place = run.meta.as_ref().and_then(|meta| meta.get(&names::meta_key(ACCEPTED))?.as_u64());
    place.unwrap_or(0)
}

/// The ordered runs of one automation that have not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ordered {
    /// The runs that have begun.
    going: HashMap<OrderKey, String>,
    /// The waiting runs, in the order in which they were accepted.
    waiting: VecDeque<Waiting>,
    /// The memory that the events of the waiting runs use.
    weight: usize,
}

#[derive(Debug, Clone)]
struct Waiting {
    run: String,
    key: OrderKey,
    place: u64,
    weight: usize,
}

impl Ordered {
    /// Whether a run with this key has to wait for another run with it.
    pub fn is_taken(&self, key: OrderKey) -> bool {
        self.going.contains_key(&key) || self.waiting.iter().any(|held| held.key == key)
    }

    /// Whether this many more runs with this order may wait.
    pub fn has_room(&self, order: &Order, runs: usize) -> bool {
        let weight = order.weight.saturating_mul(runs).saturating_add(self.weight);
        // If no run waits, a single one may, whatever its size.
        let light = weight <= MOST_BYTES || self.waiting.is_empty() && runs <= 1;
        self.waiting.len() + runs <= MOST_WAITING && light
    }

    /// Whether any run has begun.
    pub fn is_going(&self) -> bool {
        !self.going.is_empty()
    }

    /// Returns how many runs wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.going.is_empty() && self.waiting.is_empty()
    }

    pub fn runs(&self) -> impl Iterator<Item = &String> {
        self.going.values().chain(self.waiting.iter().map(|held| &held.run))
    }

    pub fn begin(&mut self, run: &str, order: &Order) {
        self.going.insert(order.key, run.to_owned());
    }

    pub fn wait(&mut self, run: &str, order: &Order, place: u64) {
        self.weight += order.weight;
        self.waiting.push_back(Waiting { run: run.to_owned(), key: order.key, place, weight: order.weight });
    }

    /// Returns the place of the run that has waited longest.
    pub fn first(&self) -> Option<u64> {
        self.waiting.front().map(|held| held.place)
    }

    /// Begins the first waiting run whose key has no begun run.
    pub fn next(&mut self) -> Option<String> {
        let at = self.waiting.iter().position(|held| !self.going.contains_key(&held.key))?;
        let held = self.waiting.remove(at)?;
        self.weight -= held.weight;
        self.going.insert(held.key, held.run.clone());
        Some(held.run)
    }

    /// Removes and returns the waiting runs.
    pub fn take_waiting(&mut self) -> Vec<String> {
        self.weight = 0;
        self.waiting.drain(..).map(|held| held.run).collect()
    }

    /// Removes a run.
    pub fn leave(&mut self, run: &str) {
        self.going.retain(|_, held| held != run);
        if let Some(at) = self.waiting.iter().position(|held| held.run == run)
            && let Some(held) = self.waiting.remove(at)
        {
            self.weight -= held.weight;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ostler_protocol::json;
    use ostler_protocol::sent::SentObject;

    use super::*;

    fn order(by: &str, data: Value) -> Option<Order> {
        let data = SentFields::new(data.as_object().expect("an object"), None);
        Order::of(&Routing { by: by.to_owned(), session: false }, data)
    }

    /// Returns an order by the field `k`.
    pub fn by(value: Value) -> Order {
        order("k", json!({ "k": value })).expect("an order")
    }

    #[test]
    fn text_numbers_and_booleans_order_and_nothing_else_does() {
        for value in [json!(null), json!([1]), json!({ "a": 1 })] {
            assert_eq!(order("k", json!({ "k": value })), None);
        }
        assert_eq!(order("k", json!({})), None);
        let keys: Vec<_> = [
            json!("1"),
            json!(1),
            json!(true),
            json!("true"),
            json!(2),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
            json!(0.5),
        ]
        .map(|value| by(value).key)
        .to_vec();
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(at), "each is another value");
        }
        assert_eq!(by(json!(1)).key, by(json!(1.0)).key);
        let sent = |text: &str| {
            let data = SentObject::read(format!("{{\"k\":{text}}}").as_bytes()).expect("JSON");
            Order::of(&Routing { by: "k".to_owned(), session: false }, data.as_sent()).expect("an order")
        };
        let (one, other) = (sent("12345678901234567890123"), sent("12345678901234567890124"));
        assert_ne!(one.key, other.key, "two customers");
        assert_eq!(one.value, "12345678901234567890123");
        assert_eq!(sent("1e3").key, by(json!(1000)).key);
        assert_ne!(sent("1E400").key, sent("1E401").key);
        assert_ne!(sent(r#""\ud800""#).key, sent(r#""\ud801""#).key);
        let nested = order("a.b", json!({ "a": { "b": "x" } })).unwrap();
        assert_eq!(
            nested.key,
            order("a.b", json!({ "a.b": "x", "a": 1 })).unwrap().key,
            "as a placeholder finds it"
        );
        assert_ne!(nested.key, by(json!("x")).key, "another field");
        let listed = json!({ "list": [{ "x.y": "first" }, { "x.y": "second" }] });
        for (path, value) in [("list.0.x.y", "first"), ("list[1][\"x.y\"]", "second")] {
            assert_eq!(order(path, listed.clone()).unwrap().value, value, "{path}");
        }
    }

    #[test]
    fn each_value_has_its_own_order() {
        let mut ordered = Ordered::default();
        let (a, b) = (by(json!("a")), by(json!("b")));
        ordered.begin("a1", &a);
        for (place, (run, order)) in [("a2", &a), ("b1", &b), ("a3", &a), ("b2", &b)].into_iter().enumerate()
        {
            ordered.wait(run, order, place as u64);
        }
        assert_eq!(ordered.next().as_deref(), Some("b1"), "a value does not wait for another");
        assert_eq!(ordered.next(), None);
        ordered.leave("a1");
        assert_eq!(ordered.next().as_deref(), Some("a2"));
        ordered.leave("a3");
        ordered.leave("a2");
        assert_eq!(ordered.next(), None);
        ordered.leave("b1");
        assert_eq!(ordered.next().as_deref(), Some("b2"));
        ordered.leave("b2");
        assert!(ordered.is_empty() && ordered.weight == 0);
    }

    #[test]
    fn so_many_wait_and_take_so_much() {
        let mut ordered = Ordered::default();
        let light = by(json!(1));
        for place in 0..MOST_WAITING {
            assert!(ordered.has_room(&light, 1));
            ordered.wait(&place.to_string(), &light, place as u64);
        }
        assert!(!ordered.has_room(&light, 1));
        ordered.leave("7");
        assert!(ordered.has_room(&light, 1) && !ordered.has_room(&light, 2));
        let mut ordered = Ordered::default();
        let heavy = Order { weight: MOST_BYTES + 1, ..light.clone() };
        assert!(ordered.has_room(&heavy, 1), "one event that is read waits always");
        ordered.wait("1", &heavy, 1);
        assert!(!ordered.has_room(&light, 1));
    }

    proptest::proptest! {
        /// For any sequence of accepted and ended runs, the runs of a value begin in the order of their arrival, one at
        /// a time.
        #[test]
        fn the_order_of_a_value_is_that_of_its_events(steps in proptest::collection::vec(0_u8..6, 0..200)) {
            let mut ordered = Ordered::default();
            let (mut began, mut going): (Vec<(u8, usize)>, Vec<(u8, usize)>) = Default::default();
            for (at, step) in steps.into_iter().enumerate() {
                if step < 4 {
                    let order = by(json!(step));
                    let name = format!("{step}:{at}");
                    match ordered.is_taken(order.key) {
                        true => ordered.wait(&name, &order, at as u64),
                        false => {
                            ordered.begin(&name, &order);
                            going.push((step, at));
                            began.push((step, at));
                        }
                    }
                } else if !going.is_empty() {
                    let (value, at) = going.remove(at % going.len());
                    ordered.leave(&format!("{value}:{at}"));
                }
                while let Some(run) = ordered.next() {
                    let (value, at) = run.split_once(':').expect("a name");
                    let run = (value.parse().expect("a value"), at.parse().expect("a place"));
                    going.push(run);
                    began.push(run);
                }
                for value in 0..4 {
                    proptest::prop_assert!(going.iter().filter(|run| run.0 == value).count() <= 1);
                    let of: Vec<_> = began.iter().filter(|run| run.0 == value).map(|run| run.1).collect();
                    proptest::prop_assert!(of.is_sorted());
                    let waits = ordered.waiting.iter().any(|held| held.run.starts_with(&format!("{value}:")));
                    proptest::prop_assert!(!waits || going.iter().any(|run| run.0 == value), "none waits for nothing");
                }
            }
        }
    }
}
