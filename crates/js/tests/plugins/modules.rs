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
    insta::assert_snapshot!(refused("e.mjs", "import x from 'https://example.com/a.js'").await, @"https://example.com/a.js cannot be imported: only files, packages and data: URLs can, by path, by name or by URL");
    insta::assert_snapshot!(refused("f.mjs", "import x from 'node:nonsense'").await, @"the engine that runs plugins does not have Node's module node:nonsense imported from <dir>/f.mjs");
    insta::assert_snapshot!(refused("d.mjs", "import x from 'sqlite'").await, @"the engine that runs plugins does not have Node's module node:sqlite imported from <dir>/d.mjs");
    insta::assert_snapshot!(refused("g.mjs", "export const a = ;").await, @"unexpected token in expression: ';' (<dir>/g.mjs:1:18)");
    insta::assert_snapshot!(refused("h.ts", "export const a: number = ;\n").await, @"Unexpected token (<dir>/h.ts:1:26)");
    folder.write("i.json", "{ \"a\": }");
    insta::assert_snapshot!(refused("i.mjs", "import a from './i.json'").await, @"<dir>/i.json is not JSON: SyntaxError: unexpected token: '}'");
    insta::assert_snapshot!(refused("j.mjs", "import { nothing } from './k.mjs'").await, @"Cannot find module '<dir>/k.mjs' imported from <dir>/j.mjs");
    folder.write("k.mjs", "export const some = 1;");
    insta::assert_snapshot!(refused("l.mjs", "import { nothing } from './k.mjs'").await, @"Could not find export 'nothing' in module '<dir>/k.mjs' imported from '<dir>/l.mjs'");
    insta::assert_snapshot!(refused("m.mjs", "throw new Error('at the top')").await, @"at the top");
    insta::assert_snapshot!(refused("n.mjs", "import 'ostler:native/commonjs'").await, @"ostler:native/commonjs cannot be imported: only files, packages and data: URLs can, by path, by name or by URL");
    insta::assert_snapshot!(refused("o.mjs", "import 'native/commonjs'").await, @"Cannot find package 'native' imported from <dir>/o.mjs");
    insta::assert_snapshot!(refused("p.cjs", "require('./none')").await, @r"
Cannot find module './none'
Require stack:
- <dir>/p.cjs
");
    folder.write("node_modules/closed/package.json", r#"{ "exports": { "./a": "./a.js" } }"#);
    insta::assert_snapshot!(refused("q.mjs", "import 'closed/b'").await, @r#""./b" is not exported under the conditions ["ostler", "node", "import", "module-sync", "default"] from package <dir>/node_modules/closed (see exports field in <dir>/node_modules/closed/package.json) imported from <dir>/q.mjs"#);
    folder.write("r.node", "");
    insta::assert_snapshot!(refused("r.mjs", "import './r.node'").await, @"<dir>/r.node is a native addon, which the engine that runs plugins cannot load");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_query_makes_a_module_of_its_own() {
    let said = say(
        &[
            ("tell.mjs", TELL),
            ("x.mjs", "export const own = {}; export const { url, filename } = import.meta; export const near = import.meta.resolve('./y.mts?z');"),
            ("y.mts", "export const own: object = {}; export const url: string = import.meta.url;"),
            ("c.cjs", "module.exports = { file: __filename };"),
            ("q?a.mjs", "export default 'a file with a question mark';"),
            (
                "index.mjs",
                "import { tell } from './tell.mjs';\n\
                 export function apply(host) { tell(host, async () => {\n\
                   const all = [await import('./x.mjs'), await import('./x.mjs?v=1'), await import('./x.mjs?v=2/3#a'), await import(new URL('./x.mjs?v=4', import.meta.url).href), await import('./y.mts?v=1'), await import('./y.mts?v=2')];\n\
                   return [\n\
                     all.map(({ url }) => url), new Set(all.map(({ own }) => own)).size, all[2].filename, all[2].near,\n\
                     (await import('./x.mjs?v=1')).own === all[1].own,\n\
                     (await import('./c.cjs?v=1')).default === (await import('./c.cjs')).default, (await import('./c.cjs?v=1')).file,\n\
                     (await import(new URL('./q%3Fa.mjs', import.meta.url).href)).default,\n\
                     await import('./gone.mjs?v=1').catch(({ code }) => code),\n\
                   ];\n\
                 }); }",
            ),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    let urls = ["x.mjs", "x.mjs?v=1", "x.mjs?v=2/3#a", "x.mjs?v=4", "y.mts?v=1", "y.mts?v=2"]
        .map(|name| format!("file:///{name}"));
    assert_eq!(
        said,
        json!([
            urls,
            6,
            "/x.mjs",
            "file:///y.mts?z",
            true,
            true,
            "/c.cjs",
            "a file with a question mark",
            "ERR_MODULE_NOT_FOUND"
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn data_urls_and_webassembly_are_imported() {
    let folder = Folder::new();
    let loader = Loader::default();
    // (module (import "./m.mjs" "f" (func (result i32))) (global (export "x") i32 i32.const 5) (export "g" (func 0)))
    let wasm: &[u8] = b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x02\x0d\x01\x07./m.mjs\x01f\0\0\x06\x06\x01\x7f\0\x41\x05\x0b\x07\x09\x02\x01g\0\0\x01x\x03\0";
    folder.write("m.mjs", "export const f = () => 42;");
    std::fs::write(folder.path().join("some.wasm"), wasm).unwrap();
    std::fs::write(folder.path().join("bad.wasm"), b"\0asm\x02\0\0\0").unwrap();
    let path = folder.write(
        "index.mjs",
        "import { createRequire } from 'node:module';\n\
         const failed = (error) => error.message;\n\
         const run = async () => {\n\
           const { g, x } = await import('./some.wasm');\n\
           return [\n\
             g(), x,\n\
             (await import('data:text/javascript,export default 1')).default,\n\
             (await import('data:text/javascript;base64,' + btoa('import path from \"node:path\"; export default [path.sep, import.meta.url.slice(0, 9)]'))).default,\n\
             (await import('data:application/json,{\"a\":[1]}', { with: { type: 'json' } })).default.a,\n\
             await import('data:text/javascript,import \"./m.mjs\"').catch(failed),\n\
             await import('data:text/css,a').catch(failed), await import('data:nothing').catch(failed),\n\
             await import('./bad.wasm').catch(failed),\n\
             (() => { try { createRequire(import.meta.url)('./some.wasm'); } catch (error) { return failed(error); } })(),\n\
           ];\n\
         };\n\
         export const apply = (host) => host.registerTool({ definition: { name: 'say' }, run });",
    );
    let plugin = loader.load(&path, "plugin", Value::Null).await.unwrap();
    let said = without(plugin.run("say", Value::Null).await.unwrap(), &folder);
    let bad = said[8].as_str().unwrap();
    assert!(bad.starts_with("/bad.wasm: "), "{bad}");
    assert_eq!(
        said.as_array().unwrap()[..8],
        [
            json!(42),
            json!(5),
            json!(1),
            json!(["/", "data:text"]),
            json!([1]),
            json!("./m.mjs cannot be imported from a data: URL: only built-in modules and whole URLs can"),
            json!(
                "data:text/css,a has the media type \"text/css\", which cannot be imported; text/javascript, application/json and application/wasm can"
            ),
            json!("data:nothing is not a data: URL that can be read"),
        ]
    );
    assert_eq!(said[9], "/some.wasm is a WebAssembly module, which require cannot load; import it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_contain_u0000_and_an_error_the_whole_path() {
    let deep = "a-folder-with-a-long-name/and-another-one-below-it/and-a-third-one-that-makes-it-long";
    let said = say(
        &[
            ("tell.mjs", TELL),
            ("nul.mjs", "// \0\nexport const length = 'a\0b'.length + `\0`.length + /\0/.source.length; export const line = new Error().stack.includes('nul.mjs:2');"),
            ("nul.cjs", "module.exports = 'a\0b';"),
            (&format!("{deep}/one.mjs"), "export { missing as other } from './two.mjs';"),
            (&format!("{deep}/two.mjs"), "export const there = 1;"),
            (&format!("{deep}/three.mjs"), "import { aVeryLongNameThatIsLongerThanWhatTheEngineShowsOfItInItsMessages } from './two.mjs';"),
            (
                "index.mjs",
                &format!(
                    "import {{ tell }} from './tell.mjs';\nimport * as nul from './nul.mjs';\nimport text from './nul.cjs';\nimport vm from 'node:vm';\n\
                     export function apply(host) {{ tell(host, async () => [\n\
                       nul.length, nul.line, text.length, vm.runInThisContext('\"a\\0b\".length'),\n\
                       await import('./{deep}/one.mjs').catch(({{ message }}) => message), await import('./{deep}/three.mjs').catch(({{ message }}) => message),\n\
                     ]); }}"
                ),
            ),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    assert_eq!(
        said,
        json!([
            5,
            true,
            3,
            3,
            format!(
                "Could not find export 'missing' in module '/{deep}/two.mjs' imported from '/{deep}/one.mjs'"
            ),
            format!(
                "Could not find export 'aVeryLongNameThatIsLongerThanWhatTheEngineShowsOfItInItsMessages' in module '/{deep}/two.mjs' imported from '/{deep}/three.mjs'"
            ),
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_required_from_and_the_condition_for_both_kinds_is_taken() {
    let said = say(
        &[
            ("tell.mjs", TELL),
            ("sub/e.cjs", "module.exports = 5;"),
            ("node_modules/dual/package.json", r#"{ "exports": { "module-sync": "./sync.mjs", "default": "./other.mjs" } }"#),
            ("node_modules/dual/sync.mjs", "export default 'sync';"),
            ("node_modules/dual/other.mjs", "export default 'other';"),
            (
                "index.mjs",
                "import { tell } from './tell.mjs';\nimport dual from 'dual';\nimport { createRequire } from 'node:module';\n\
                 export function apply(host) { tell(host, async () => {\n\
                   const url = new URL('./sub/', import.meta.url);\n\
                   const from = [url, url.href, url.pathname, url.pathname + 'nothing.js'].map((from) => createRequire(from)('./e.cjs'));\n\
                   const wrong = ['./x', 5, undefined, 'http://a/b', {}].map((from) => { try { createRequire(from); } catch ({ code, message }) { return [code, message]; } });\n\
                   return [from, dual, createRequire(import.meta.url)('dual').default, wrong.map(([code]) => code), wrong[0][1]];\n\
                 }); }",
            ),
        ],
        "index.mjs",
    )
    .await
    .unwrap();
    let why = "The argument 'filename' must be a file URL object, file URL string, or absolute path string. Received './x'";
    assert_eq!(said, json!([[5, 5, 5, 5], "sync", "sync", vec!["ERR_INVALID_ARG_VALUE"; 5], why]));
}
