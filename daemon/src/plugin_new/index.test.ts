import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTestHost } from '@ostler/sdk/testing';
import * as plugin from './index.ts';

test('greets by name', async () => {
    const host = await createTestHost(plugin);
    assert.equal(await host.runTool('greet', { name: 'Ada' }), 'Hello, Ada!');
});

test('uses the configured greeting', async () => {
    const host = await createTestHost(plugin, { options: { greeting: 'Welcome' } });
    assert.equal(await host.runTool('greet', { name: 'Ada' }), 'Welcome, Ada!');
});

test('logs the end of a turn', async () => {
    const host = await createTestHost(plugin);
    await host.raise({ type: 'turn_end', session: 'echo:/1', chat: 'ahp-chat:/1', turn: 't', status: 'complete' });
    assert.deepEqual(host.logs, ['turn t ended: complete']);
});
