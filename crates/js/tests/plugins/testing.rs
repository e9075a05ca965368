//! `node:test`, on the engine plugins run on.

use crate::support::*;
use ostler_js::{JsOptions, TestResult, run_tests};

async fn results(text: &str) -> Vec<TestResult> {
    let folder = Folder::new();
    let path = folder.write("some.test.ts", text);
    tokio::time::timeout(LONG, run_tests(&path, JsOptions::default())).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_run_in_order_and_say_how_they_ended() {
    let seen = results(
        "import test, { describe, it, before, after, beforeEach, afterEach, mock } from 'node:test';\n\
         import assert from 'node:assert/strict';\n\
         const said: string[] = [];\n\
         test('holds', async (t) => { await null; t.diagnostic('x'); said.push('a'); });\n\
         test('fails', () => {\n\
           assert.equal(1, 2);\n\
         });\n\
         test('throws text', () => { throw 'up'; });\n\
         test.skip('left out', () => said.push('never'));\n\
         test('one day', { todo: true }, () => said.push('never'));\n\
         test('slow', { timeout: 5 }, () => new Promise(() => {}));\n\
         describe('suite', () => {\n\
           before(() => said.push('before')); after(() => said.push('after'));\n\
           beforeEach(() => said.push('each')); afterEach(() => said.push('done'));\n\
           it('first', () => said.push('first'));\n\
           describe('inner', () => { it('deep', () => said.push('deep')); });\n\
           it('calls back', (t, done) => { setTimeout(done, 1); });\n\
         });\n\
         test('has more', async (t) => {\n\
           await t.test('one', () => {});\n\
           await t.test('two', () => { throw new TypeError('not two'); });\n\
           t.skip('enough');\n\
         });\n\
         test('mocks', () => {\n\
           const spy = mock.fn((n: number) => n * 2);\n\
           assert.equal(spy(2), 4);\n\
           assert.deepEqual(spy.mock.calls[0].arguments, [2]);\n\
           const object = { name: () => 'own' };\n\
           mock.method(object, 'name', () => 'other');\n\
           assert.equal(object.name(), 'other');\n\
           mock.restoreAll();\n\
           assert.equal(object.name(), 'own');\n\
         });\n\
         test('order', () => assert.equal(said.join(' '), 'a before each first done each deep done each done after'));\n",
    )
    .await;
    let lines: Vec<String> = seen
        .iter()
        .map(|test| {
            format!("{:?} {} {}", test.outcome, test.name, test.why.as_deref().unwrap_or_default())
                .trim_end()
                .to_owned()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    Passed holds
    Failed fails AssertionError: Expected values to be strictly equal:

    1 !== 2
    Failed throws text up was thrown, which is not an Error
    Skipped left out
    Skipped one day
    Failed slow Error: slow did not end within 5 ms
    Passed suite > first
    Passed suite > inner > deep
    Passed suite > calls back
    Passed has more > one
    Failed has more > two TypeError: not two
    Skipped has more
    Passed mocks
    Passed order
    ");
    assert!(seen[1].at.as_ref().unwrap().contains("some.test.ts:6"), "{:?}", seen[1].at);
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_move_only_when_a_test_says_so() {
    let seen = results(
        "import test from 'node:test';\n\
         import assert from 'node:assert/strict';\n\
         test('an hour', (t) => {\n\
           t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1000 });\n\
           let fired = 0;\n\
           setTimeout(() => { fired = Date.now(); }, 3_600_000);\n\
           t.mock.timers.tick(3_599_999); assert.equal(fired, 0);\n\
           t.mock.timers.tick(1); assert.equal(fired, 3_601_000);\n\
           const one = { name: () => 'own' }; t.mock.method(one, 'name', () => 'other'); assert.equal(one.name(), 'other');\n\
           globalThis.one = one;\n\
         });\n\
         test('is over', async (t) => {\n\
           assert.ok(Date.now() > 1e12);\n\
           assert.equal(globalThis.one.name(), 'own');\n\
           await new Promise((resolve) => setTimeout(resolve, 1));\n\
           assert.throws(() => t.mock.timers.tick(1), { code: 'ERR_INVALID_STATE' });\n\
         });\n",
    )
    .await;
    for test in &seen {
        assert_eq!(test.why, None, "{}", test.name);
    }
    assert_eq!(seen.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_throws_has_no_tests() {
    let folder = Folder::new();
    let path = folder.write("some.test.mjs", "throw new Error('no luck');");
    let thrown = run_tests(&path, JsOptions::default()).await.unwrap_err();
    assert_eq!(thrown.message, "no luck");
    assert!(results("export const nothing = 1;").await.is_empty());
}
