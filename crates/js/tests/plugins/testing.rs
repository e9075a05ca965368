//! `node:test`, on the engine plugins run on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use ostler_js::{JsOptions, Outcome, TestResult, TestRun, run_tests};

async fn results(text: &str) -> Vec<TestResult> {
    let folder = Folder::new();
    let path = folder.write("some.test.ts", text);
    let ran = run_tests(&path, JsOptions::default(), TestRun::default());
    let ran = tokio::time::timeout(LONG, ran).await.unwrap();
    assert_eq!(ran.problem, None);
    ran.results
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
         test('slow', { timeout: 5 }, (t) => new Promise(() => { const each = setInterval(() => {}, 1); t.after(() => clearInterval(each)); }));\n\
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
    Failed has more Error: 1 subtest failed
    Passed mocks
    Passed order
    ");
    assert!(seen[1].at.as_ref().unwrap().contains("some.test.ts:6"), "{:?}", seen[1].at);
}

/// The outcomes and errors are those of Node.
#[tokio::test(flavor = "multi_thread")]
async fn a_test_plans_waits_asserts_and_has_subtests() {
    let seen = results(
        "import test from 'node:test';\n\
         const fails = () => { throw new TypeError('no'); };\n\
         test('parent', async (t) => { await t.test('child', fails); });\n\
         test('unawaited', (t) => { t.test('one', fails); t.test('two', fails); });\n\
         test('grandparent', (t) => t.test('parent', (t) => t.test('child', fails)));\n\
         test('sound', async (t) => { await t.test('child', () => {}); await t.test('left out', { skip: true }, fails); });\n\
         test('skipped', async (t) => { t.skip('enough'); globalThis.ran = true; });\n\
         test('ran on', (t) => t.assert.equal(globalThis.ran, true));\n\
         test('planned', (t) => { t.plan(2); t.assert.equal(1, 1); t.test('child', () => {}); });\n\
         test('too few', (t) => { t.plan(2); t.assert.ok(1); });\n\
         test('too many', (t) => { t.plan(1); t.assert.ok(1); t.assert.ok(1); });\n\
         test('awaited', (t) => { t.plan(1, { wait: true }); setTimeout(() => t.assert.ok(1), 2); });\n\
         test('awaited in vain', (t) => { t.plan(1, { wait: 5 }); });\n\
         test('twice', (t) => { t.plan(1); t.plan(1); });\n\
         test('waits', async (t) => { let n = 0; t.assert.equal(await t.waitFor(() => { n += 1; if (n < 3) throw new Error('not yet'); return n; }, { interval: 1 }), 3); });\n\
         test('waits in vain', (t) => t.waitFor(fails, { interval: 1, timeout: 5 }));\n\
         test('asserts', (t) => { t.assert.throws(fails, TypeError); t.assert.partialDeepStrictEqual({ a: 1, b: 2 }, { a: 1 }); t.assert.deepEqual([1], [2]); });\n\
         test.assert; import { assert } from 'node:test'; assert.register('even', (n) => { if (n % 2) throw new RangeError(`${n} is odd`); });\n\
         test('registered', (t) => { t.assert.even(2); t.assert.even(3); });\n",
    )
    .await;
    let lines: Vec<String> = seen
        .iter()
        .map(|test| {
            let why = test.why.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            format!("{:?} {}: {why}", test.outcome, test.name).trim_end_matches([' ', ':']).to_owned()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    Failed parent > child: TypeError: no
    Failed parent: Error: 1 subtest failed
    Failed unawaited > one: TypeError: no
    Failed unawaited > two: TypeError: no
    Failed unawaited: Error: 2 subtests failed
    Failed grandparent > parent > child: TypeError: no
    Failed grandparent > parent: Error: 1 subtest failed
    Failed grandparent: Error: 1 subtest failed
    Passed sound > child
    Skipped sound > left out
    Passed sound
    Skipped skipped
    Passed ran on
    Passed planned > child
    Passed planned
    Failed too few: Error: plan expected 2 assertions but received 1
    Failed too many: Error: plan expected 1 assertions but received 2
    Passed awaited
    Failed awaited in vain: Error: plan timed out after 5ms with 0 assertions when expecting 1
    Failed twice: Error: cannot set plan more than once
    Passed waits
    Failed waits in vain: Error: waitFor() timed out
    Failed asserts: AssertionError: Expected values to be loosely deep-equal
    Failed registered: RangeError: 3 is odd
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_every_kind_are_replaced_until_a_test_ends() {
    let seen = results(
        "import test from 'node:test';\n\
         class Base { #n = 1; get n() { return this.#n; } set n(n) { this.#n = n; } say(word) { return `own ${word}`; } }\n\
         const one = new Base();\n\
         const plain = { value: 1, get: () => 'get' };\n\
         test('replaces', (t) => {\n\
           const { mock, assert } = t;\n\
           const getter = mock.getter(Base.prototype, 'n', () => 5);\n\
           assert.equal(one.n, 5); one.n = 7; assert.equal(getter.mock.callCount(), 1); getter.mock.restore();\n\
           const seen = []; const setter = mock.setter(Base.prototype, 'n', (n) => { seen.push(n); });\n\
           one.n = 9; assert.deepEqual([seen, setter.mock.calls[0].arguments], [[9], [9]]);\n\
           const say = mock.method(one, 'say', { times: 1 });\n\
           assert.deepEqual([one.say('a'), one.say('b'), say.mock.callCount()], ['own a', 'own b', 1]);\n\
           const value = mock.property(plain, 'value', 2);\n\
           plain.value += 1; assert.deepEqual([plain.value, value.mock.accessCount(), value.mock.accesses.map(({ type, value }) => [type, value])], [3, 3, [['get', 2], ['set', 3], ['get', 3]]]);\n\
           value.mock.mockImplementationOnce(8); assert.deepEqual([plain.value, plain.value], [8, 3]);\n\
           const spy = mock.fn((n) => n); spy.mock.mockImplementationOnce(() => 'once', 1);\n\
           assert.deepEqual([spy(1), spy(2), spy(3)], [1, 'once', 3]);\n\
           const Made = mock.fn(class { constructor(n) { this.n = n; } }); assert.equal(new Made(4).n, 4); assert.equal(Made.mock.calls[0].this.n, 4);\n\
           mock.method(plain, 'get', () => 'other'); assert.equal(plain.get(), 'other');\n\
           for (const wrong of [() => mock.method(plain, 'none'), () => mock.getter(plain, 'get'), () => mock.property(plain, 'none'), () => mock.getter(one, 'n', { getter: false })]) assert.throws(wrong, { code: 'ERR_INVALID_ARG_VALUE' });\n\
         });\n\
         test('restores', ({ assert }) => {\n\
           assert.deepEqual([one.n, one.say('c'), Object.keys(one), plain.value, plain.get(), Object.getOwnPropertyDescriptor(plain, 'value').value], [7, 'own c', [], 1, 'get', 1]);\n\
         });\n",
    )
    .await;
    for test in &seen {
        assert_eq!(test.why, None, "{}", test.name);
    }
    assert_eq!(seen.len(), 2);
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
    let ran = run_tests(&path, JsOptions::default(), TestRun::default()).await;
    assert_eq!(ran.problem.unwrap().message, "no luck");
    assert!(results("export const nothing = 1;").await.is_empty());
}

/// Every test here waits for an hour unless something notices that nothing can settle it.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_can_settle_fails_at_once_and_the_others_run() {
    let never = "new Promise(() => {})";
    let rows = [
        ("a test", format!("test('a', () => {never});"), "Failed a"),
        ("a callback", "test('a', (t, done) => {});".to_owned(), "Failed a"),
        (
            "a subtest",
            format!("test('a', async (t) => {{ await t.test('b', () => {never}); }});"),
            "Failed a > b, Failed a",
        ),
        (
            "an unawaited subtest",
            format!("test('a', (t) => {{ t.test('b', () => {never}); }});"),
            "Failed a > b, Failed a",
        ),
        (
            "a test of a suite",
            format!("describe('s', () => {{ it('a', () => {never}); it('b', () => {{}}); }});"),
            "Failed s > a, Passed s > b",
        ),
        ("beforeEach", format!("beforeEach(() => {never}); test('a', () => {{}});"), "Failed a, Failed last"),
        (
            "afterEach",
            format!("describe('s', () => {{ afterEach(() => {never}); it('a', () => {{}}); }});"),
            "Failed s > a",
        ),
        (
            "before",
            format!("describe('s', () => {{ before(() => {never}); it('a', () => {{}}); }});"),
            "Failed s",
        ),
        ("before of all", format!("before(() => {never}); test('a', () => {{}});"), "Failed a, Failed last"),
        (
            "after",
            format!("describe('s', () => {{ after(() => {never}); it('a', () => {{}}); }});"),
            "Passed s > a, Failed s",
        ),
        ("after of a test", format!("test('a', (t) => {{ t.after(() => {never}); }});"), "Failed a"),
        ("a plan", "test('a', (t) => { t.plan(1, { wait: true }); });".to_owned(), "Failed a"),
        (
            "a timer without a reference",
            "test('a', () => new Promise((go) => setTimeout(go, 3_600_000).unref()));".to_owned(),
            "Failed a",
        ),
        ("its own limit", format!("test('a', {{ timeout: 3_600_000 }}, () => {never});"), "Failed a"),
    ];
    for (what, text, outcomes) in rows {
        let folder = Folder::new();
        let imports =
            "import test, { describe, it, before, after, beforeEach, afterEach } from 'node:test';\n";
        let path = folder.write("some.test.mjs", &format!("{imports}{text}\ntest('last', () => {{}});"));
        let run = TestRun { limit: Duration::from_secs(3600), ..TestRun::default() };
        let ran = run_tests(&path, JsOptions::default(), run);
        let ran = tokio::time::timeout(LONG, ran).await.unwrap_or_else(|_| panic!("{what} hangs"));
        let seen: Vec<String> =
            ran.results.iter().map(|test| format!("{:?} {}", test.outcome, test.name)).collect();
        let expected =
            if outcomes.contains("last") { outcomes.to_owned() } else { format!("{outcomes}, Passed last") };
        assert_eq!((seen.join(", "), &ran.problem), (expected, &None), "{what}");
        let first = ran.results.iter().find_map(|test| test.why.clone()).unwrap();
        assert_eq!(
            first, "Error: Promise resolution is still pending but the event loop has already resolved",
            "{what}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_without_a_limit_has_the_default() {
    let folder = Folder::new();
    let path = folder.write(
        "some.test.mjs",
        "import test from 'node:test';\n\
         const wait = (ms) => new Promise((go) => setTimeout(go, ms));\n\
         const busy = setInterval(() => {}, 1);\n\
         test('hangs', () => new Promise(() => {}));\n\
         test('has its own', { timeout: 60_000 }, () => wait(600));\n\
         test('has none', { timeout: Infinity }, () => wait(600));\n\
         test('goes on', async (t) => { for (const name of 'abcd') await t.test(name, () => wait(200)); });\n\
         test('ends', () => { clearInterval(busy); });\n",
    );
    let ended = Arc::new(Mutex::new(Vec::new()));
    let sink = ended.clone();
    let run = TestRun {
        limit: Duration::from_millis(500),
        ended: Arc::new(move |test| sink.lock().unwrap().push(test.name.clone())),
    };
    let ran = tokio::time::timeout(LONG, run_tests(&path, JsOptions::default(), run)).await.unwrap();
    assert_eq!(ran.problem, None);
    let failed: Vec<_> = ran.results.iter().filter_map(|test| test.why.as_deref()).collect();
    assert_eq!(failed, ["Error: hangs did not end within 500 ms"]);
    let names: Vec<String> = ran.results.into_iter().map(|test| test.name).collect();
    assert_eq!(names.len(), 9);
    assert_eq!(*ended.lock().unwrap(), names);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_has_its_own_limit() {
    let folder = Folder::new();
    let path = folder.write(
        "some.test.mjs",
        "import test, { describe, it, before, after, beforeEach, afterEach } from 'node:test';\n\
         import { spawnSync } from 'node:child_process';\n\
         const wait = (ms) => new Promise((go) => setTimeout(go, ms));\n\
         const never = () => new Promise(() => {});\n\
         const busy = setInterval(() => {}, 1);\n\
         describe('longer', () => {\n\
           before(() => wait(1200), { timeout: 60_000 });\n\
           beforeEach(() => wait(1200), { timeout: Infinity });\n\
           afterEach(() => wait(1200), { timeout: 60_000 });\n\
           after(() => { spawnSync('sleep', ['2']); }, { timeout: 60_000 });\n\
           it('a', (t) => { t.before(() => wait(1200), { timeout: 60_000 }); t.after(() => wait(1200), { timeout: 60_000 }); });\n\
         });\n\
         for (const [name, hook] of Object.entries({ before, after, beforeEach, afterEach }))\n\
           describe(name, () => { hook(never, { timeout: 5 }); it('a', () => {}); });\n\
         for (const name of ['before', 'after']) test(`t.${name}`, (t) => { t[name](never, { timeout: 5 }); });\n\
         test('t.afterEach', async (t) => { t.afterEach(never, { timeout: 5 }); await t.test('a', () => {}); });\n\
         const said = [];\n\
         test('fails', async (t) => { t.after(() => said.push('after')); await t.test('a', () => { throw new Error('no'); }); });\n\
         test('t.before throws', (t) => { t.before(() => { throw new Error('early'); }); });\n\
         test('ends', (t) => { t.assert.deepEqual(said, ['after']); clearInterval(busy); });\n",
    );
    let run = TestRun { limit: Duration::from_millis(1000), ..TestRun::default() };
    let ran = tokio::time::timeout(LONG, run_tests(&path, JsOptions::default(), run)).await.unwrap();
    assert_eq!(ran.problem, None);
    let lines: Vec<String> = ran
        .results
        .iter()
        .map(|test| format!("{:?} {} {}", test.outcome, test.name, test.why.as_deref().unwrap_or_default()))
        .map(|line| line.trim_end().to_owned())
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    Passed longer > a
    Failed before Error: before of before did not end within 5 ms
    Passed after > a
    Failed after Error: after of after did not end within 5 ms
    Failed beforeEach > a Error: beforeEach of beforeEach > a did not end within 5 ms
    Failed afterEach > a Error: afterEach of afterEach > a did not end within 5 ms
    Failed t.before Error: before of t.before did not end within 5 ms
    Failed t.after Error: after of t.after did not end within 5 ms
    Failed t.afterEach > a Error: afterEach of t.afterEach > a did not end within 5 ms
    Failed t.afterEach Error: 1 subtest failed
    Failed fails > a Error: no
    Failed fails Error: 1 subtest failed
    Failed t.before throws Error: early
    Passed ends
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_makes_no_progress_is_given_up_with_the_reason() {
    let rows = [
        (
            "await new Promise(() => {});",
            "plugin some.test.mjs awaits at its top level a promise that nothing can settle",
        ),
        ("setInterval(() => {}, 1); await new Promise(() => {});", "its import did not end within 300 ms"),
        ("spawnSync('sleep', ['60']);", "its import did not end within 300 ms"),
        (
            "test('first', () => {}); test('blocks', () => { spawnSync('sleep', ['60']); });",
            "blocks did not return within 300 ms",
        ),
    ];
    for (text, why) in rows {
        let folder = Folder::new();
        let imports = "import test from 'node:test';\nimport { spawnSync } from 'node:child_process';\n";
        let path = folder.write("some.test.mjs", &format!("{imports}{text}"));
        let run = TestRun { limit: Duration::from_millis(300), ..TestRun::default() };
        let ran = tokio::time::timeout(LONG, run_tests(&path, JsOptions::default(), run)).await.unwrap();
        assert_eq!(ran.problem.unwrap().message, why, "{text}");
        assert_eq!(ran.results.len(), usize::from(text.contains("first")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_never_pauses_fails_alone() {
    let folder = Folder::new();
    let path = folder.write(
        "some.test.mjs",
        "import test from 'node:test';\ntest('spins', () => { for (;;); });\ntest('ends', () => {});\n",
    );
    let options = JsOptions { busy_limit: Duration::from_millis(200), ..JsOptions::default() };
    let ran = run_tests(&path, options, TestRun::default());
    let ran = tokio::time::timeout(LONG, ran).await.unwrap();
    let seen: Vec<_> = ran.results.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
    assert_eq!((seen, ran.problem), (vec![("spins", Outcome::Failed), ("ends", Outcome::Passed)], None));
}
