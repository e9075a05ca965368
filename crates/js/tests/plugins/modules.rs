//! What a plugin may import, and what it is told when it may not.

use crate::support::*;
use ostler_contract::*;

/// Imports `index` of a folder with these files and answers what its tool says.
async fn say(files: &[(&str, &str)], index: &str) -> Result<Value, Thrown> {
    let folder = Folder::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    let loader = Loader::default();
    let plugin = loader.load(&folder.path().join(index), "plugin", Value::Null).await?;
    let said = plugin.run("say", Value::Null).await;
    let lines = loader.lines.texts();
    assert!(lines.is_empty(), "{lines:#?}");
    said.map(|said| without(said, &folder))
}

fn without(value: Value, folder: &Folder) -> Value {
    let text = value.to_string().replace(folder.path().to_str().unwrap(), "");
    serde_json::from_str(&text).unwrap()
}

const TELL: &str =
    "export const tell = (host, run) => host.registerTool({ definition: { name: 'say' }, run });";

#[tokio::test(flavor = "multi_thread")]
async fn modules_json_and_top_level_await() {
    let said = say(
        &[
            ("tell.js", TELL),
            ("package.json", r#"{ "type": "module" }"#),
            ("data.json", r#"{ "deep": [1, 2] }"#),
            ("other.js", "import data from './data.json';\nexport default await Promise.resolve(data.deep);\nexport const url = import.meta.url;"),
            (
                "index.js",
                "import { tell } from './tell.js';\nimport other, { url } from './other.js';\nimport data from './data.json' with { type: 'json' };\n\
                 export function apply(host) { tell(host, async () => {\n\
                   const late = await import('./late.mjs');\n\
                   return [other, url, data.deep.length, late.say('x'), import.meta.dirname, import.meta.filename, import.meta.resolve('./a.js', 1), Object.keys(late)];\n\
                 }); }",
            ),
            ("a.js", ""),
            ("late.mjs", "export const say = (word) => `late ${word}`;"),
        ],
        "index.js",
    )
    .await
    .unwrap();
    assert_eq!(
        said,
        json!([[1, 2], "file:///other.js", 2, "late x", "", "/index.js", "file:///a.js", ["say"]])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_in_all_its_endings() {
    let said = say(
        &[
            ("tell.ts", "type Run = () => unknown;\nexport const tell = (host: { registerTool(tool: object): void }, run: Run) => host.registerTool({ definition: { name: 'say' }, run });"),
            ("kinds.ts", "export enum Kind { A = 1, B }\nexport interface Shape { kind: Kind }\nexport class Box { constructor(readonly kind: Kind) {} }"),
            ("old.cts", "const kept: string = 'old';\nmodule.exports = { kept };"),
            ("new.mts", "export const fresh: string = 'new' as const;"),
            (
                "index.ts",
                "import { tell } from './tell.js';\nimport { Kind, Shape, Box } from './kinds.ts';\nimport { kept } from './old.cjs';\nimport { fresh } from './new.mjs';\n\
                 const shape: Shape = { kind: Kind.B };\n\
                 export function apply(host: any): void {\n  tell(host, () => [shape.kind, Kind[2], new Box(Kind.A).kind, kept, fresh]);\n}",
            ),
        ],
        "index.ts",
    )
    .await
    .unwrap();
    assert_eq!(said, json!([2, "B", 1, "old", "new"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_name_the_authors_line_in_typescript() {
    let folder = Folder::new();
    let path = folder.write(
        "index.ts",
        "interface A {\n  a: string;\n}\n\nfunction fail(a: A): never {\n  throw new Error(a.a);\n}\n\nexport function apply() {\n  fail({ a: 'no' });\n}\n",
    );
    let thrown = Loader::default().load(&path, "plugin", Value::Null).await.unwrap_err();
    let stack = thrown.stack.unwrap();
    assert!(stack.contains("at fail (") && stack.contains("index.ts:6:"), "{stack}");
    assert!(stack.contains("at apply (") && stack.contains("index.ts:10:"), "{stack}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_both_kinds() {
    let said = say(
        &[
            ("tell.mjs", TELL),
            ("node_modules/modern/package.json", r#"{ "type": "module", "exports": { ".": { "ostler": "./ostler.js", "import": "./import.js" }, "./sub": "./sub.js" } }"#),
            ("node_modules/modern/ostler.js", "export default 'for ostler';"),
            ("node_modules/modern/import.js", "export default 'for anyone';"),
            ("node_modules/modern/sub.js", "import inner from '#inner'; export const sub = inner;"),
            ("node_modules/modern/inner.js", ""),
            ("node_modules/@old/way/package.json", r#"{ "main": "lib" }"#),
            ("node_modules/@old/way/lib/index.js", "exports.named = 'n';\nexports.helper = require('./helper').helper;\nexports.path = require('path').join('a', 'b');\nexports.here = __filename;\nexports.default = 5;"),
            ("node_modules/@old/way/lib/helper.js", "const { EventEmitter } = require('node:events');\nmodule.exports.helper = typeof EventEmitter;"),
            ("node_modules/callable/index.js", "module.exports = function callable() { return 'called'; };\nmodule.exports.also = 'also';"),
            ("node_modules/dual/package.json", r#"{ "exports": { "require": "./a.cjs", "default": "./a.mjs" } }"#),
            ("node_modules/dual/a.cjs", "module.exports = 'required';"),
            ("node_modules/dual/a.mjs", "export default 'imported';"),
            (
                "index.mjs",
                "import { tell } from './tell.mjs';\nimport modern from 'modern';\nimport way, { named, helper, path, here } from '@old/way';\nimport callable, { also } from 'callable';\nimport dual from 'dual';\nimport { createRequire } from 'module';\n\
                 const require = createRequire(import.meta.url);\n\
                 export function apply(host) { tell(host, () => [modern, named, helper, path, here, typeof way, way.default, callable(), also, dual, require('dual'), require('callable') === callable, require.resolve('dual'), require('./data.json').a, require('@old/way').named]); }",
            ),
            ("data.json", r#"{ "a": 1 }"#),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    assert_eq!(
        said,
        json!([
            "for ostler",
            "n",
            "function",
            "a/b",
            "/node_modules/@old/way/lib/index.js",
            "object",
            5,
            "called",
            "also",
            "imported",
            "required",
            true,
            "/node_modules/dual/a.cjs",
            1,
            "n"
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_may_be_commonjs_itself() {
    let said = say(
        &[
            ("esm.mjs", "export const shape = 'a module'; export default 1;"),
            ("named.mjs", "export const shape = 'without a default';"),
            ("cycle.js", "exports.early = true; const { name } = require('./index.js'); exports.late = name;"),
            (
                "index.js",
                "exports.name = 'plugin';\nconst cycle = require('./cycle.js');\nconst esm = require('./esm.mjs');\n\
                 exports.apply = async (host) => { const { default: one } = await import('./esm.mjs'); host.registerTool({ definition: { name: 'say' }, run: () => [esm.shape, one, cycle.early, cycle.late, require.cache[__filename].loaded, esm.__esModule, esm.default, require('./esm.mjs') === esm, require('./named.mjs').__esModule] }); };",
            ),
        ],
        "index.js",
    )
    .await
    .unwrap();
    assert_eq!(said, json!(["a module", 1, true, "plugin", true, true, 1, true, null]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_says_why() {
    let folder = Folder::new();
    let refused = async |name: &str, text: &str| {
        let path = folder.write(name, text);
        let thrown = Loader::default().import(&path, "plugin").await.unwrap_err();
        thrown.message.replace(folder.path().to_str().unwrap(), "<dir>")
    };
    insta::assert_snapshot!(refused("a.mjs", "import './none.js'").await, @"Cannot find module '<dir>/none.js' imported from <dir>/a.mjs");
    insta::assert_snapshot!(refused("b.mjs", "import x from 'not-installed'").await, @"Cannot find package 'not-installed' imported from <dir>/b.mjs");
    insta::assert_snapshot!(refused("e.mjs", "import x from 'https://example.com/a.js'").await, @"https://example.com/a.js cannot be imported: only files and packages can, by path or by name");
    insta::assert_snapshot!(refused("f.mjs", "import x from 'node:nonsense'").await, @"the engine plugins run on does not have Node's module node:nonsense imported from <dir>/f.mjs");
    insta::assert_snapshot!(refused("d.mjs", "import x from 'sqlite'").await, @"the engine plugins run on does not have Node's module node:sqlite imported from <dir>/d.mjs");
    insta::assert_snapshot!(refused("g.mjs", "export const a = ;").await, @"unexpected token in expression: ';' (<dir>/g.mjs:1:18)");
    insta::assert_snapshot!(refused("h.ts", "export const a: number = ;\n").await, @"Unexpected token (<dir>/h.ts:1:26)");
    folder.write("i.json", "{ \"a\": }");
    insta::assert_snapshot!(refused("i.mjs", "import a from './i.json'").await, @"<dir>/i.json is not JSON: SyntaxError: unexpected token: '}'");
    insta::assert_snapshot!(refused("j.mjs", "import { nothing } from './k.mjs'").await, @"Cannot find module '<dir>/k.mjs' imported from <dir>/j.mjs");
    folder.write("k.mjs", "export const some = 1;");
    insta::assert_snapshot!(refused("l.mjs", "import { nothing } from './k.mjs'").await, @"Could not find export 'nothing' in module '<dir>/k.mjs'");
    insta::assert_snapshot!(refused("m.mjs", "throw new Error('at the top')").await, @"at the top");
    insta::assert_snapshot!(refused("n.mjs", "import 'ostler:native/commonjs'").await, @"ostler:native/commonjs cannot be imported: only files and packages can, by path or by name");
    insta::assert_snapshot!(refused("o.mjs", "import 'native/commonjs'").await, @"Cannot find package 'native' imported from <dir>/o.mjs");
    insta::assert_snapshot!(refused("p.cjs", "require('./none')").await, @r"
Cannot find module './none'
Require stack:
- <dir>/p.cjs
");
    folder.write("node_modules/closed/package.json", r#"{ "exports": { "./a": "./a.js" } }"#);
    insta::assert_snapshot!(refused("q.mjs", "import 'closed/b'").await, @r#""./b" is not exported under the conditions ["ostler", "node", "import", "default"] from package <dir>/node_modules/closed (see exports field in <dir>/node_modules/closed/package.json) imported from <dir>/q.mjs"#);
    folder.write("r.node", "");
    insta::assert_snapshot!(refused("r.mjs", "import './r.node'").await, @"<dir>/r.node is a native addon, which the engine plugins run on cannot load");
    let gone = Loader::default().import(&folder.path().join("gone.mjs"), "plugin").await.unwrap_err();
    insta::assert_snapshot!(gone.message.replace(folder.path().to_str().unwrap(), "<dir>"), @"Cannot find module '<dir>/gone.mjs'");
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_of_the_module_are_read_as_data() {
    let loader = Loader::default();
    let path = Folder::new();
    let file = path.write(
        "index.mjs",
        "export const name = 'notes'; export const title = 'Notes'; export const defaults = { a: 1, b: undefined, c: () => 1 };\n\
         export const optionsSchema = { type: 'object', properties: { a: { type: 'number' } } };\nexport default function apply() {}",
    );
    let module = loader.import(&file, "x").await.unwrap();
    assert_eq!(module.name, Some(json!("notes")));
    assert_eq!(module.title.as_deref(), Some("Notes"));
    assert_eq!(module.defaults, Some(json!({ "a": 1 })));
    assert_eq!(
        module.options_schema,
        Some(json!({ "type": "object", "properties": { "a": { "type": "number" } } }))
    );
    assert!(module.apply.is_none(), "the default export is never consulted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_is_served_without_an_install() {
    let said = say(
        &[
            ("node_modules/@ostler/sdk/package.json", r#"{ "type": "module", "main": "index.js" }"#),
            ("node_modules/@ostler/sdk/index.js", "export const RpcError = 'an old copy';"),
            ("tell.mjs", TELL),
            ("old.cjs", "module.exports = require('@ostler/sdk').RpcError;"),
            (
                "index.mjs",
                "import { tell } from './tell.mjs';\nimport { RpcError } from '@ostler/sdk';\nimport * as sdk from '@ostler/sdk';\nimport required from './old.cjs';\n\
                 export function apply(host) { tell(host, () => {\n\
                   const error = new RpcError(-32602, 'no', { a: 1 });\n\
                   try { new RpcError('x'); } catch (wrong) { return ['RpcError' in sdk, error instanceof Error, String(error), error.code, error.data, required === RpcError, wrong.message]; }\n\
                 }); }",
            ),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    assert_eq!(
        said,
        json!([true, true, "RpcError: no", -32602, { "a": 1 }, true, "an RpcError needs its code to be an integer, not x"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verbatim_imports_are_made_though_nothing_uses_them() {
    let say_with = async |config: &str| {
        say(
            &[
                ("tsconfig.base.json", r#"{ "compilerOptions": { "verbatimModuleSyntax": true } }"#),
                ("tsconfig.json", config),
                ("tell.ts", TELL),
                ("seen.ts", "export const seen: string[] = [];"),
                ("a.ts", "import { seen } from './seen.ts';\nseen.push('a');\nexport const a = 1; export interface B {}"),
                (
                    "index.ts",
                    "import { tell } from './tell.ts';\nimport { seen } from './seen.ts';\nimport { a, type B } from './a.ts';\nimport type { C } from './not-there.ts';\n\
                     export function apply(host: unknown) { tell(host, () => seen); }",
                ),
            ],
            "index.ts",
        )
        .await
        .unwrap()
    };
    assert_eq!(
        say_with("{\n  // inherited\n  \"extends\": \"./tsconfig.base.json\",\n}").await,
        json!(["a"])
    );
    assert_eq!(say_with("{}").await, json!([]));
    assert_eq!(say_with("this is not JSON").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_what_is_no_function_is_named() {
    let said = say(
        &[
            ("tell.mjs", TELL),
            ("common.cjs", "const helper = {}; exports.go = () => helper.later(1);\nexports.more = (client) => client.send(String(1));"),
            ("typed.ts", "enum Kind { A, B } export const go = (client: { run?: (a: Kind) => void }): void => client.run!(Kind.A);"),
            (
                "index.mjs",
                "import { tell } from './tell.mjs';\nimport common from './common.cjs';\nimport { go } from './typed.ts';\nimport path from 'node:path';\n\
                 const said = (run) => { try { run(); } catch (error) { return [error.message, error.stack.split('\\n')[0]]; } };\n\
                 export function apply(host) { tell(host, () => {\n\
                   const client = {}; let nothing; const inner = (x) => x;\n\
                   return [said(() => common.go()), said(() => common.more(client)), said(() => go(client)), said(() => path.nope('a')),\n\
                     said(() => new client.Agent({ a: nothing })), said(() => client.a(inner(nothing))), said(() => client.chat(JSON.stringify(client))),\n\
                     said(() => { throw new TypeError('not a function'); }), said(() => [1].map(nothing))];\n\
                 }); }",
            ),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    let told = |message: &str| json!([message, format!("TypeError: {message}")]);
    assert_eq!(
        said,
        json!([
            told("helper.later is not a function"),
            told("client.send is not a function"),
            told("client.run is not a function"),
            told("path.nope is not a function"),
            told("client.Agent is not a constructor"),
            told("inner is not a function, or client.a is not a function"),
            told("client.chat is not a function"),
            told("not a function"),
            told("not a function"),
        ])
    );
}
