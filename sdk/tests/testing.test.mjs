import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RpcError, memoryRecords, checkPolicy } from '@ostler/sdk';
import { createTestHost } from '@ostler/sdk/testing';

const plugin = {
  name: 'kit',
  defaults: { greeting: 'Hello' },
  apply(host, options) {
    const notes = host.records('notes');
    host.registerTool({
      definition: { name: 'greet' },
      run: async ({ name }) => {
        if (!name) throw new RpcError(-32602, 'no name', { field: 'name' });
        await notes.put({ id: name.toLowerCase(), at: 1 });
        return `${options.greeting}, ${name}!`;
      },
    });
    host.registerRoute(
      async (request) =>
        new Response(`${request.method} ${new URL(request.url).pathname} ${await request.text()}`),
    );
    host.registerMethod('x-kit/add', { grant: 'x-kit:get', handle: ({ a, b }) => ({ sum: a + b }) });
    host.on('turn_end', ({ status }, { log }) => log(`turn ended: ${status}`));
    host.on('listening', (_, { say }) => say('up'));
    host.registerAgent({
      provider: 'bot',
      displayName: 'Bot',
      schema: () => ({}),
      defaults: () => ({ delay: 1 }),
      create: (start) => {
        let confirmed;
        return {
          async begin(turnId, text) {
            if (text === 'fail') throw new Error('no');
            start.emit('chat', {
              type: 'chat/responsePart',
              turnId,
              part: { kind: 'markdown', id: 'p', content: '' },
            });
            if (text === 'tool') {
              start.emit('chat', {
                type: 'chat/toolCallStart',
                turnId,
                toolCallId: 'c',
                toolName: 'rm',
                displayName: 'rm',
              });
              start.emit('chat', {
                type: 'chat/toolCallReady',
                turnId,
                toolCallId: 'c',
                invocationMessage: 'rm',
              });
              start.emit('session', {
                type: 'session/inputNeededSet',
                request: {
                  kind: 'toolConfirmation',
                  id: 'r',
                  chat: start.chatUri,
                  toolCall: { toolCallId: 'c' },
                },
              });
              const approved = await new Promise((resolve) => {
                confirmed = resolve;
              });
              start.emit('chat', {
                type: 'chat/toolCallComplete',
                turnId,
                toolCallId: 'c',
                result: { success: approved, pastTenseMessage: 'Ran' },
              });
            }
            if (text === 'greet') text = await start.tools[0].run({ name: 'Ada' });
            for (const word of text.split(' '))
              start.emit('chat', { type: 'chat/delta', turnId, partId: 'p', content: `${word} ` });
            start.emit('chat', { type: 'chat/delta', turnId, partId: 'other', content: 'lost' });
            start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
            start.emit('chat', { type: 'chat/delta', turnId, partId: 'p', content: 'late' });
          },
          confirm: (id, approved) => confirmed(approved),
          cancel() {},
          close() {},
        };
      },
    });
  },
};

test('a session', async () => {
  const host = await createTestHost(plugin, { options: { greeting: 'Welcome' } });
  assert.deepEqual(host.said, ['up']);
  const session = await host.createSession();
  const turn = await session.ask('hi there');
  assert.equal(turn.text, 'hi there ');
  assert.equal(turn.status, 'complete');
  assert.deepEqual(
    session.ignored.map(({ action }) => action.content),
    ['lost', 'late'],
  );
  const called = session.send('tool');
  await called.next('chat/toolCallReady');
  assert.equal(session.inputNeeded.size, 1);
  await assert.rejects(session.confirm('d', true), /does not wait/);
  await session.confirm('c', true);
  await called.ended;
  assert.equal(session.inputNeeded.size, 0);
  const failed = await session.ask('fail');
  assert.equal(failed.status, 'error');
  assert.equal(failed.error.message, 'no');
  assert.equal((await session.ask('greet')).text, 'Welcome, Ada! ');
  await host.settled();
  assert.deepEqual(host.logs, [
    'turn ended: complete',
    'turn ended: complete',
    'turn ended: error',
    'turn ended: complete',
  ]);
  assert.deepEqual(await host.records('notes').ids(), ['ada']);
  await host.close();
  assert.throws(() => session.send('x'), /ended/);
});

test('routes, commands, tools and events', async () => {
  const host = await createTestHost(plugin);
  assert.equal(
    await (await host.request('a?b', { method: 'POST', body: 'x' })).text(),
    'POST /plugins/kit/a x',
  );
  assert.deepEqual(await host.call('x-kit/add', { a: 1, b: 2 }), { sum: 3 });
  await assert.rejects(host.call('x-kit/sub'), /it has x-kit\/add/);
  await assert.rejects(
    host.runTool('greet'),
    (error) => error instanceof RpcError && error.code === -32602 && error.data.field === 'name',
  );
  await host.raise({ type: 'turn_end', status: 'error' });
  assert.deepEqual(host.logs, ['turn ended: error']);
  assert.throws(() => host.host.registerTool({}), /after apply returned/);
  assert.throws(() => checkPolicy({}), /needs the daemon|id must be/);
  assert.deepEqual(await (await memoryRecords().collection('a')).list(), []);
  await assert.rejects(
    createTestHost({
      apply(host) {
        host.registerTool({ definition: {} });
      },
    }),
    /registerTool needs its name to be a non-empty string/,
  );
  await assert.rejects(
    createTestHost({ apply: (host) => host.startSession({}) }),
    /not available before the host listens/,
  );
});

test('options are the own copy of apply, and paths are frozen', async () => {
  const paths = ['/a', '/b'];
  const given = { inner: { list: [1] } };
  const defaults = { unit: 'm' };
  const host = await createTestHost(
    {
      defaults,
      apply(host, options) {
        options.unit = 'km';
        options.inner.list.push(2);
        host.log(`${options.unit} ${options.inner.list}`);
        assert.throws(() => host.paths.push('/c'), TypeError);
        assert.throws(() => {
          host.path = '/c';
        }, TypeError);
      },
    },
    { options: given, paths },
  );
  assert.deepEqual(host.logs, ['km 1,2']);
  assert.deepEqual([given, defaults], [{ inner: { list: [1] } }, { unit: 'm' }]);
  paths.push('/c');
  assert.deepEqual(host.host.paths, ['/a', '/b']);
});

test('a session that closes cancels its turn', async () => {
  const calls = [];
  const releases = [];
  const host = await createTestHost({
    apply(host) {
      host.on('turn_end', ({ status }, { log }) => log(`turn ended: ${status}`));
      host.registerAgent({
        provider: 'slow',
        displayName: 'Slow',
        schema: () => ({}),
        defaults: () => ({}),
        create: (start) => ({
          async begin(turnId) {
            await new Promise((resolve) => releases.push(resolve));
            start.emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
          },
          async cancel(turnId) {
            calls.push(`cancel ${turnId}`);
            if (start.settings.obeys) start.emit('chat', { type: 'chat/turnCancelled', turnId, duration: 0 });
            else throw new Error('no');
          },
          async close() {
            calls.push('close');
          },
        }),
      });
    },
  });
  for (const obeys of [true, false]) {
    const session = await host.createSession({ settings: { obeys } });
    const turn = session.send('hi');
    await Promise.all([session.close(), session.close()]);
    assert.equal((await turn.ended).status, 'cancelled');
    assert.deepEqual(calls.splice(0), ['cancel turn-1', 'close']);
    assert.deepEqual(
      turn.actions.map(({ type }) => type),
      ['chat/turnCancelled'],
    );
    // What the backend emits now throws there, and is nobody's unhandled rejection.
    for (const release of releases.splice(0)) release();
    await new Promise((resolve) => setImmediate(resolve));
    await host.settled();
    assert.deepEqual(host.logs.splice(0).sort(), [
      'begin failed after its turn: the session has ended',
      ...(obeys ? [] : ['cancel failed: no']),
      'turn ended: cancelled',
    ]);
  }
  await host.close();
});

test('events of triggers and methods that there are not', async () => {
  const host = await createTestHost({
    name: 'ci',
    apply(host) {
      assert.equal(host.registerTols, undefined);
      assert.equal(typeof host.registerWorktrees, 'function');
      host.registerTriggerType({
        type: 'build',
        title: 'A build',
        events: [{ id: 'failed', title: 'Failed' }],
      });
    },
  });
  const fire = host.host.fireTrigger;
  assert.throws(() => fire('test', 'failed', {}), /type to be a type this plugin registered, not test/);
  assert.throws(() => fire('build', 'passed', {}), /event to be an event build offers, not passed/);
  assert.throws(() => fire('build', 'failed'), /data to be an object/);
  assert.deepEqual(host.fired, []);
  assert.deepEqual(await fire('build', 'failed', { branch: 'main' }).kept(), []);
  assert.deepEqual(host.fired, [{ type: 'build', event: 'failed', data: { branch: 'main' } }]);
});

test('records in memory compare what they have', async () => {
  const records = await memoryRecords().collection('notes');
  const changes = [];
  const stop = records.watch(({ id, type }) => changes.push(`${id} ${type}`));
  await records.put({ id: 'a', tags: ['x', { y: 1 }] });
  await records.put({ id: 'b', tags: [] });
  await records.put({ tags: ['x', { y: 1 }], id: 'a' });
  assert.deepEqual(await records.find({ tags: ['x', { y: 1 }] }), [{ id: 'a', tags: ['x', { y: 1 }] }]);
  assert.deepEqual(await records.find({ tags: ['x'] }), []);
  await records.put({ id: 'a', tags: ['x'] });
  assert.deepEqual(await records.find({ tags: ['x'] }), [{ id: 'a', tags: ['x'] }]);
  await new Promise((resolve) => setImmediate(resolve));
  stop();
  assert.deepEqual(changes, ['a added', 'b added', 'a updated']);
});
