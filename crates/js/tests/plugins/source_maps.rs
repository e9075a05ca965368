//! Stacks of built plugins: at their places in the sources.

use crate::support::*;
use oxc_sourcemap::SourceMapBuilder;
use serde_json::{Value, json};

/// A map of one line of code to `plugin.ts`: from a column on to line 7, column 5, and before it to line 1, column 1.
fn map_of(source: &str, column: usize) -> Value {
    let mut map = SourceMapBuilder::default();
    let id = map.add_source_and_content(source, "");
    map.add_token(0, 0, 0, 0, Some(id), None);
    map.add_token(0, u32::try_from(column).unwrap(), 6, 4, Some(id), None);
    serde_json::from_str(&map.into_sourcemap().to_json_string()).unwrap()
}

const THROWS: &str = "throw new Error('no')";

/// What the places of a tool's error are, as its stack, its log and its caller show them.
async fn shown(folder: &Folder, file: &str, text: &str) -> [String; 3] {
    let loader = Loader::default();
    let plugin = loader.load(&folder.write(file, text), "built", Value::Null).await.unwrap();
    let thrown = plugin.run("run", Value::Null).await.unwrap_err();
    let first = |stack: &str| {
        let line = stack.lines().find(|line| line.contains("    at ")).unwrap_or_default();
        line.trim().to_owned().replace(&folder.path().display().to_string(), "")
    };
    assert_eq!(thrown.message, "no");
    let logged = loader.lines.wait_for("caught").await;
    let uncaught = loader.lines.wait_for("uncaught error").await;
    [first(&thrown.stack.unwrap()), first(&logged.to_string()), first(&uncaught.to_string())]
}

/// A plugin on one line.
fn code(before: &str) -> String {
    format!(
        "{before}function apply(host){{host.registerTool({{definition:{{name:'run'}},async run(){{const f=()=>{{{THROWS}}};\
         try{{f()}}catch(error){{console.error('caught',error);setTimeout(()=>{{throw error}});throw error}}}}}})}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_of_built_code_names_the_source() {
    let module = code("export ");
    let script = format!("{};exports.apply=apply;", code(""));
    let at = |text: &str| text.find(THROWS).unwrap();
    let with = |key: &str, value: Value| {
        let mut map = map_of("plugin.ts", at(&module));
        map[key] = value;
        map.to_string()
    };
    let plain = |source: &str| map_of(source, at(&module)).to_string();
    let inline = |map: &str| {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(map);
        format!("//# sourceMappingURL=data:application/json;charset=utf-8;base64,{encoded}")
    };
    let beside = "//# sourceMappingURL=index.js.map".to_owned();
    let mapped = "at f (/src/plugin.ts:7:5)";
    let rows: Vec<(&str, &str, &str, String, String, &str)> = vec![
        ("beside", "dist/index.mjs", &module, beside.clone(), plain("../src/plugin.ts"), mapped),
        ("inline", "dist/index.mjs", &module, inline(&plain("../src/plugin.ts")), String::new(), mapped),
        (
            "CommonJS",
            "dist/index.cjs",
            &script,
            beside.clone(),
            map_of("../src/plugin.ts", at(&script)).to_string(),
            mapped,
        ),
        ("a root", "dist/index.mjs", &module, beside.clone(), with("sourceRoot", json!("../src/")), mapped),
        (
            "an absolute source",
            "dist/index.mjs",
            &module,
            beside.clone(),
            plain("/home/src/plugin.ts"),
            "at f (/home/src/plugin.ts:7:5)",
        ),
        (
            "a file URL",
            "dist/index.mjs",
            &module,
            beside.clone(),
            plain("file:///home/a%20b.ts"),
            "at f (/home/a b.ts:7:5)",
        ),
        (
            "a bundler's URL",
            "dist/index.mjs",
            &module,
            beside.clone(),
            plain("webpack://built/./src/plugin.ts"),
            "at f (webpack://built/./src/plugin.ts:7:5)",
        ),
        (
            "a guarded map",
            "dist/index.mjs",
            &module,
            beside.clone(),
            format!(")]}}'\n{}", plain("../src/plugin.ts")),
            mapped,
        ),
        (
            "a style sheet's comment",
            "dist/index.mjs",
            &module,
            "/*# sourceMappingURL=index.js.map */".to_owned(),
            plain("../src/plugin.ts"),
            mapped,
        ),
        (
            "a trailing text",
            "dist/index.mjs",
            &module,
            format!("{beside}\n// end\n"),
            plain("../src/plugin.ts"),
            mapped,
        ),
    ];
    for (what, file, text, comment, map, expected) in rows {
        let folder = Folder::new();
        folder.write("dist/index.js.map", &map);
        let seen = shown(&folder, file, &format!("{text}\n{comment}")).await;
        assert_eq!(seen, [expected; 3], "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_without_a_readable_map_stays_as_it_is() {
    let module = code("export ");
    let column = module.find(THROWS).unwrap();
    let map = map_of("../src/plugin.ts", column).to_string();
    let off = format!("import process from 'node:process';process.setSourceMapsEnabled(false);{module}");
    let rows = [
        ("no comment", module.clone(), ""),
        ("a text that is no comment", format!("{module}\nconst a = 'sourceMappingURL=index.js.map';"), ""),
        ("a missing map", module.clone(), "//# sourceMappingURL=other.map"),
        ("another host", module.clone(), "//# sourceMappingURL=https://example.com/index.js.map"),
        ("no map", module.clone(), "//# sourceMappingURL=index.mjs"),
        ("a folder", module.clone(), "//# sourceMappingURL=."),
        ("a broken URL", module.clone(), "//# sourceMappingURL=data:application/json;base64,*"),
        ("switched off", off, "//# sourceMappingURL=index.js.map"),
    ];
    for (what, text, comment) in rows {
        let folder = Folder::new();
        folder.write("dist/index.js.map", &map);
        for place in shown(&folder, "dist/index.mjs", &format!("{text}\n{comment}")).await {
            assert!(place.starts_with("at f (/dist/index.mjs:1:"), "{what}: {place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_the_memory_of_a_plugin_cannot_have_is_left_out() {
    let module = code("export ");
    let mut map = map_of("../src/plugin.ts", module.find(THROWS).unwrap());
    map["sourcesContent"] = json!(["x".repeat(8 << 20)]);
    let folder = Folder::new();
    folder.write("index.js.map", &map.to_string());
    let path = folder.write("index.mjs", &format!("{module}\n//# sourceMappingURL=index.js.map"));
    for (limit, place) in [(24 << 20, "index.mjs:1:"), (64 << 20, "plugin.ts:7:5")] {
        let mut loader = Loader::default();
        loader.options.memory_limit = Some(limit);
        let plugin = loader.load(&path, "built", Value::Null).await.unwrap();
        let stack = plugin.run("run", Value::Null).await.unwrap_err().stack.unwrap();
        assert!(stack.lines().next().unwrap().contains(place), "{limit}: {stack}");
    }
}

/// A message is text that others may have written, such as the answer of a server.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_a_message_stays_as_it_is() {
    let folder = Folder::new();
    folder.write("other.mjs", "export {};\n//# sourceMappingURL=other.mjs.map");
    folder.write("other.mjs.map", &map_of("other.ts", 1).to_string());
    let path = folder.write(
        "index.mjs",
        "import { inspect } from 'node:util';\n\
         const place = `${import.meta.dirname}/other.mjs`;\n\
         const error = () => new Error(`no\\n    at f (${place}:1:2)\\n    at g (${place}?v=1:1:2)`);\n\
         export const apply = (host) => host.registerTool({ definition: { name: 'run' }, async run({ load }) {\n\
           if (!load) throw error();\n\
           await import('./other.mjs'); return inspect(error()); } });",
    );
    let plugin = Loader::default().load(&path, "built", Value::Null).await.unwrap();
    let own = |text: &str| text.replace(&folder.path().display().to_string(), "");
    // For the host, they look like a part of the stack; the file was not loaded.
    let thrown = plugin.run("run", json!({})).await.unwrap_err().stack.unwrap();
    let lines: Vec<String> = thrown.lines().take(2).map(|line| own(line.trim())).collect();
    assert_eq!(lines, ["at f (/other.mjs:1:2)", "at g (/other.mjs?v=1:1:2)"]);
    // It is loaded, and inside of the plugin the message is known as such.
    let shown = plugin.run("run", json!({ "load": true })).await.unwrap();
    let shown = own(shown.as_str().unwrap());
    assert!(
        shown.starts_with("Error: no\n    at f (/other.mjs:1:2)\n    at g (/other.mjs?v=1:1:2)\n"),
        "{shown}"
    );
    assert_eq!(shown.matches("Error: no").count(), 1, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_worker_names_the_source_where_it_is_shown() {
    let folder = Folder::new();
    let text = format!("const f=()=>{{{THROWS}}};f()");
    let map = map_of("worker.ts", text.find(THROWS).unwrap());
    folder.write("worker.mjs", &format!("{text}\n//# sourceMappingURL=worker.mjs.map"));
    folder.write("worker.mjs.map", &map.to_string());
    let path = folder.write(
        "index.mjs",
        "import { inspect } from 'node:util'; import { Worker } from 'node:worker_threads';\n\
         export const apply = (host) => host.registerTool({ definition: { name: 'run' }, run: () => new Promise((resolve) => {\n\
           new Worker(new URL('./worker.mjs', import.meta.url)).on('error', (error) => resolve(inspect(error))); }) });",
    );
    let plugin = Loader::default().load(&path, "built", Value::Null).await.unwrap();
    let seen = plugin.run("run", Value::Null).await.unwrap();
    assert!(seen.as_str().unwrap().contains("/worker.ts:7:5)"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_learn_whether_maps_are_used() {
    let seen = run(
        "import * as module from 'node:module';\nimport process from 'node:process';",
        "const before = module.getSourceMapsSupport();\n\
         process.setSourceMapsEnabled(false);\n\
         const after = module.getSourceMapsSupport().enabled;\n\
         module.setSourceMapsSupport(true);\n\
         const wrong = [() => process.setSourceMapsEnabled(1), () => module.setSourceMapsSupport()].map((call) => { try { call(); } catch (error) { return error.code; } });\n\
         return [before, after, module.getSourceMapsSupport().enabled, wrong, typeof module.findSourceMap];",
    )
    .await;
    let enabled = json!({ "enabled": true, "nodeModules": true, "generatedCode": false });
    let wrong = json!(["ERR_INVALID_ARG_TYPE", "ERR_INVALID_ARG_TYPE"]);
    assert_eq!(seen, json!([enabled, false, true, wrong, "undefined"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_on_the_first_line_is_at_its_own_column() {
    let folder = Folder::new();
    for (file, before, after) in [("dist/a.mjs", "export ", ""), ("dist/b.cjs", "", ";exports.apply=apply")] {
        let built = format!("{}{after}", code(before));
        let map = map_of("../src/plugin.ts", built.find("f()}catch").unwrap());
        folder.write(&format!("{file}.map"), &map.to_string());
        let text = format!("{built}\n//# sourceMappingURL={}.map", file.trim_start_matches("dist/"));
        let plugin = Loader::default().load(&folder.write(file, &text), "built", Value::Null).await.unwrap();
        let stack = plugin.run("run", Value::Null).await.unwrap_err().stack.unwrap();
        let called = stack.lines().find(|line| line.contains("at run ")).unwrap_or_default();
        assert!(called.ends_with("/src/plugin.ts:7:5)"), "{file}: {stack}");
    }
}
