use std::path::Path;

use super::{Unused, has_module_syntax, strip};

fn stripped(source: &str) -> String {
    match strip(Path::new("/p/plugin.ts"), source.to_owned(), || Unused::Dropped) {
        Ok(text) => {
            assert_eq!(text.matches('\n').count(), source.matches('\n').count(), "lines moved:\n{text}");
            text
        }
        Err(error) => panic!("{error}\n{source}"),
    }
}

/// Returns the stripped source with runs of white space collapsed, because only the rest matters.
fn tight(source: &str) -> String {
    stripped(source)
        .split('\n')
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn annotations_become_blanks() {
    let source = "const a: Map<string, { b: number }> = new Map<string, any>();\nlet c!: string;";
    assert_eq!(
        stripped(source),
        "const a                             = new Map             ();\nlet c         ;"
    );
}

#[test]
fn functions_and_parameters() {
    assert_eq!(
        tight("function f<T>(this: Foo, a?: T, b: number = 1, ...c: T[]): asserts a is T { return a!; }"),
        "function f ( a , b = 1, ...c ) { return a ; }"
    );
    assert_eq!(tight("function f(a: string): void;\nfunction f(a: any) {}"), ";\nfunction f(a ) {}");
    assert_eq!(tight("declare function g(): void;\nx()"), ";\nx()");
    assert_eq!(tight("const f = async <T,>(a: T): Promise<T> => a;"), "const f = async (a ) => a;");
    assert_eq!(tight("try {} catch (e: unknown) {}"), "try {} catch (e ) {}");
}

#[test]
fn line_breaks_that_would_matter_are_mended() {
    assert_eq!(tight("const f = (a: string): {\n  b: number\n} => a;"), "const f = (a\n\n) => a;");
    assert_eq!(tight("const f = async <\n  T\n>(a: T) => a;"), "const f = async (\n\na ) => a;");
    assert_eq!(tight("const a = b as any\n(c as any).d()"), "const a = b ;\n(c ).d()");
    assert_eq!(tight("const a = b as any\n[1].map(c)"), "const a = b ;\n[1].map(c)");
    assert_eq!(tight("const a = b as number\n  + 1"), "const a = b\n+ 1");
    assert_eq!(tight("a\ninterface B {}\n(c)"), "a\n;\n(c)");
    assert_eq!(tight("function f() { return <\n  any\n>a }"), "function f() { return (\n\na) }");
}

#[test]
fn claims_about_values() {
    assert_eq!(tight("f(a as B, c satisfies D, <E>g, h!.i!, j<K>(l))"), "f(a , c , g, h .i , j (l))");
    assert_eq!(tight("const a = { b: 1 } as const;"), "const a = { b: 1 } ;");
}

#[test]
fn classes() {
    assert_eq!(
        tight(
            "export abstract class A<T> extends B<T> implements C, D<T> {\n  private readonly a: string = '';\n  static b?: number;\n  declare c: string;\n  abstract d(): void;\n  protected override async e?(): Promise<void> {}\n  [key: string]: any;\n  get: string\n  f() {}\n  public ['g'] = 1\n}"
        ),
        "export class A extends B {\na = '';\nstatic b ;\n;\n;\nasync e () {}\n;\nget;\nf() {}\n; ['g'] = 1\n}"
    );
    assert_eq!(
        tight("class A { constructor(private readonly a: string, public b = 1, c: number) { f(); } }"),
        "class A { constructor( a , b = 1, c ) {this.a=a;this.b=b; f(); } }"
    );
    assert_eq!(
        tight("class A extends B { constructor(private a: string) { super(a); f(); } }"),
        "class A extends B { constructor( a ) { super(a);;this.a=a; f(); } }"
    );
}

#[test]
fn imports_and_exports_of_types_are_left_out() {
    assert_eq!(
        tight("import type { A } from 'a';\nimport { type B, c } from 'b';\nc()"),
        ";\nimport { c } from 'b';\nc()"
    );
    assert_eq!(tight("import { A, b } from 'a';\nconst c: A = b;"), "import { b } from 'a';\nconst c = b;");
    assert_eq!(tight("import { A } from 'a';\nconst c: A = 1;"), ";\nconst c = 1;");
    assert_eq!(tight("import a, { B } from 'a';\na()"), "import a, { } from 'a';\na()");
    assert_eq!(tight("import a, * as B from 'a';\na()"), "import a from 'a';\na()");
    assert_eq!(tight("import A, { b } from 'a';\nb()"), "import { b } from 'a';\nb()");
    assert_eq!(tight("import 'a';\nimport {} from 'b';"), "import 'a';\nimport {} from 'b';");
    assert_eq!(tight("import * as a from 'a';\nexport { a };"), "import * as a from 'a';\nexport { a };");
    assert_eq!(tight("interface A {}\nconst b = 1;\nexport { A, b };"), ";\nconst b = 1;\nexport { b };");
    assert_eq!(
        tight("export type { A } from 'a';\nexport { type B, c } from 'b';\nexport type * from 'c';"),
        ";\nexport { c } from 'b';\n;"
    );
    assert_eq!(
        tight(
            "export type A = string;\nexport interface B {}\nexport declare const c: 1;\nexport default interface D {}"
        ),
        ";\n;\n;\n;"
    );
    assert_eq!(
        tight(
            "declare module 'a' { export const b: 1 }\ndeclare global { var c: 1 }\nnamespace N { export type A = 1 }"
        ),
        ";\n;\n;"
    );
}

#[test]
fn verbatim_imports_stay() {
    let verbatim = |source: &str| {
        let text = strip(Path::new("/p/plugin.ts"), source.to_owned(), || Unused::Kept).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        verbatim("import { a } from 'a';\nimport b from 'b';"),
        "import { a } from 'a'; import b from 'b';"
    );
    assert_eq!(verbatim("import a, { type B, c } from 'a';"), "import a, { c } from 'a';");
    assert_eq!(verbatim("import { type B } from 'b';"), "import { } from 'b';");
    assert_eq!(verbatim("import type { A } from 'a';\nimport type B from 'b';"), "; ;");
    assert_eq!(
        verbatim("import * as a from 'a';\nexport { a, type A };\ntype A = 1;"),
        "import * as a from 'a'; export { a, }; ;"
    );
}

#[test]
fn commonjs_spellings() {
    assert_eq!(
        tight("import a = require('a');\nexport = a.b;"),
        "const a = require(\"a\");\nmodule.exports = a.b;"
    );
}

#[test]
fn enums_are_written_as_code() {
    assert_eq!(
        tight(
            "export enum Color {\n  Red,\n  Green = 'g',\n  Blue = 1 << 2,\n  Mixed = Red | Blue,\n  Late = f(),\n  'a-b' = 7,\n}\nnext()"
        ),
        "export var Color; (function (Color) {\n\
         const Red = 0; Color[Color[\"Red\"] = Red] = \"Red\";\n\
         const Green = \"g\"; Color[\"Green\"] = Green;\n\
         const Blue = 4; Color[Color[\"Blue\"] = Blue] = \"Blue\";\n\
         const Mixed = 4; Color[Color[\"Mixed\"] = Mixed] = \"Mixed\";\n\
         const Late = f(); if (typeof (Color[\"Late\"] = Late) === 'number') Color[Color[\"Late\"]] = \"Late\";\n\
         Color[Color[\"a-b\"] = (7)] = \"a-b\";\n\
         })(Color || (Color = {}));\nnext()"
    );
    assert_eq!(
        tight("enum A { B = f<C>() as number }"),
        "var A; (function (A) { const B = f () ; if (typeof (A[\"B\"] = B) === 'number') A[A[\"B\"]] = \"B\"; })(A || (A = {}));"
    );
    assert_eq!(
        tight("declare enum A { B }\nconst enum C { D = -1, E }"),
        ";\nvar C; (function (C) { const D = -1; C[C[\"D\"] = D] = \"D\"; const E = 0; C[C[\"E\"] = E] = \"E\"; })(C || (C = {}));"
    );
}

#[test]
fn what_cannot_be_taken_out_is_named_with_its_place() {
    let refused =
        |source: &str| strip(Path::new("/p/a.ts"), source.to_owned(), || Unused::Dropped).unwrap_err();
    insta::assert_snapshot!(refused("\n  @log class A {}"), @"decorators are not supported here (/p/a.ts:2:3)");
    insta::assert_snapshot!(refused("namespace N { export const a = 1 }"), @"namespaces that hold values are not supported here; use a module (/p/a.ts:1:1)");
    insta::assert_snapshot!(refused("const a: = 1;"), @"Unexpected token (/p/a.ts:1:10)");
}

#[test]
fn module_syntax_is_found_where_it_is() {
    let is_module = |source: &str| has_module_syntax(Path::new("/p/a.js"), source);
    assert!(is_module("import a from 'a'"));
    assert!(is_module("export const a = 1"));
    assert!(is_module("console.log(import.meta.url)"));
    assert!(!is_module("const a = import('a'); module.exports = a;"));
    assert!(!is_module("exports.a = 'export const b'; // import"));
}

#[test]
fn import_attributes_are_left_out_of_javascript_too() {
    let js = |source: &str| strip(Path::new("/p/a.js"), source.to_owned(), || Unused::Dropped).unwrap();
    assert_eq!(
        js("import a from './a.json' with { type: 'json' };"),
        format!("import a from './a.json'{};", " ".repeat(22))
    );
    assert_eq!(
        js("await import('./a.json', { with: { type: 'json' } })"),
        format!("await import('./a.json'{})", " ".repeat(28))
    );
    assert_eq!(js("const a = 'with { b }'; with: for (;;) {}"), "const a = 'with { b }'; with: for (;;) {}");
}

#[test]
fn hyphens_outside_of_classes_become_codes() {
    let js = |source: &str| strip(Path::new("/p/a.js"), source.to_owned(), || Unused::Dropped).unwrap();
    assert_eq!(js(r"x = /-?\d{1,10}[WDHMS-]/v;"), r"x = /\x2d?\d{1,10}[WDHMS-]/v;");
    assert_eq!(
        js(r"x = /(?:[[a-z]--[aeiou]]-)\-|(?-i:a)/giv"),
        r"x = /(?:[[a-z]--[aeiou]]\x2d)\-|(?-i:a)/giv"
    );
    assert_eq!(js(r"x = /https?:\/\/x::y/v;"), r"x = /https?:\/\/x:\x3ay/v;");
    assert_eq!(js(r"x = /(?<!!a)(?:&&)[a&&b]/v;"), r"x = /(?<!\x21a)(?:&\x26)[a&&b]/v;");
    for same in ["x = /a-b/u;", "x = '/-/v';", "x = 1 / v - 2;", "// -/v\nx = /[a-b]/v;"] {
        assert_eq!(js(same), same);
    }
    assert_eq!(stripped("const x: RegExp = /-/v;").replace(' ', ""), r"constx=/\x2d/v;");
}
