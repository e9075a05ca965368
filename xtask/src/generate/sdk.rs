//! `@ostler/sdk` for authors: TypeScript declarations from the contract's single declaration of each point.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use ostler_contract::Cross;
use ostler_contract::host::{HOST_CALLS, PluginContext};
use ostler_contract::points::POINTS;
use ostler_contract::shape::{FieldShape, FunctionShape, Shape, VariantShape};

use super::wire::{Wire, comment};

const HEAD: &str = include_str!("sdk.head.d.ts");
const HELPERS: &str = include_str!("sdk.helpers.d.ts");

/// The creator of a value, which determines the return types of its functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum From {
    Host,
    Plugin,
}

impl From {
    fn other(self) -> Self {
        match self {
            Self::Host => Self::Plugin,
            Self::Plugin => Self::Host,
        }
    }
}

#[derive(Default)]
struct Writer {
    /// Declarations, in the order of their first use.
    types: Vec<String>,
    /// The creator of a type's values, if they contain functions.
    met: BTreeMap<&'static str, Option<From>>,
    wire: BTreeSet<String>,
    problems: Vec<String>,
}

/// Returns the whole file.
pub fn declarations(root: &Path) -> Result<String, String> {
    let wire = Wire::read(root)?;
    let mut writer = Writer::default();
    let mut host = String::new();
    let Shape::Object(context) = PluginContext::shape() else {
        return Err("the plugin context is no object".to_owned());
    };
    writer.write(&PluginContext::shape(), From::Host);
    let in_context: Vec<&str> = context().fields.iter().map(|field| field.name).collect();
    for call in HOST_CALLS.iter().filter(|call| !in_context.contains(&call.name)) {
        let Shape::Function(shape) = (call.shape)() else { continue };
        host.push_str(&writer.method(call.name, call.docs, call.params, shape(), From::Host, false));
    }
    for point in POINTS {
        let shape = (point.shape)();
        let docs = point
            .docs
            .lines()
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n");
        host.push_str(&match listener(shape) {
            Some((event, names)) => {
                writer.write(&shape.params[0], From::Plugin);
                let context = match &shape.params[1] {
                    Shape::Function(function) => function().params.get(1).map(|param| writer.write(param, From::Host)),
                    _ => None,
                };
                writer.write(&event, From::Host);
                format!(
                    "{}    {}<Name extends {names}>(\n        event: Name,\n        handler: (event: Frozen<Extract<Event, {{ type: Name }}>>, \
                     context: {}) => void,\n    ): void;\n",
                    comment(&docs, "    "),
                    point.method,
                    context.unwrap_or_default(),
                )
            }
            None => writer.method(point.method, &docs, point.params, shape, From::Host, false),
        });
    }
    let Writer { types, wire: named, met, mut problems, .. } = writer;
    problems.extend(
        met.keys()
            .filter(|name| named.contains(**name))
            .map(|name| format!("{name} is a type of the contract's and of the protocol's")),
    );
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    let wire = wire.declarations(named)?;
    let types: String = types.concat();
    Ok(format!(
        "{HEAD}\n/** The host as one plugin sees it: facts, calls, and one method per registration point. Writing to it throws. */\n\
         export interface PluginHost extends PluginContext {{\n{host}}}\n\n{types}{HELPERS}\n// The protocol's own types.\n\n{}\n",
        wire.trim_end()
    ))
}

/// Returns a name for an unnamed parameter: the last word of its type.
fn called(ty: &str) -> String {
    let name = ty
        .split(|c: char| !c.is_alphanumeric())
        .find(|word| word.starts_with(char::is_uppercase))
        .unwrap_or("Value");
    let at = name.rfind(char::is_uppercase).unwrap_or_default();
    let word = name[at..].to_lowercase();
    match ty.ends_with("[]") {
        // The plural of `Changed` is `changes`.
        true => format!("{}s", word.strip_suffix("d").filter(|word| word.ends_with('e')).unwrap_or(&word)),
        false => word,
    }
}

/// Returns the event union and the type of its names, for a method that takes a name and a listener of that event.
fn listener(shape: &FunctionShape) -> Option<(Shape, &'static str)> {
    let [Shape::Names { name, names, .. }, Shape::Function(handler)] = &shape.params[..] else { return None };
    let event = handler().params.first()?.core().clone();
    let Shape::Union(union) = &event else { return None };
    let tags: Vec<&str> = union().variants.iter().map(|variant| variant.tag).collect();
    (tags == *names).then_some((event, *name))
}

impl Writer {
    /// Formats one method of an object with its docs.
    fn method(
        &mut self,
        name: &str,
        docs: &str,
        params: &[&str],
        shape: &FunctionShape,
        from: From,
        optional: bool,
    ) -> String {
        let mark = if optional { "?" } else { "" };
        let signature = self.signature(params, shape, from, ": ");
        format!("{}    {name}{mark}{signature};\n", comment(docs, "    "))
    }

    /// Formats `(parameters)`, an arrow or a colon, and the return type.
    fn signature(&mut self, params: &[&str], shape: &FunctionShape, from: From, between: &str) -> String {
        let last_required = shape.params.iter().rposition(|param| !matches!(param, Shape::Optional(_)));
        let mut written = Vec::new();
        for (at, param) in shape.params.iter().enumerate() {
            let ty = self.write(param, from.other());
            let name = params.get(at).map_or_else(|| called(&ty), |name| (*name).to_owned());
            let may_stop = matches!(param, Shape::Optional(_)) && last_required.is_none_or(|last| at > last);
            written.push(match may_stop {
                true => format!("{name}?: {}", ty.trim_end_matches(" | undefined")),
                false => format!("{name}: {ty}"),
            });
        }
        let answer = self.write(&shape.returns, from);
        let answer = match (from, shape.now, answer.as_str()) {
            // The return value of a function without a result is ignored, even a promise.
            (From::Plugin, _, "void") => "void".to_owned(),
            (From::Plugin, false, _) => {
                format!("Awaitable<{}>", answer.replace(" | undefined", " | null | undefined"))
            }
            (From::Host, false, _) => format!("Promise<{answer}>"),
            (_, true, _) => answer,
        };
        format!("({}){between}{answer}", written.join(", "))
    }

    /// Formats the type of a value; the types that it refers to are declared separately.
    fn write(&mut self, shape: &Shape, from: From) -> String {
        match shape {
            Shape::Nothing => "void".to_owned(),
            Shape::Boolean => "boolean".to_owned(),
            Shape::Integer | Shape::IntegerBetween { .. } | Shape::Number => "number".to_owned(),
            Shape::Text { .. } => "string".to_owned(),
            Shape::Bytes => "Uint8Array".to_owned(),
            Shape::Any => "unknown".to_owned(),
            Shape::Fields => "JsonObject".to_owned(),
            Shape::Request => "Request".to_owned(),
            Shape::Response => "Response".to_owned(),
            Shape::Wire(name) => {
                self.wire.insert((*name).to_owned());
                (*name).to_owned()
            }
            Shape::Names { name, docs, names } => {
                if self.meet(name, None) {
                    let words: Vec<String> = names.iter().map(|word| format!("'{word}'")).collect();
                    let words = match words.join(" | ") {
                        line if line.len() < 80 => format!(" {line}"),
                        _ => format!("\n    | {}", words.join("\n    | ")),
                    };
                    self.types.push(format!("{}export type {name} ={words};\n\n", comment(docs, "")));
                }
                (*name).to_owned()
            }
            Shape::Object(object) => {
                let object = object();
                if self.meet(object.name, (!object.data).then_some(from)) {
                    let place = self.types.len();
                    self.types.push(String::new());
                    let fields = self.fields(&object.fields, from);
                    self.types[place] = format!(
                        "{}export interface {} {{\n{fields}}}\n\n",
                        comment(object.docs, ""),
                        object.name
                    );
                }
                object.name.to_owned()
            }
            Shape::Union(union) => {
                let union = union();
                if self.meet(union.name, None) {
                    let place = self.types.len();
                    self.types.push(String::new());
                    let variants: String =
                        union.variants.iter().map(|variant| self.variant(union.tag, variant, from)).collect();
                    self.types[place] =
                        format!("{}export type {} ={variants};\n\n", comment(union.docs, ""), union.name);
                }
                union.name.to_owned()
            }
            Shape::Function(function) => self.signature(&[], function(), from, " => "),
            Shape::Optional(inner) => match &**inner {
                Shape::Function(_) => format!("({}) | undefined", self.write(inner, from)),
                _ => format!("{} | undefined", self.write(inner, from)),
            },
            Shape::List(inner) => {
                let inner = self.write(inner, from);
                if inner.contains(' ') { format!("({inner})[]") } else { format!("{inner}[]") }
            }
            Shape::Map(inner) => format!("Record<string, {}>", self.write(inner, from)),
            Shape::Frozen(inner) => format!("Frozen<{}>", self.write(inner, from)),
        }
    }

    fn variant(&mut self, tag: &str, variant: &VariantShape, from: From) -> String {
        let fields = self.fields(&variant.fields, from).replace("\n    ", "\n          ");
        let docs = comment(variant.docs, "    ");
        let mut text = format!("\n{docs}    | {{\n          {tag}: '{}';\n", variant.tag);
        if !fields.is_empty() {
            let _ = write!(text, "          {}", fields.trim_start());
        }
        text.push_str("      }");
        text
    }

    fn fields(&mut self, fields: &[FieldShape], from: From) -> String {
        let mut text = String::new();
        for field in fields {
            if field.flatten {
                text.push_str(&comment(field.docs, "    "));
                text.push_str("    [key: string]: unknown;\n");
                continue;
            }
            // A plugin may omit a member with a default; the host always sets it.
            let optional = match from {
                From::Host => matches!(field.shape, Shape::Optional(_) | Shape::Nothing),
                From::Plugin => field.optional(),
            };
            match field.shape.core() {
                Shape::Function(function) => {
                    text.push_str(&self.method(
                        field.name,
                        field.docs,
                        field.params,
                        function(),
                        from,
                        optional,
                    ));
                }
                _ => {
                    let ty = self.write(&field.shape, from);
                    let (mark, ty) =
                        if optional { ("?", ty.trim_end_matches(" | undefined")) } else { ("", ty.as_str()) };
                    let _ = writeln!(text, "{}    {}{mark}: {ty};", comment(field.docs, "    "), field.name);
                }
            }
        }
        text
    }

    /// Returns whether a type occurs for the first time. Values with functions must come from one side only, because
    /// that determines the return types of their functions.
    fn meet(&mut self, name: &'static str, from: Option<From>) -> bool {
        match self.met.get(name) {
            None => {
                self.met.insert(name, from);
                true
            }
            Some(known) => {
                if from.is_some() && *known != from {
                    self.problems
                        .push(format!("{name} comes from plugins and from the host, and holds functions"));
                }
                false
            }
        }
    }
}
