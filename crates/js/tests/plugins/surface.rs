//! What plugins find of Node and the web.

use crate::isolation::tools;
use crate::support::*;
use ostler_contract::protocol::names::SDK;
use ostler_contract::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_module_loads_and_exports_something() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    for (name, exports) in &surface.modules {
        assert!(
            exports.len() > 1
                || ["@ostler/sdk", "constants"].contains(&name.as_str())
                || name.starts_with("_stream_"),
            "{name}: {exports:?}"
        );
        if name != "@ostler/sdk" {
            assert!(exports.iter().any(|export| export == "default"), "{name} has no default export");
        }
    }
}

/// Modules import one another: whichever is first, nothing in it may be used before it is there.
#[tokio::test(flavor = "multi_thread")]
async fn every_module_may_be_the_first() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let mut failed = Vec::new();
    for name in surface.modules.keys() {
        let own = name == SDK;
        let spellings = if own { vec![name.clone()] } else { vec![format!("node:{name}"), name.clone()] };
        let undefined = json!(surface.undefined.get(name).cloned().unwrap_or_default());
        let packages = ["sea", "sqlite", "test", "test/reporters"];
        for module in spellings.iter().filter(|module| !packages.contains(&module.as_str())) {
            let all = format!(
                "return Object.keys(all).every((key) => all[key] !== undefined || {undefined}.includes(key)) && ({own} || all.default !== undefined);"
            );
            for (imports, read) in [
                (format!("import * as all from '{module}';"), all.as_str()),
                (format!("const all = await import('{module}');"), all.as_str()),
                (
                    format!(
                        "import {{ createRequire }} from 'node:module';\nconst one = createRequire(import.meta.url)('{module}');"
                    ),
                    "return one !== undefined;",
                ),
            ] {
                match run_with(&Loader::default(), &imports, read).await {
                    Ok(said) if said == true => {}
                    said => failed.push(format!("{imports} {said:?}")),
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// What only says that it is not there is listed as such, and nothing else says so.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_is_there() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let mut called = 0;
    for (name, exports) in &surface.modules {
        // What these are called with nothing ends the daemon, or begins tests.
        if ["process", "test", SDK].contains(&name.as_str()) {
            continue;
        }
        let said = run(
            &format!("import * as all from 'node:{name}';"),
            "const quiet = () => {};\n\
             const absent = [];\n\
             const lacks = (run) => {\n\
               try { run()?.then?.(quiet, quiet); return false; }\n\
               catch (error) { return error?.code === 'ERR_METHOD_NOT_IMPLEMENTED'; }\n\
             };\n\
             process.on('unhandledRejection', quiet);\n\
             process.on('uncaughtException', quiet);\n\
             const names = Object.keys(all).filter((name) => name !== 'default' && typeof all[name] === 'function');\n\
             for (const name of names) if (lacks(() => all[name]()) || lacks(() => new all[name]())) absent.push(name);\n\
             return [names.length, absent];",
        )
        .await;
        let expected = surface.absent.get(name).cloned().unwrap_or_default();
        assert_eq!(said[1], json!(expected), "{name}");
        assert!(expected.iter().all(|name| exports.contains(name)));
        called += said[0].as_u64().unwrap();
    }
    assert!(called > 400, "{called} functions were called");
}

/// Packages ask whether it is there, of a module as a whole as of a name.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_undefined_is_no_member_of_the_module() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    for (name, undefined) in &surface.undefined {
        let said = run(
            &format!("import * as all from 'node:{name}';"),
            &format!("return {}.filter((each) => all[each] !== undefined || typeof all.default[each] === 'function');", json!(undefined)),
        )
        .await;
        assert_eq!(said, json!([]), "{name}");
    }
    let asked = [
        "module.registerHooks",
        "module.register",
        "zlib.createZstdDecompress",
        "fs.lutimes",
        "process.report",
    ];
    for (name, export) in asked.map(|asked| asked.split_once('.').unwrap()) {
        assert!(surface.undefined[name].iter().any(|known| known == export), "{name}.{export}");
    }
    let said = run(
        "import { spawn } from 'node:child_process';",
        "const child = spawn('true'); await new Promise((done) => child.on('close', done));\n\
         return typeof child.send;",
    )
    .await;
    assert_eq!(said, json!("undefined"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_algorithm_that_is_listed_works() {
    let surface = ostler_js::surface().await.unwrap_or_else(|thrown| panic!("{}", thrown.for_log()));
    let listed = json!({
        "crypto": surface.algorithms.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "subtle": surface.subtle.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    let said = run(
        &format!("import crypto from 'node:crypto';\nconst listed = {listed};"),
        "const done = [];\n\
         const data = Buffer.from('some words to work on');\n\
         for (const name of listed.crypto.Digests) done.push(crypto.createHash(name).update(data).digest().length > 15);\n\
         for (const name of listed.crypto.Ciphers) {\n\
           const key = Buffer.alloc(Number(name.slice(4, 7)) / 8); const iv = Buffer.alloc(name.endsWith('gcm') ? 12 : 16);\n\
           const seal = crypto.createCipheriv(name, key, iv); const sealed = Buffer.concat([seal.update(data), seal.final()]);\n\
           const open = crypto.createDecipheriv(name, key, iv); if (name.endsWith('gcm')) open.setAuthTag(seal.getAuthTag());\n\
           done.push(Buffer.concat([open.update(sealed), open.final()]).equals(data));\n\
         }\n\
         for (const namedCurve of listed.crypto.Curves) {\n\
           const { publicKey, privateKey } = crypto.generateKeyPairSync('ec', { namedCurve });\n\
           done.push(crypto.verify('sha256', data, publicKey, crypto.sign(null, data, privateKey)));\n\
         }\n\
         const { subtle } = globalThis.crypto;\n\
         for (const name of listed.subtle.digest) done.push((await subtle.digest(name, data)).byteLength > 15);\n\
         for (const name of listed.subtle.generateKey) {\n\
           const usages = listed.subtle.sign.includes(name) ? ['sign', 'verify'] : listed.subtle.encrypt.includes(name) ? ['encrypt', 'decrypt'] : ['deriveBits'];\n\
           const how = { name, length: 256, hash: 'SHA-256', namedCurve: 'P-256', modulusLength: 1024, publicExponent: new Uint8Array([1, 0, 1]), saltLength: 32, iv: new Uint8Array(name === 'AES-GCM' ? 12 : 16), counter: new Uint8Array(16) };\n\
           const made = await subtle.generateKey(how, true, usages);\n\
           const [one, other] = [made.privateKey ?? made, made.publicKey ?? made];\n\
           if (name === 'AES-CTR') how.length = 64;\n\
           if (usages[0] === 'deriveBits') done.push((await subtle.deriveBits({ name, public: other }, one, 256)).byteLength === 32);\n\
         else if (usages[0] === 'sign') done.push(await subtle.verify(how, other, await subtle.sign(how, one, data), data));\n\
           else done.push(Buffer.from(await subtle.decrypt(how, one, await subtle.encrypt(how, other, data))).equals(data));\n\
         }\n\
         for (const name of listed.subtle.deriveBits.filter((each) => !listed.subtle.generateKey.includes(each))) {\n\
           const key = await subtle.importKey('raw', data, name, false, ['deriveBits']);\n\
           done.push((await subtle.deriveBits({ name, hash: 'SHA-256', salt: data, info: data, iterations: 2 }, key, 128)).byteLength === 16);\n\
         }\n\
         return [done.length, done.every(Boolean)];",
    )
    .await;
    assert_eq!(said[1], true, "{said}");
    assert!(said[0].as_u64().unwrap() > 30, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_of_brotli_is_that_of_the_library() {
    let text = tools("version() { return process.versions.brotli; }");
    let plugin = Loader::default().text(&text).await.unwrap();
    let version = plugin.run("version", Value::Null).await.unwrap();
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
    let entry = format!("name = \"brotli\"\nversion = \"{}\"", version.as_str().unwrap());
    assert!(lock.contains(&entry), "{version}");
}
