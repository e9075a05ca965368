//! Enums, which have run-time code: an object with a member per name, and one per number back to its name.

use std::collections::HashMap;

use oxc_ast::ast::*;
use oxc_span::GetSpan;

use super::edits::{Edits, breaks};

/// The constant value of a member.
#[derive(Clone, PartialEq)]
enum Constant {
    Number(f64),
    Text(String),
}

/// Replaces an enum with code, each member on its own line.
pub(super) fn lower(edits: &mut Edits<'_>, it: &TSEnumDeclaration<'_>) {
    let name = it.id.name.as_str();
    let body = it.body.span;
    let header = breaks(edits.text(it.span.start, body.start + 1));
    edits.replace(it.span.start, body.start + 1, format!("var {name}; (function ({name}) {{{header}"));
    let mut known: HashMap<String, Constant> = HashMap::new();
    let mut next = Some(0.0);
    for member in &it.body.members {
        let key = member_name(&member.id);
        let constant = match &member.initializer {
            Some(initializer) => evaluate(initializer, name, &known),
            None => next.map(Constant::Number),
        };
        next = match &constant {
            Some(Constant::Number(number)) => Some(number + 1.0),
            _ => None,
        };
        let written = match (&constant, &member.initializer) {
            (Some(constant), _) => write(constant),
            (None, Some(initializer)) => {
                let span = initializer.span();
                edits.edited(span.start as usize, span.end as usize)
            }
            (None, None) => "undefined".to_owned(),
        };
        let text = assign(name, &key, &written, constant.as_ref());
        let end = edits.with_comma(member.span.end);
        let lines = breaks(edits.text(member.span.start, end)).len();
        let missing = lines.saturating_sub(breaks(&text).len());
        edits.replace(member.span.start, end, text + &"\n".repeat(missing));
        if let Some(constant) = constant {
            known.insert(key, constant);
        }
    }
    edits.replace(body.end - 1, it.span.end.max(body.end), format!("}})({name} || ({name} = {{}}));"));
}

fn member_name(name: &TSEnumMemberName<'_>) -> String {
    name.static_name().to_string()
}

fn assign(name: &str, key: &str, written: &str, constant: Option<&Constant>) -> String {
    let quoted = serde_json::Value::from(key).to_string();
    // A local of this name lets later members refer to it.
    let (local, value) = if is_name(key) {
        (format!("const {key} = {written}; "), key.to_owned())
    } else {
        (String::new(), format!("({written})"))
    };
    match constant {
        Some(Constant::Text(_)) => format!("{local}{name}[{quoted}] = {value};"),
        Some(Constant::Number(_)) => format!("{local}{name}[{name}[{quoted}] = {value}] = {quoted};"),
        None => format!(
            "{local}if (typeof ({name}[{quoted}] = {value}) === 'number') {name}[{name}[{quoted}]] = {quoted};"
        ),
    }
}

/// Returns whether a local can have this name.
fn is_name(key: &str) -> bool {
    const RESERVED: &[&str] = &[
        "arguments",
        "await",
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "debugger",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "eval",
        "export",
        "extends",
        "false",
        "finally",
        "for",
        "function",
        "if",
        "implements",
        "import",
        "in",
        "instanceof",
        "interface",
        "let",
        "new",
        "null",
        "package",
        "private",
        "protected",
        "public",
        "return",
        "static",
        "super",
        "switch",
        "this",
        "throw",
        "true",
        "try",
        "typeof",
        "undefined",
        "var",
        "void",
        "while",
        "with",
        "yield",
        "NaN",
        "Infinity",
    ];
    let mut characters = key.chars();
    characters.next().is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$')
        && characters.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
        && !RESERVED.contains(&key)
}

fn write(constant: &Constant) -> String {
    match constant {
        Constant::Number(number) if number.is_nan() => "NaN".to_owned(),
        Constant::Number(number) if number.is_infinite() => {
            if *number > 0.0 {
                "Infinity".to_owned()
            } else {
                "-Infinity".to_owned()
            }
        }
        Constant::Number(number) => number.to_string(),
        Constant::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
    }
}

fn evaluate(expression: &Expression<'_>, name: &str, known: &HashMap<String, Constant>) -> Option<Constant> {
    match expression {
        Expression::NumericLiteral(it) => Some(Constant::Number(it.value)),
        Expression::StringLiteral(it) => Some(Constant::Text(it.value.to_string())),
        Expression::TemplateLiteral(it) => Some(Constant::Text(it.single_quasi()?.to_string())),
        Expression::ParenthesizedExpression(it) => evaluate(&it.expression, name, known),
        Expression::Identifier(it) => known.get(it.name.as_str()).cloned(),
        Expression::StaticMemberExpression(it) => match &it.object {
            Expression::Identifier(object) if object.name == name => {
                known.get(it.property.name.as_str()).cloned()
            }
            _ => None,
        },
        Expression::UnaryExpression(it) => {
            let Constant::Number(number) = evaluate(&it.argument, name, known)? else { return None };
            match it.operator {
                UnaryOperator::UnaryNegation => Some(Constant::Number(-number)),
                UnaryOperator::UnaryPlus => Some(Constant::Number(number)),
                UnaryOperator::BitwiseNot => Some(Constant::Number(f64::from(!bits(number)))),
                _ => None,
            }
        }
        Expression::BinaryExpression(it) => {
            let (left, right) = (evaluate(&it.left, name, known)?, evaluate(&it.right, name, known)?);
            match (left, right) {
                (Constant::Number(left), Constant::Number(right)) => {
                    binary(it.operator, left, right).map(Constant::Number)
                }
                (Constant::Text(left), Constant::Text(right)) if it.operator == BinaryOperator::Addition => {
                    Some(Constant::Text(left + &right))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn binary(operator: BinaryOperator, left: f64, right: f64) -> Option<f64> {
    let shift = bits(right).cast_unsigned() & 31;
    Some(match operator {
        BinaryOperator::Addition => left + right,
        BinaryOperator::Subtraction => left - right,
        BinaryOperator::Multiplication => left * right,
        BinaryOperator::Division => left / right,
        BinaryOperator::Remainder => left % right,
        BinaryOperator::Exponential => left.powf(right),
        BinaryOperator::BitwiseOR => f64::from(bits(left) | bits(right)),
        BinaryOperator::BitwiseAnd => f64::from(bits(left) & bits(right)),
        BinaryOperator::BitwiseXOR => f64::from(bits(left) ^ bits(right)),
        BinaryOperator::ShiftLeft => f64::from(bits(left).wrapping_shl(shift)),
        BinaryOperator::ShiftRight => f64::from(bits(left).wrapping_shr(shift)),
        BinaryOperator::ShiftRightZeroFill => f64::from(bits(left).cast_unsigned().wrapping_shr(shift)),
        _ => return None,
    })
}

/// Converts a number as JavaScript's bitwise operators do.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap)]
fn bits(number: f64) -> i32 {
    if number.is_finite() { (number.trunc().rem_euclid(4_294_967_296.0) as u64) as u32 as i32 } else { 0 }
}
