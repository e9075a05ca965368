//! Names the callee of a failed call, because the engine reports "not a function" with a position but without a name.
//!
//! The position is that of the last name read before the call, including its arguments. With nested calls it can match
//! several of them. Names are formatted as in Node.

use std::collections::{HashMap, HashSet};

use oxc_allocator::Allocator;
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::{GetSpan, SourceType};
use oxc_syntax::scope::ScopeFlags;
use rquickjs::{Array, Ctx, Result};

use crate::native::natives;

/// Returns the native functions for `internal/callees`.
pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<rquickjs::Object<'js>> {
    natives! { ctx; "find": find }
}

/// Returns a row for each call that the position can refer to: its name, whether it uses `new`, and its path of
/// globals.
fn find<'js>(ctx: Ctx<'js>, file: String, line: usize, column: usize) -> Result<Array<'js>> {
    let rows = Array::new(ctx.clone())?;
    let Some((source, before)) = crate::modules::source(&ctx, &file) else { return Ok(rows) };
    let before = if line == 1 { before } else { 0 };
    let Some(column) = column.checked_sub(before) else { return Ok(rows) };
    for (at, callee) in callees(&source, line, column).into_iter().enumerate() {
        let row = Array::new(ctx.clone())?;
        row.set(0, callee.name)?;
        row.set(1, callee.constructed)?;
        row.set(2, callee.path)?;
        rows.set(at, row)?;
    }
    Ok(rows)
}

/// A possible callee.
#[derive(Debug, PartialEq, Eq)]
struct Callee {
    name: String,
    constructed: bool,
    /// The names of its member path, if the file does not declare the first one.
    path: Option<Vec<String>>,
}

/// Returns the calls that a position can refer to, in the order of execution. The line and the column start at 1; the
/// column is in bytes.
fn callees(source: &str, line: usize, column: usize) -> Vec<Callee> {
    let before: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let Some(mut at) = (before + column).checked_sub(1) else { return Vec::new() };
    if line == 1 && !begins_word(source, at) {
        // On the first line, the engine counts the columns of names from 1 and those of members from 0.
        at += 1;
    }
    let Ok(at) = u32::try_from(at) else { return Vec::new() };
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::unambiguous()).parse();
    if parsed.panicked {
        return Vec::new();
    }
    let mut finder =
        Finder { source, at, open: Vec::new(), found: Vec::new(), is_sealed: false, bound: Bound::default() };
    finder.visit_program(&parsed.program);
    let bound = finder.bound;
    let is_meant =
        |found: &Found| !found.root.as_ref().is_some_and(|root| found.is_plain && bound.is_function(root));
    let rows = finder.found.into_iter().filter(is_meant).map(|found| Callee {
        path: found.path.filter(|path| !path.first().is_some_and(|root| bound.names.contains_key(root))),
        name: found.name,
        constructed: found.constructed,
    });
    rows.collect()
}

fn begins_word(source: &str, at: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b"_$".contains(byte);
    let bytes = source.as_bytes();
    bytes.get(at).is_some_and(is_word) && !at.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(is_word)
}

/// The names that the file declares.
#[derive(Default)]
struct Bound {
    /// The number of declarations of each name.
    names: HashMap<String, usize>,
    /// The names declared as functions or classes.
    functions: HashSet<String>,
}

impl Bound {
    /// Returns whether a name can only refer to a function.
    fn is_function(&self, name: &str) -> bool {
        self.functions.contains(name) && self.names.get(name) == Some(&1)
    }
}

/// A call that the visitor is inside of.
struct Open {
    start: u32,
    /// The position of the last name read for it.
    latest: u32,
}

struct Found {
    name: String,
    constructed: bool,
    path: Option<Vec<String>>,
    root: Option<String>,
    /// Whether the callee is a single name.
    is_plain: bool,
}

struct Finder<'s> {
    source: &'s str,
    at: u32,
    open: Vec<Open>,
    found: Vec<Found>,
    /// Whether the visitor has left the function that contains the position. The calls around that function do not
    /// match.
    is_sealed: bool,
    bound: Bound,
}

impl<'a> Finder<'_> {
    fn reads(&mut self, at: u32) {
        for open in &mut self.open {
            open.latest = at;
        }
    }

    /// Visits a separate function. The names that it reads do not belong to the calls around it.
    fn inside(&mut self, span: Span, visit: impl FnOnce(&mut Self)) {
        let open = std::mem::take(&mut self.open);
        // A function that begins at the position is an argument of the call.
        let contains = span.start < self.at && self.at < span.end;
        if contains {
            self.found.clear();
        }
        visit(self);
        self.is_sealed |= contains;
        self.open = open;
    }

    fn call(
        &mut self,
        span: Span,
        callee: &Expression<'a>,
        constructed: bool,
        arguments: impl FnOnce(&mut Self),
    ) {
        self.open.push(Open { start: callee.span().start, latest: callee.span().start });
        self.visit_expression(callee);
        if let (Expression::StaticMemberExpression(member), false) = (callee, constructed) {
            self.reads(member.property.span.start);
        }
        arguments(self);
        let Some(open) = self.open.pop() else { return };
        if !self.is_sealed && (open.start..span.end).contains(&self.at) && open.latest <= self.at {
            let path = path(callee);
            self.found.push(Found {
                name: told(self.source, callee),
                constructed,
                root: path.as_ref().and_then(|path| path.first().cloned()),
                is_plain: matches!(callee, Expression::Identifier(_)),
                path,
            });
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.reads(it.span.start);
    }

    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        *self.bound.names.entry(it.name.to_string()).or_default() += 1;
    }

    fn visit_simple_assignment_target(&mut self, it: &SimpleAssignmentTarget<'a>) {
        if let SimpleAssignmentTarget::AssignmentTargetIdentifier(name) = it {
            // An assigned name can hold any value.
            *self.bound.names.entry(name.name.to_string()).or_default() += 1;
        }
        walk::walk_simple_assignment_target(self, it);
    }

    fn visit_object_property(&mut self, it: &ObjectProperty<'a>) {
        if !it.shorthand {
            walk::walk_object_property(self, it);
        }
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        self.call(it.span, &it.callee, false, |finder| finder.visit_arguments(&it.arguments));
    }

    fn visit_new_expression(&mut self, it: &NewExpression<'a>) {
        self.call(it.span, &it.callee, true, |finder| finder.visit_arguments(&it.arguments));
    }

    fn visit_tagged_template_expression(&mut self, it: &TaggedTemplateExpression<'a>) {
        self.call(it.span, &it.tag, false, |finder| finder.visit_template_literal(&it.quasi));
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if let (Some(name), true) = (&it.id, it.is_declaration()) {
            self.bound.functions.insert(name.name.to_string());
        }
        self.inside(it.span, |finder| walk::walk_function(finder, it, flags));
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        self.inside(it.span, |finder| walk::walk_arrow_function_expression(finder, it));
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if let (Some(name), true) = (&it.id, it.is_declaration()) {
            self.bound.functions.insert(name.name.to_string());
        }
        walk::walk_class(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.visit_property_key(&it.key);
        if let Some(value) = &it.value {
            self.inside(value.span(), |finder| finder.visit_expression(value));
        }
    }

    fn visit_static_block(&mut self, it: &StaticBlock<'a>) {
        self.inside(it.span, |finder| walk::walk_static_block(finder, it));
    }
}

/// Returns the names of a member path.
fn path(expression: &Expression<'_>) -> Option<Vec<String>> {
    match expression {
        Expression::Identifier(it) => Some(vec![it.name.to_string()]),
        Expression::StaticMemberExpression(it) => {
            let mut names = path(&it.object)?;
            names.push(it.property.name.to_string());
            Some(names)
        }
        _ => None,
    }
}

const VALUE: &str = "(intermediate value)";

/// Formats an expression as Node does.
fn told(source: &str, expression: &Expression<'_>) -> String {
    let tell = |inner: &Expression<'_>| told(source, inner);
    let written = |span: Span| source.get(span.start as usize..span.end as usize).unwrap_or(VALUE).to_owned();
    let mark = |optional: bool| if optional { "?." } else { "" };
    match expression {
        Expression::Identifier(it) => it.name.to_string(),
        Expression::ThisExpression(_) => "this".to_owned(),
        Expression::NullLiteral(_) | Expression::BooleanLiteral(_) | Expression::RegExpLiteral(_) => {
            written(expression.span())
        }
        Expression::NumericLiteral(it) => it.value.to_string(),
        Expression::StringLiteral(it) => format!("\"{}\"", it.value),
        Expression::TemplateLiteral(it) if it.expressions.is_empty() => {
            let text = it.quasis.first().and_then(|quasi| quasi.value.cooked.as_ref());
            format!("\"{}\"", text.map_or("", |text| text.as_str()))
        }
        Expression::TemplateLiteral(it) => it.expressions.iter().map(tell).collect(),
        Expression::StaticMemberExpression(it) => {
            let dot = if it.optional { "?." } else { "." };
            format!("{}{dot}{}", tell(&it.object), it.property.name)
        }
        Expression::PrivateFieldExpression(it) => {
            format!("{}{}[#{}]", tell(&it.object), mark(it.optional), it.field.name)
        }
        Expression::ComputedMemberExpression(it) => {
            let dot = if it.optional { "?." } else { "." };
            match &it.expression {
                Expression::StringLiteral(key) => format!("{}{dot}{}", tell(&it.object), key.value),
                key => format!("{}{}[{}]", tell(&it.object), mark(it.optional), tell(key)),
            }
        }
        Expression::CallExpression(it) => format!("{}(...)", tell(&it.callee)),
        Expression::TaggedTemplateExpression(it) => format!("{}(...)", tell(&it.tag)),
        Expression::ParenthesizedExpression(it) => tell(&it.expression),
        Expression::AssignmentExpression(it) => tell(&it.right),
        Expression::ConditionalExpression(_) => VALUE.repeat(3),
        Expression::LogicalExpression(it) => {
            format!(
                "({} {} {})",
                flat(source, &it.left, it.operator.as_str()),
                it.operator.as_str(),
                tell(&it.right)
            )
        }
        Expression::BinaryExpression(it) => {
            format!(
                "({} {} {})",
                flat(source, &it.left, it.operator.as_str()),
                it.operator.as_str(),
                tell(&it.right)
            )
        }
        Expression::SequenceExpression(it) => {
            format!("({})", it.expressions.iter().map(tell).collect::<Vec<_>>().join(" , "))
        }
        Expression::UnaryExpression(it) => {
            let operator = it.operator.as_str();
            match &it.argument {
                Expression::NumericLiteral(number) if operator == "-" => format!("-{}", number.value),
                argument if operator.len() > 1 => format!("({operator} {})", tell(argument)),
                argument => format!("({operator}{})", tell(argument)),
            }
        }
        Expression::ArrayExpression(it) => {
            let element = |element: &ArrayExpressionElement<'_>| match element {
                ArrayExpressionElement::SpreadElement(it) => format!("(...{})", tell(&it.argument)),
                other => other.as_expression().map_or_else(|| VALUE.to_owned(), tell),
            };
            format!("[{}]", it.elements.iter().map(element).collect::<Vec<_>>().join(","))
        }
        Expression::ObjectExpression(it) => format!("{{{}}}", VALUE.repeat(it.properties.len())),
        _ => VALUE.to_owned(),
    }
}

/// Formats the left operand of an operator, without parentheses if it is the same operator.
fn flat(source: &str, left: &Expression<'_>, operator: &str) -> String {
    let same = match left {
        Expression::LogicalExpression(it) => it.operator.as_str() == operator,
        Expression::BinaryExpression(it) => it.operator.as_str() == operator,
        _ => false,
    };
    let text = told(source, left);
    if same { text[1..text.len() - 1].to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::callees;

    /// Returns the names at the position that `^` marks below the last line.
    fn named(source: &str) -> String {
        let (source, mark) = source.rsplit_once('\n').unwrap();
        let line = source.lines().count();
        let rows = callees(source, line, mark.find('^').unwrap() + 1);
        rows.iter()
            .map(|row| if row.constructed { format!("new {}", row.name) } else { row.name.clone() })
            .collect::<Vec<_>>()
            .join(" | ")
    }

    #[test]
    fn the_call_at_a_place_is_named() {
        assert_eq!(named("a.b.c();\n    ^"), "a.b.c");
        assert_eq!(named("a.b(1).c(d);\n         ^"), "a.b(...).c");
        assert_eq!(named("a.b(1).c(d);\n  ^"), "a.b");
        assert_eq!(named("new a.B(c);\n        ^"), "new a.B");
        assert_eq!(named("a['b'](); c[d]();\n^"), "a.b");
        assert_eq!(named("x;\n(0, a.b)(c)\n         ^"), "(0 , a.b)");
    }

    #[test]
    fn nested_calls_that_end_alike_are_all_named() {
        assert_eq!(named("a.b(c(d));\n      ^"), "c | a.b");
        assert_eq!(named("a.b(c(d), e);\n          ^"), "a.b");
        assert_eq!(named("function c() {}\na.b(c(d));\n      ^"), "a.b");
        assert_eq!(named("function c() {} c = 1;\na.b(c(d));\n      ^"), "c | a.b");
    }

    #[test]
    fn calls_around_a_function_are_not_meant() {
        assert_eq!(named("a.map((b) => b.c());\n               ^"), "b.c");
        assert_eq!(named("a.map((b) => b.c);\n             ^"), "");
    }
}
