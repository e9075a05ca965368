//! What `@ostler/sdk` exports at run time.

use crate::support::*;
use ostler_contract::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_no_row_names_its_wrong_field() {
    let said = run(
        "import { checkPolicy, RpcError } from '@ostler/sdk';",
        "const row = { id: 'a', scope: 'team:inn', kind: 'agent', effect: 'allow', match: { agent: ['echo'], model: ['m*'] },\n\
           limits: [{ amount: 5, measure: 'usd', period: 'day', pool: 'each' }], from: '2026-01-01', until: '2026-01-01' };\n\
         const checked = checkPolicy(row);\n\
         const tried = [\n\
           5, { ...row, id: ' ' }, { ...row, scope: 'team' }, { ...row, kind: 'x' }, { ...row, effect: undefined }, { ...row, extra: 1 },\n\
           { ...row, match: { proxy: ['p'] } }, { ...row, match: { agent: 'echo' } }, { ...row, match: { toString: [] } },\n\
           { ...row, limits: {} }, { ...row, limits: [{ amount: -1 }] }, { ...row, limits: [{ ...row.limits[0], measure: 'calls' }] },\n\
           { ...row, limits: [{ ...row.limits[0], pool: undefined }] }, { ...row, limits: [{ ...row.limits[0], period: 'year' }] },\n\
           { ...row, from: '2026-02-30' }, { ...row, from: 'soon' }, { ...row, from: '2026-01-02' },\n\
         ].map((body) => { try { checkPolicy(body); return 'taken'; } catch (error) {\n\
           return `${error instanceof RpcError} ${error.code} ${error.data.field}: ${error.message}`;\n\
         } });\n\
         return [checked.from, checked.until, row.from, tried.join('\\n')];",
    )
    .await;
    assert_eq!(said[0], "2026-01-01T00:00:00.000Z");
    assert_eq!(said[1], "2026-01-01T23:59:59.999Z");
    assert_eq!(said[2], "2026-01-01", "the body itself is left alone");
    insta::assert_snapshot!(said[3].as_str().unwrap(), @r"
    true -32602 the policy: the policy must be an object
    true -32602 id: id must be a non-empty string
    true -32602 scope: scope must be all, user:<id>, team:<id> or project:<team>:<project>
    true -32602 kind: kind must be one of model, agent, computer
    true -32602 effect: effect must be one of allow, deny
    true -32602 extra: extra must be left out: a policy has no such field
    true -32602 match.proxy: match.proxy must be left out of a policy of kind agent
    true -32602 match.agent: match.agent must be a list of non-empty strings
    true -32602 match.toString: match.toString must be left out of a policy of kind agent
    true -32602 limits: limits must be a list
    true -32602 limits[0].amount: limits[0].amount must be a number of 0 or more
    true -32602 limits[0].measure: limits[0].measure must be one of usd, tokens, turns, hours
    true -32602 limits[0].pool: limits[0].pool must be one of shared, each
    true -32602 limits[0].period: limits[0].period must be one of day, week, month, total
    true -32602 from: from must be a timestamp or a date, as 2026-01-31
    true -32602 from: from must be a timestamp or a date, as 2026-01-31
    true -32602 from: from must be before until
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_kept_in_one_file() {
    let folder = Folder::new();
    let file = folder.path().join("deep/policies.json");
    let said = run(
        "import { filePolicies } from '@ostler/sdk';\nimport { readFileSync, writeFileSync } from 'node:fs';",
        &format!(
            "const file = {};\n\
             const store = filePolicies({{ file }});\n\
             const row = (id, effect = 'allow') => ({{ id, scope: 'all', kind: 'model', effect }});\n\
             const said = [await store.list(), await store.remove('a')];\n\
             await Promise.all([store.put(row('a')), store.put(row('b')), store.put(row('a', 'deny'))]);\n\
             said.push((await store.list()).map(({{ id, effect }}) => `${{id}} ${{effect}}`), await store.get('none') ?? null);\n\
             said.push(await store.put({{ id: 'c' }}).catch((error) => error.code), JSON.parse(readFileSync(file, 'utf8')).length);\n\
             said.push(await store.remove('a'), await filePolicies({{ file }}).get('b'));\n\
             writeFileSync(file, '[{{}}]');\n\
             said.push(await store.list().catch((error) => error.message.replace(file, 'file')));\n\
             return said;",
            json!(file)
        ),
    )
    .await;
    assert_eq!(
        said,
        json!([
            [], false, ["a deny", "b allow"], null, -32602, 2, true,
            { "id": "b", "scope": "all", "kind": "model", "effect": "allow" },
            "file: [0]: id must be a non-empty string"
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_served_to_whoever_has_the_token() {
    let said = run(
        "import { toolServers } from '@ostler/sdk';",
        "let at;\n\
         const servers = toolServers({ origin: () => at, name: 'inn', version: '1.2.3' });\n\
         const tools = [\n\
           { definition: { name: 'twice', description: 'Doubles.' }, run: async ({ n }) => n * 2 },\n\
           { definition: { name: 'fails' }, run: () => { throw new Error('no hands'); } },\n\
           { definition: { name: 'theirs' } },\n\
         ];\n\
         const said = [servers.open({ tools: () => tools }) ?? null];\n\
         at = 'http://127.0.0.1:9187';\n\
         const endpoint = servers.open({ tools: () => tools, runClient: (name, input) => `${name} ${JSON.stringify(input)}`, toolsChanged: 'notify' });\n\
         const ask = (body, { method = 'POST', token = endpoint.token, url = endpoint.url } = {}) => servers.request(new Request(url, {\n\
           method, headers: { authorization: `Bearer ${token}` }, ...(method === 'POST' && { body: typeof body === 'string' ? body : JSON.stringify(body) }),\n\
         }));\n\
         const call = async (id, method, params) => (await ask({ jsonrpc: '2.0', id, method, params })).json();\n\
         said.push(endpoint.url.startsWith('http://127.0.0.1:9187/ahp-mcp/'), (await call(1, 'initialize')).result);\n\
         said.push((await call(2, 'tools/list')).result.tools);\n\
         for (const [name, input] of [['twice', { n: 4 }], ['fails'], ['theirs', { a: 1 }], ['none'], ['\\ud83d'], [{ toString: 5 }]]) said.push(await call(3, 'tools/call', { name, arguments: input }));\n\
         said.push((await call(4, 'prompts/list')).error.code);\n\
         said.push((await ask({ jsonrpc: '2.0', method: 'notifications/initialized' })).status);\n\
         for (const body of ['{', '[]', '[{}]', '5', { jsonrpc: '1.0', id: 1, method: 'initialize' }]) said.push((await ask(body)).status);\n\
         said.push((await ask('{', { token: 'wrong' })).status, (await ask('', { method: 'DELETE' })).status);\n\
         said.push((await ask('{', { url: 'http://127.0.0.1:9187/ahp-mcp/none' })).status, await servers.request(new Request('http://127.0.0.1/ahp-mcpx')) ?? null);\n\
         const results = { told: { success: true, pastTenseMessage: 'Did', content: [{ type: 'text', text: 'fed' }] }, shut: { success: false, pastTenseMessage: 'Tried', error: { message: 'shut' } } };\n\
         const asking = servers.open({ tools: () => [{ definition: { name: 'told' } }, { definition: { name: 'shut' } }], runClient: (name) => results[name] });\n\
         for (const name of ['told', 'shut']) said.push(await (await ask({ jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name } }, asking)).json());\n\
         said.push((await ask({ jsonrpc: '2.0', id: 3, result: {} })).status);\n\
         const listing = servers.open({ tools: () => [] });\n\
         said.push((await ask('', { method: 'GET', url: listing.url, token: endpoint.token })).status, (await ask('', { method: 'GET', url: listing.url, token: listing.token })).status);\n\
         const before = await ask('', { method: 'GET' });\n\
         const stream = await ask('', { method: 'GET' });\n\
         said.push(await before.text());\n\
         endpoint.changed();\n\
         endpoint.close();\n\
         said.push(stream.headers.get('content-type'), await stream.text(), (await ask('{')).status);\n\
         return said;",
    )
    .await;
    let text = |text: &str, failed: bool| json!({ "jsonrpc": "2.0", "id": 3, "result": { "content": [{ "type": "text", "text": text }], "isError": failed } });
    let expected = [
        json!(null),
        json!(true),
        json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": true } }, "serverInfo": { "name": "inn", "version": "1.2.3" } }),
        json!([
            { "name": "twice", "description": "Doubles.", "inputSchema": { "type": "object" } },
            { "name": "fails", "inputSchema": { "type": "object" } },
            { "name": "theirs", "inputSchema": { "type": "object" } },
        ]),
        text("8", false),
        text("no hands", true),
        text("theirs {\"a\":1}", false),
        json!({ "jsonrpc": "2.0", "id": 3, "error": { "code": -32602, "message": "there is no tool none" } }),
        json!({ "jsonrpc": "2.0", "id": 3, "error": { "code": -32602, "message": "there is no tool \u{FFFD}" } }),
        json!({ "jsonrpc": "2.0", "id": 3, "error": { "code": -32602, "message": "tools/call needs name, the name of a tool" } }),
        json!(-32601),
        json!(202),
        json!(400),
        json!(400),
        json!(400),
        json!(400),
        json!(400),
        json!(401),
        json!(405),
        json!(404),
        json!(null),
        text("fed", false),
        text("shut", true),
        json!(202),
        json!(401),
        json!(405),
        json!(""),
        json!("text/event-stream"),
        json!(
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
        ),
        json!(404),
    ];
    let said = said.as_array().unwrap();
    for (at, (said, expected)) in said.iter().zip(&expected).enumerate() {
        assert_eq!(said, expected, "{at}");
    }
    assert_eq!(said.len(), expected.len());
}

/// Random JSON of the kinds people and strangers write, from a seed.
const ODD: &str = "\
function odd(seed) {
  const next = (below) => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return (seed >>> 16) % below; };
  const words = ['', 'id', 'a', 'scope', 'all', 'team:x', 'kind', 'model', 'agent', 'computer', 'effect', 'allow', 'deny', 'match', 'limits',
    'amount', 'measure', 'usd', 'period', 'day', 'pool', 'each', 'from', 'until', '2026-01-31', '__proto__', 'constructor', 'jsonrpc', '2.0',
    'method', 'tools/call', 'tools/list', 'initialize', 'params', 'name', 'arguments', '\\u0000', '\\ud83d'];
  const word = () => words[next(words.length)];
  const value = (depth) => {
    switch (next(depth > 3 ? 5 : 8)) {
      case 0: return null;
      case 1: return next(2) === 0;
      case 2: return [0, 1, -1, 1e300, 0.5][next(5)];
      case 3: case 4: return word();
      case 5: return Array.from({ length: next(4) }, () => value(depth + 1));
      default: return Object.fromEntries(Array.from({ length: next(9) }, () => [word(), value(depth + 1)]));
    }
  };
  return { value: () => value(0), next };
}
";

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_policy_is_said_to_be_is_taken_or_its_field_is_named() {
    let said = run(
        &format!("import {{ checkPolicy, RpcError }} from '@ostler/sdk';\n{ODD}"),
        "const good = { id: 'a', scope: 'all', kind: 'agent', effect: 'allow' };\n\
         const { value, next } = odd(7);\n\
         let taken = 0;\n\
         for (let at = 0; at < 5000; at += 1) {\n\
           const given = value();\n\
           const body = next(2) === 0 ? given : { ...good, ...(typeof given === 'object' ? given : {}) };\n\
           try {\n\
             const row = checkPolicy(body);\n\
             taken += 1;\n\
             if (JSON.stringify(checkPolicy(row)) !== JSON.stringify(row)) return ['another row', row];\n\
           } catch (error) {\n\
             if (!(error instanceof RpcError) || error.code !== -32602 || typeof error.data.field !== 'string') return [String(error.stack), body];\n\
           }\n\
         }\n\
         return taken;",
    )
    .await;
    assert!(said.as_u64().is_some_and(|taken| taken > 100), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_posted_to_tools_is_answered() {
    let said = run(
        &format!("import {{ toolServers }} from '@ostler/sdk';\n{ODD}"),
        "const servers = toolServers({ origin: 'http://127.0.0.1:1/', name: 'n', version: '1' });\n\
         const { url, token } = servers.open({ tools: () => [{ definition: { name: 'a' }, run: (input) => input.deep.down }] });\n\
         const headers = { authorization: `Bearer ${token}` };\n\
         const { value, next } = odd(11);\n\
         const seen = new Set();\n\
         for (let at = 0; at < 3000; at += 1) {\n\
           const given = value();\n\
           const framed = { jsonrpc: '2.0', id: at, method: ['tools/call', 'tools/list', 'initialize', 'x'][next(4)], params: given };\n\
           const body = JSON.stringify(next(3) === 0 ? given : framed).slice(0, next(10) === 0 ? 5 : undefined);\n\
           const answer = await servers.request(new Request(url, { method: 'POST', headers, body }));\n\
           seen.add(answer.status);\n\
           if (answer.status === 200) { const { id, result, error } = await answer.json(); if ((result === undefined) === (error === undefined)) return [body, id]; }\n\
         }\n\
         return [...seen].sort();",
    )
    .await;
    assert_eq!(said, json!([200, 400]), "{said}");
}

/// The file that `cargo xtask examples` runs in Node.
#[tokio::test(flavor = "multi_thread")]
async fn the_test_host_is_the_same_as_in_node() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/tests/testing.test.mjs");
    let ran = ostler_js::run_tests(&file, Default::default(), Default::default()).await;
    assert_eq!(ran.problem, None);
    assert!(ran.results.len() > 1);
    for test in ran.results {
        assert_eq!(test.why, None, "{}: {:?}", test.name, test.at);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_memory_take_the_ids_that_the_daemon_takes() {
    let names = ["a", "a-1", "z9-", "", "-a", "1a", "A", "ä", "a_b", "a.b", "a b", "a\n", "a\u{0}"];
    let names: Vec<String> =
        names.map(str::to_owned).into_iter().chain([40, 41].map(|many| "a".repeat(many))).collect();
    let taken = run(
        "import { memoryRecords } from '@ostler/sdk';",
        &format!(
            "const taken = [];\nfor (const name of {}) taken.push(await memoryRecords().collection(name).then(() => true, () => false));\nreturn taken;",
            json!(names)
        ),
    )
    .await;
    let expected: Vec<bool> = names.iter().map(|name| Slug::parse(name).is_some()).collect();
    assert_eq!(taken, json!(expected));
}
