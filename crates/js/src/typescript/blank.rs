//! Blanks out the parts of a TypeScript source that are only types (D-007).

use std::collections::HashSet;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

use super::edits::Edits;
use super::{Unsupported, Unused, attributes, enums};

/// Modifiers of members that have no effect at run time.
const MODIFIERS: &[&str] = &["public", "private", "protected", "readonly", "override", "abstract", "declare"];

/// Names of members that have another meaning once their type is removed.
const AMBIGUOUS: &[&str] = &["get", "set", "static", "async", "accessor"];

pub(super) fn strip(
    source: &str,
    program: &Program<'_>,
    is_module: bool,
    unused: Unused,
) -> Result<String, Unsupported> {
    let mut stripper = Stripper {
        edits: Edits::new(source),
        is_module,
        unused,
        wrong: None,
        derived: Vec::new(),
        imports: Vec::new(),
        exports: Vec::new(),
        used: HashSet::new(),
        values: HashSet::new(),
        types: HashSet::new(),
    };
    stripper.visit_program(program);
    stripper.drop_unused_imports();
    match stripper.wrong {
        Some(wrong) => Err(wrong),
        None => Ok(stripper.edits.apply()),
    }
}

struct Stripper<'s> {
    edits: Edits<'s>,
    is_module: bool,
    unused: Unused,
    wrong: Option<Unsupported>,
    /// For each enclosing class, whether it extends another one.
    derived: Vec<bool>,
    imports: Vec<Names>,
    exports: Vec<Names>,
    /// Names read as values.
    used: HashSet<String>,
    /// Names declared as values.
    values: HashSet<String>,
    /// Names declared as types.
    types: HashSet<String>,
}

/// A statement that lists names.
struct Names {
    span: Span,
    names: Vec<Name>,
    /// Whether the whole statement is type-only.
    of_types: bool,
}

struct Name {
    span: Span,
    local: String,
    is_type: bool,
}

impl Stripper<'_> {
    fn refuse(&mut self, span: Span, what: &'static str) {
        self.wrong.get_or_insert(Unsupported { at: span.start, what });
    }

    fn blank(&mut self, span: Span) {
        self.edits.blank(span.start, span.end);
    }

    /// Blanks a statement or member. A semicolon separates the one before it from the next.
    fn blank_statement(&mut self, span: Span) {
        self.edits.blank_after(';', span.start, span.end);
    }

    /// Blanks a `?` or `!` after a name.
    fn blank_mark(&mut self, after: u32) {
        let mark = self.edits.next(after);
        if matches!(self.edits.at(mark), Some('?' | '!')) {
            self.edits.blank(mark, mark + 1);
        }
    }

    fn no_decorators(&mut self, decorators: &[Decorator<'_>]) {
        if let Some(first) = decorators.first() {
            self.refuse(first.span, "decorators are not supported here");
        }
    }

    /// Blanks modifiers between the start of a member and its name.
    fn modifiers(&mut self, start: u32, name: u32) {
        let mut at = self.edits.next(start);
        let mut words = Vec::new();
        let mut kept = false;
        while at < name {
            let rest = self.edits.text(at, name);
            let word: &str = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
            let end = at + u32::try_from(word.len()).unwrap_or_default();
            if word.is_empty() {
                break;
            }
            if MODIFIERS.contains(&word) {
                words.push((at, end));
            } else {
                kept = true;
            }
            at = self.edits.next(end);
        }
        // The rest could be parsed as a continuation of the previous member.
        let goes_on = !kept && matches!(self.edits.at(at), Some('[' | '*'));
        for (at, (start, end)) in words.into_iter().enumerate() {
            if at == 0 && goes_on {
                self.edits.blank_after(';', start, end);
            } else {
                self.edits.blank(start, end);
            }
        }
    }

    /// Blanks a type assertion of an expression: `as T`, `satisfies T`.
    fn blank_claim(&mut self, expression: Span, whole: Span) {
        let next = self.edits.next(whole.end);
        let goes_on = self.edits.text(whole.end, next).contains('\n')
            && matches!(self.edits.at(next), Some('(' | '[' | '`'));
        if goes_on {
            let at = self.edits.next(expression.end);
            self.edits.blank_after(';', at, whole.end);
        } else {
            self.edits.blank(expression.end, whole.end);
        }
    }

    fn is_erased(&mut self, declaration: &Declaration<'_>) -> bool {
        match declaration {
            Declaration::VariableDeclaration(it) => it.declare,
            Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
            Declaration::ClassDeclaration(it) => it.declare,
            Declaration::TSEnumDeclaration(it) => it.declare,
            Declaration::TSTypeAliasDeclaration(it) => {
                self.types.insert(it.id.name.to_string());
                true
            }
            Declaration::TSInterfaceDeclaration(it) => {
                self.types.insert(it.id.name.to_string());
                true
            }
            Declaration::TSNamespaceDeclaration(it) => it.declare || holds_types_only(&it.body),
            Declaration::TSExternalModuleDeclaration(_) | Declaration::TSGlobalDeclaration(_) => true,
            Declaration::TSImportEqualsDeclaration(it) => it.import_kind.is_type(),
        }
    }

    fn parameter_properties(&mut self, constructor: &Function<'_>) {
        let names: Vec<&str> = constructor
            .params
            .items
            .iter()
            .filter(|item| item.accessibility.is_some() || item.readonly || item.r#override)
            .filter_map(|item| Some(item.pattern.get_binding_identifier()?.name.as_str()))
            .collect();
        let Some(body) = constructor.body.as_ref().filter(|_| !names.is_empty()) else { return };
        let assigned: String = names.iter().map(|name| format!("this.{name}={name};")).collect();
        if !self.derived.last().copied().unwrap_or_default() {
            self.edits.insert(body.span.start + 1, assigned);
            return;
        }
        let call = body.statements.iter().find(|statement| match statement {
            Statement::ExpressionStatement(it) => {
                matches!(&it.expression, Expression::CallExpression(call) if matches!(call.callee, Expression::Super(_)))
            }
            _ => false,
        });
        match call {
            Some(call) => self.edits.insert(call.span().end, format!(";{assigned}")),
            None => self.refuse(
                constructor.span,
                "a parameter property needs super() to be called in the constructor's own body",
            ),
        }
    }

    fn is_dropped(&self, name: &Name) -> bool {
        name.is_type || (self.unused == Unused::Dropped && !self.used.contains(&name.local))
    }

    /// Drops imports that are only used as types, as TypeScript does.
    fn drop_unused_imports(&mut self) {
        let exports = std::mem::take(&mut self.exports);
        for export in exports {
            let is_type = |name: &Name| {
                let imported = self.imports.iter().flat_map(|import| &import.names);
                name.is_type
                    || self.unused == Unused::Dropped
                        && (self.types.contains(&name.local) && !self.values.contains(&name.local))
                    || imported.into_iter().any(|import| import.is_type && import.local == name.local)
            };
            let gone: Vec<bool> = export.names.iter().map(is_type).collect();
            for (name, gone) in export.names.iter().zip(&gone) {
                if *gone {
                    self.edits.blank(name.span.start, self.edits.with_comma(name.span.end));
                } else {
                    self.used.insert(name.local.clone());
                }
            }
        }
        for import in std::mem::take(&mut self.imports) {
            if import.of_types {
                continue;
            }
            let dropped = !import.names.is_empty() && import.names.iter().all(|name| self.is_dropped(name));
            if dropped && self.unused == Unused::Dropped {
                self.blank_statement(import.span);
                continue;
            }
            for name in import.names.iter().filter(|name| self.is_dropped(name)).collect::<Vec<_>>() {
                self.edits.blank(name.span.start, self.edits.with_comma(name.span.end));
            }
            self.mend_commas(&import);
        }
    }

    /// Fixes the commas: `import a, {} from` is valid; `import , { b } from` and `import a, from` are not.
    fn mend_commas(&mut self, import: &Names) {
        // A dropped default import includes its comma; a dropped namespace import after a remaining one leaves the
        // comma.
        let [first, second] = import.names.as_slice() else { return };
        let namespace = self.edits.text(second.span.start, second.span.end).starts_with('*');
        if namespace && self.is_dropped(second) {
            let comma = self.edits.next(first.span.end);
            if self.edits.at(comma) == Some(',') {
                self.edits.blank(comma, comma + 1);
            }
        }
    }
}

fn holds_types_only(body: &TSNamespaceDeclarationBody<'_>) -> bool {
    match body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => holds_types_only(&inner.body),
        TSNamespaceDeclarationBody::TSModuleBlock(block) => {
            block.body.iter().all(|statement| match statement {
                Statement::TSTypeAliasDeclaration(_) | Statement::TSInterfaceDeclaration(_) => true,
                Statement::TSNamespaceDeclaration(inner) => holds_types_only(&inner.body),
                Statement::ExportDeclaration(export) => match &export.declaration {
                    Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
                    Declaration::TSNamespaceDeclaration(inner) => holds_types_only(&inner.body),
                    _ => false,
                },
                _ => false,
            })
        }
    }
}

fn export_name(name: &ModuleExportName<'_>) -> String {
    name.name().to_string()
}

impl<'a> Visit<'a> for Stripper<'_> {
    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.used.insert(it.name.to_string());
    }

    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        self.values.insert(it.name.to_string());
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.types.insert(it.id.name.to_string());
        self.blank_statement(it.span);
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.types.insert(it.id.name.to_string());
        self.blank_statement(it.span);
    }

    fn visit_ts_external_module_declaration(&mut self, it: &TSExternalModuleDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        if it.declare || holds_types_only(&it.body) {
            self.blank_statement(it.span);
        } else {
            self.refuse(it.span, "namespaces that hold values are not supported here; use a module");
        }
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        if it.declare {
            self.blank_statement(it.span);
            return;
        }
        self.values.insert(it.id.name.to_string());
        for initializer in it.body.members.iter().filter_map(|member| member.initializer.as_ref()) {
            self.visit_expression(initializer);
        }
        enums::lower(&mut self.edits, it);
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        if it.import_kind.is_type() {
            self.blank_statement(it.span);
            return;
        }
        let TSModuleReference::ExternalModuleReference(module) = &it.module_reference else {
            self.refuse(it.span, "an import of a namespace's member is not supported here");
            return;
        };
        self.values.insert(it.id.name.to_string());
        let (name, module) = (it.id.name.as_str(), serde_json::Value::from(module.expression.value.as_str()));
        let text = if self.is_module {
            format!("import {name} from {module};")
        } else {
            format!("const {name} = require({module});")
        };
        let breaks = super::edits::breaks(self.edits.text(it.span.start, it.span.end));
        self.edits.replace(it.span.start, it.span.end, text + &breaks);
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        let start = it.expression.span().start;
        let breaks = super::edits::breaks(self.edits.text(it.span.start, start));
        self.edits.replace(it.span.start, start, format!("module.exports = {breaks}"));
        self.visit_expression(&it.expression);
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        if it.import_kind.is_type() {
            self.blank_statement(it.span);
        }
        attributes::blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
        let names = it.specifiers.iter().flatten().map(|specifier| {
            let of_type = match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(it) => it.import_kind.is_type(),
                _ => false,
            };
            Name {
                span: specifier.span(),
                local: specifier.local().name.to_string(),
                is_type: of_type || it.import_kind.is_type(),
            }
        });
        let of_types = it.import_kind.is_type();
        self.imports.push(Names { span: it.span, names: names.collect(), of_types });
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        if it.export_kind.is_type() {
            self.blank_statement(it.span);
            return;
        }
        let names = it.specifiers.iter().map(|specifier| Name {
            span: specifier.span,
            local: export_name(&specifier.local),
            is_type: specifier.export_kind.is_type(),
        });
        self.exports.push(Names { span: it.span, names: names.collect(), of_types: false });
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        if it.export_kind.is_type() {
            self.blank_statement(it.span);
            return;
        }
        attributes::blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
        for specifier in it.specifiers.iter().filter(|specifier| specifier.export_kind.is_type()) {
            self.edits.blank(specifier.span.start, self.edits.with_comma(specifier.span.end));
        }
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        if it.export_kind.is_type() {
            self.blank_statement(it.span);
        }
        attributes::blank_clause(&mut self.edits, &it.source, it.with_clause.as_deref());
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        attributes::blank_options(&mut self.edits, it);
        walk::walk_import_expression(self, it);
    }

    fn visit_export_declaration(&mut self, it: &ExportDeclaration<'a>) {
        if self.is_erased(&it.declaration) {
            self.blank_statement(it.span);
        } else {
            walk::walk_export_declaration(self, it);
        }
    }

    fn visit_export_default_declaration(&mut self, it: &ExportDefaultDeclaration<'a>) {
        let erased = match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.body.is_none(),
            _ => false,
        };
        if erased {
            self.blank_statement(it.span);
        } else {
            walk::walk_export_default_declaration(self, it);
        }
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if it.declare {
            self.blank_statement(it.span);
        } else {
            walk::walk_variable_declaration(self, it);
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if it.declare || it.body.is_none() {
            self.blank_statement(it.span);
        } else {
            walk::walk_function(self, it, flags);
        }
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.edits.blank(it.span.start, self.edits.with_comma(it.span.end));
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        self.no_decorators(&it.decorators);
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.edits.blank(it.span.start, it.pattern.span().start);
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end);
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        let params = it.params.span;
        // No line break is allowed before `=>`, nor between `async` and its parameters.
        if let Some(types) = it.return_type.as_ref().map(|types| types.span)
            && self.edits.text(params.end, types.end).contains('\n')
        {
            let mut text = super::edits::blanks(self.edits.text(params.end - 1, types.end));
            text.pop();
            self.edits.replace(params.end - 1, types.end, text + ")");
        }
        if let Some(types) = it.type_parameters.as_ref().map(|types| types.span)
            && it.r#async
            && self.edits.text(types.start, params.start).contains('\n')
        {
            self.edits.blank_after('(', types.start, params.start + 1);
        }
        walk::walk_arrow_function_expression(self, it);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        self.no_decorators(&it.decorators);
        if it.declare {
            self.blank_statement(it.span);
            return;
        }
        if it.r#abstract {
            let end = it.id.as_ref().map_or(it.body.span.start, |id| id.span.start);
            self.modifiers(it.span.start, end);
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = self.edits.text(it.span.start, first.span.start);
            if let Some(at) = before.rfind("implements") {
                let at = it.span.start + u32::try_from(at).unwrap_or_default();
                self.edits.blank(at, last.span.end);
            }
        }
        self.derived.push(it.heritage.is_some());
        walk::walk_class(self, it);
        self.derived.pop();
    }

    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}

    fn visit_ts_index_signature(&mut self, it: &TSIndexSignature<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.no_decorators(&it.decorators);
        if it.value.body.is_none() {
            self.blank_statement(it.span);
            return;
        }
        self.modifiers(it.span.start, it.key.span().start);
        if it.optional {
            self.blank_mark(behind(&self.edits, it.key.span(), it.computed));
        }
        if it.kind == MethodDefinitionKind::Constructor {
            self.parameter_properties(&it.value);
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.no_decorators(&it.decorators);
        if it.declare || it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition {
            self.blank_statement(it.span);
            return;
        }
        self.modifiers(it.span.start, it.key.span().start);
        if it.optional || it.definite {
            self.blank_mark(behind(&self.edits, it.key.span(), it.computed));
        }
        if let Some(types) = &it.type_annotation
            && it.value.is_none()
            && AMBIGUOUS.contains(&self.edits.text(it.key.span().start, it.key.span().end))
        {
            self.edits.blank_after(';', types.span.start, types.span.end);
        }
        walk::walk_property_definition(self, it);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.blank_claim(it.expression.span(), it.span);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.blank_claim(it.expression.span(), it.span);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        let inner = it.expression.span();
        if self.edits.text(it.span.start, inner.start).contains('\n') {
            // `return <T>` must not be separated from the returned expression.
            self.edits.blank_after('(', it.span.start, inner.start);
            self.edits.insert(inner.end, ")".to_owned());
        } else {
            self.edits.blank(it.span.start, inner.start);
        }
        self.visit_expression(&it.expression);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.edits.blank(it.span.end - 1, it.span.end);
        self.visit_expression(&it.expression);
    }
}

/// Returns the position after a member's name.
fn behind(edits: &Edits<'_>, key: Span, computed: bool) -> u32 {
    if !computed {
        return key.end;
    }
    let bracket = edits.next(key.end);
    if edits.at(bracket) == Some(']') { bracket + 1 } else { key.end }
}
