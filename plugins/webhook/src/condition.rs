//! `when`: an expression that decides whether a call fires automations.

use std::sync::{Arc, LazyLock};

use ostler_contract::Value;
use ostler_contract::http::Uri;
use ostler_contract::protocol::message::count_values;
use ostler_contract::protocol::sent::SentObject;
use ostler_contract::protocol::surrogates::what_it_is;
use rhai::packages::{Package, StandardPackage};
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, Map, Scope};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::automation::Data;
use crate::exact_numbers::{self, Exact, Literal};
use crate::route::Head;

/// The maximum length of an expression, in bytes.
const LONGEST: usize = 4096;
/// The maximum size of a body for an expression, for which all fields are in memory.
pub(crate) const BODY_LIMIT: usize = 1024 * 1024;
/// The maximum number of values in such a body.
const MOST_VALUES: usize = 100_000;
/// The maximum number of operations of an evaluation. Without loops and functions, an expression has few.
const MOST_OPERATIONS: u64 = 10_000;
/// The maximum nesting of an expression.
const DEEPEST: usize = 32;

/// The maximum number of calls that are parsed concurrently for expressions, because a parsed call is much larger than
/// its body.
const AT_A_TIME: usize = 2;

/// The permits for parsing and evaluating calls.
static EVALUATING: Semaphore = Semaphore::const_new(AT_A_TIME);

/// The variables of an expression: the fields of the call, its headers and the parameters of its URL.
const NAMES: [&str; 3] = ["event", "headers", "query"];

/// The engine that every expression is compiled and evaluated with.
static ENGINE: LazyLock<Engine> = LazyLock::new(engine);

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    text: String,
    compiled: Arc<AST>,
    /// The numbers of the expression that the engine's own types do not have, by the names that stand for them.
    literals: Arc<[Literal]>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The content of a call, for an expression.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its fields.
    pub event: Data,
    pub head: Head,
}

/// Why an expression has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConditionError {
    /// The body of the call cannot be evaluated; describes the body.
    Call(String),
    /// The expression failed.
    Expression(String),
}

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        let text = value.as_str().map(str::trim).filter(|text| !text.is_empty());
        let text = text.ok_or("when must be an expression, such as event.action == \"opened\"")?;
        if text.len() > LONGEST {
            return Err(format!("when must have at most {LONGEST} bytes"));
        }
        let mut names = Scope::new();
        for name in NAMES {
            names.push(name, ());
        }
        let (named, literals) = exact_numbers::name_literals(text);
        for literal in &literals {
            names.push(literal.name.as_str(), ());
        }
        let compiled = ENGINE.compile_expression_with_scope(&names, &named);
        let compiled = compiled.map_err(|error| format!("when is invalid: {error}"))?;
        Ok(Self { text: text.to_owned(), compiled: Arc::new(compiled), literals: literals.into() })
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Waits for a permit to parse a call.
    pub async fn turn(&self) -> Option<SemaphorePermit<'static>> {
        EVALUATING.acquire().await.ok()
    }

    /// Returns whether a call fires automations; evaluated on a separate thread.
    pub async fn holds(&self, call: Call) -> Result<bool, ConditionError> {
        let condition = self.clone();
        let evaluated = tokio::task::spawn_blocking(move || condition.evaluate(call));
        evaluated
            .await
            .unwrap_or_else(|_| Err(ConditionError::Expression("the evaluation panicked".to_owned())))
    }

    fn evaluate(&self, call: Call) -> Result<bool, ConditionError> {
        let fields = match call.event {
            Data::Fields(fields) => exact_numbers::object(fields.as_sent()),
            Data::Text(text) => {
                if count_values(&text) > MOST_VALUES {
                    return Err(ConditionError::Call(format!("JSON with more than {MOST_VALUES} values")));
                }
                let fields = SentObject::read(&text);
                exact_numbers::object(
                    fields.map_err(|error| ConditionError::Call(what_it_is(&error)))?.as_sent(),
                )
            }
        };
        let failed = |error: String| ConditionError::Expression(error);
        let mut scope = Scope::new();
        let headers: Map = call.head.facts().map(|(name, value)| (name.into(), value.into())).collect();
        let values = [fields, headers, query(&call.head.uri)];
        for (name, value) in NAMES.into_iter().zip(values) {
            scope.push_constant_dynamic(name, value.into());
        }
        for Literal { name, number } in self.literals.iter() {
            scope.push_constant(name.as_str(), Exact::of(number.clone()));
        }
        let answer = ENGINE.eval_ast_with_scope::<Dynamic>(&mut scope, &self.compiled);
        let answer = answer.map_err(|error| failed(without_values(&error)))?;
        answer.as_bool().map_err(|kind| failed(format!("it is {kind}, not true or false")))
    }
}

/// Describes an error without values of the call, which do not belong into a log.
fn without_values(error: &EvalAltResult) -> String {
    match error.unwrap_inner() {
        EvalAltResult::ErrorArithmetic(what, _) => {
            let what = what.split([':', '\'', '"']).next().unwrap_or_default().trim();
            format!("{what}{}", at(error))
        }
        EvalAltResult::ErrorRuntime(..) => format!("it failed{}", at(error)),
        EvalAltResult::ErrorIndexNotFound(..)
        | EvalAltResult::ErrorArrayBounds(..)
        | EvalAltResult::ErrorStringBounds(..) => format!("a list has no such element{}", at(error)),
        _ => error.to_string(),
    }
}

fn at(error: &EvalAltResult) -> String {
    match error.position() {
        position if position.is_none() => String::new(),
        position => format!(" ({position})"),
    }
}

fn query(uri: &Uri) -> Map {
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.map(|(name, value)| (name.as_ref().into(), value.into_owned().into())).collect()
}

/// Creates an engine that evaluates only expressions, without statements, loops, functions and side effects, within
/// limits.
fn engine() -> Engine {
    let mut engine = Engine::new_raw();
    StandardPackage::new().register_into_engine(&mut engine);
    engine
        .set_max_operations(MOST_OPERATIONS)
        .set_max_expr_depths(DEEPEST, DEEPEST)
        .set_max_call_levels(8)
        .set_max_string_size(2 * BODY_LIMIT)
        .set_max_array_size(2 * MOST_VALUES)
        .set_max_map_size(2 * MOST_VALUES)
        .set_allow_anonymous_fn(false)
        .set_allow_looping(false)
        .set_allow_statement_expression(false)
        .set_strict_variables(true);
    for symbol in ["eval", "Fn", "call", "curry", "print", "debug", "sleep"] {
        engine.disable_symbol(symbol);
    }
    // A field of a missing value is also missing.
    engine.register_indexer_get(|_: &mut (), _: &str| Dynamic::UNIT);
    engine.register_fn("pluck", pluck);
    exact_numbers::register(&mut engine);
    engine
}

/// Returns the field of a name of every object in a list: `"bug" in event.labels.pluck("name")`.
fn pluck(list: &mut Array, field: &str) -> Array {
    let of = |item: &Dynamic| item.as_map_ref().ok()?.get(field).cloned();
    list.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use ostler_contract::{JsonObject, json};

    use super::*;

    fn call(event: Value) -> Call {
        let mut headers = ostler_contract::http::HeaderMap::new();
        for (name, value) in [("x-github-event", "issues"), ("authorization", "Bearer s"), ("cookie", "c=1")]
        {
            headers.insert(name, value.parse().unwrap());
        }
        let event = Data::Text(event.to_string().into());
        Call { event, head: Head { headers, uri: "/plugins/webhook/a?from=b%20c".parse().unwrap() } }
    }

    fn ask(text: &str) -> Result<bool, ConditionError> {
        let event = json!({
            "action": "opened", "n": 3, "half": 0.5, "gone": null, "draft": false, "list": ["a", "b"],
            "issue": { "labels": [{ "name": "bug" }, { "name": "p1" }, "odd"] },
        });
        let when = Condition::read(&text.into()).map_err(ConditionError::Expression)?;
        when.evaluate(call(event))
    }

    #[test]
    fn an_expression_decides() {
        for holds in [
            r#"event.action == "opened""#,
            r#"event.action in ["opened", "reopened"] && event.n >= 3"#,
            r#"headers["x-github-event"] == "issues" && query.from == "b c""#,
            r#""bug" in event.issue.labels.pluck("name")"#,
            r#""b" in event.list && event.list[0] == "a""#,
            r#"event.action.starts_with("op") && event.action.contains("ene")"#,
            "!event.draft && event.half < 1",
            "event.gone == ()",
            "event.missing == ()",
            r#"event.missing.of.that != "x""#,
            r#"if event.n > 2 { true } else { false }"#,
            r#"headers.authorization == () && headers.cookie == ()"#,
            r#"(event.missing ?? "none") == "none""#,
        ] {
            assert_eq!(ask(holds), Ok(true), "{holds}");
        }
        for not in
            [r#"event.action == "closed""#, r#"event.missing.of == "x""#, "event.n > 3", "event.missing > 3"]
        {
            assert_eq!(ask(not), Ok(false), "{not}");
        }
    }

    #[test]
    fn what_is_no_expression_is_said() {
        for wrong in [
            "",
            "event.",
            "let a = 1; a == 1",
            "while true {}",
            "loop {}",
            "other == 1",
            "|a| a",
            "eval(\"1\")",
            "Fn(\"x\")",
            "import \"a\"",
            "event.n = 4",
            "{ let a = 1; true }",
        ] {
            let read = Condition::read(&wrong.into());
            assert!(read.is_err(), "{wrong}: {read:?}");
        }
        assert_eq!(
            Condition::read(&json!(5)).unwrap_err(),
            "when must be an expression, such as event.action == \"opened\""
        );
        assert_eq!(
            Condition::read(&"x".repeat(4097).into()).unwrap_err(),
            "when must have at most 4096 bytes"
        );
        assert!(Condition::read(&format!("{}1{}", "(".repeat(500), ")".repeat(500)).into()).is_err());
        assert_eq!(
            ask("event.n"),
            Err(ConditionError::Expression("it is i64, not true or false".to_owned()))
        );
        assert!(matches!(ask("event.action.nothing()"), Err(ConditionError::Expression(_))));
        for failing in
            ["event.action.parse_int() == 1", "event.list[event.n * 1000] == ()", "event.n / 0 == 1"]
        {
            let why = format!("{:?}", ask(failing).unwrap_err());
            assert!(!why.contains("opened") && why.contains("line 1"), "{failing}: {why}");
        }
    }

    #[test]
    fn numbers_are_compared_by_value_and_exactly() {
        let of = |text: &str| {
            let body = r#"{"id":12345678901234567890123,"max":18446744073709551615,"e":1E400,"price":1.10,"n":1e3,
                "int":9007199254740993,"fraction":0.12345678901234567890123,"negative":-12345678901234567890123,"half":0.5}"#;
            let when = Condition::read(&text.into()).unwrap();
            when.evaluate(Call { event: Data::Text(body.into()), ..call(json!({})) })
        };
        for holds in [
            "event.id == 12345678901234567890123",
            "event.id == 12345678901234567890123.0 && event.id == 1.2345678901234567890123e22",
            "event.id != 12345678901234567890124 && event.id < 12345678901234567890124",
            "event.id > 12345678901234567890122 && event.id >= event.id && event.id <= event.id",
            "event.id > 5 && 5 < event.id && event.id > 0.5 && event.id != 5 && event.id < 1e23",
            "event.max == 18446744073709551615 && event.max < 18446744073709551616",
            "event.e == 1e400 && event.e < 1e401 && event.e > event.id",
            "event.price == 1.1 && event.price == 1.10 && event.price < 1.100000000000000000001",
            "event.n == 1000 && event.n == 1e3",
            "event.int == 9007199254740993 && event.int != 9007199254740992.0 && event.int > 9007199254740992.0",
            "9007199254740992.0 != event.int && 9007199254740992.0 < event.int && event.n <= 1000.0",
            "event.fraction == 0.12345678901234567890123 && event.fraction > 0.12345678901234567890122",
            "event.negative == -12345678901234567890123 && event.negative < 0",
            "event.id in [1, 12345678901234567890123] && !(event.id in [1, 12345678901234567890124])",
            r#"event.id != "12345678901234567890123" && event.id.to_string() == "12345678901234567890123""#,
            "event.id != () && event.id + 1 > 1e22 && event.max / 2 > 1 && -event.id < 0",
            r#""12345678901234567890123" == "12345678901234567890123" && 'a' == 'a'"#,
            "event.half == 0.5 && event.half < 1 && event.half * 2 == 1.0",
        ] {
            assert_eq!(of(holds), Ok(true), "{holds}");
        }
    }

    fn long_text() -> Value {
        json!({ "a": "x".repeat(BODY_LIMIT - 20) })
    }

    #[test]
    fn conditions_are_equal_if_their_texts_are() {
        let read = |text: &str| Condition::read(&text.into()).unwrap();
        assert_eq!(read("event.a == 1"), read(" event.a == 1 "));
        assert_ne!(read("event.a == 1"), read("event.a == 2"));
    }

    #[test]
    fn the_longest_expression_and_the_largest_body_are_accepted() {
        let text = format!("event.a == \"{}\"", "x".repeat(LONGEST - 13));
        assert_eq!(text.len(), LONGEST);
        assert!(Condition::read(&text.into()).is_ok());
        let of = |count: usize| {
            let event = json!({ "a": vec![0; count] });
            (count_values(event.to_string().as_bytes()), call(event))
        };
        let (values, _) = of(MOST_VALUES - 10);
        let when = Condition::read(&"true".into()).unwrap();
        let (values, largest) = of(MOST_VALUES - 10 + (MOST_VALUES - values));
        assert_eq!((values, when.evaluate(largest)), (MOST_VALUES, Ok(true)));
    }

    #[test]
    fn a_failure_is_described_without_values_of_the_call() {
        for (text, why) in [
            ("event.n / 0 == 1", "Division by zero"),
            ("event.list[5] == ()", "a list has no such element"),
            ("event.action[20] == 'x'", "a list has no such element"),
        ] {
            let Err(ConditionError::Expression(said)) = ask(text) else { panic!("{text}") };
            assert!(said.starts_with(&format!("{why} (line 1, position ")), "{text}: {said}");
        }
    }

    #[test]
    fn an_evaluation_is_bounded() {
        let of = |text: &str, event: Value| Condition::read(&text.into()).unwrap().evaluate(call(event));
        let long = long_text();
        assert_eq!(of("event.a.len > 5", long.clone()), Ok(true));
        assert!(of("(event.a + event.a + event.a + event.a).len > 5", long.clone()).is_err());
        assert!(of("event.a.pad(1000000000, 'x') == ()", long).is_err());
        assert_eq!(of("(event.a + event.a).len > 5", long_text()), Ok(true));
        let list = json!({ "a": vec![0; MOST_VALUES * 3 / 5] });
        assert_eq!(of("(event.a + event.a).len > 5", list.clone()), Ok(true));
        assert!(of("(event.a + event.a + event.a + event.a).len > 5", list).is_err());
        let fields: JsonObject = (0..MOST_VALUES / 3).map(|at| (at.to_string(), Value::Null)).collect();
        let map = json!({ "a": fields });
        assert_eq!(of("[event.a, event.a, event.a, event.a].len == 4", map.clone()), Ok(true));
        assert!(of(&format!("[{}event.a].len == 8", "event.a, ".repeat(7)), map).is_err());
        let many = json!({ "a": vec![0; MOST_VALUES] });
        assert_eq!(
            of("true", many),
            Err(ConditionError::Call(format!("JSON with more than {MOST_VALUES} values")))
        );
    }
}
