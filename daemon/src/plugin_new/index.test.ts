import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import type { PluginHost, Tool, ToolContext } from '@ostler/sdk';
import { apply, defaults } from './index.ts';

/** The tools the plugin registers, by name. */
function toolsOf(options: { greeting: string }): Map<string, Tool> {
    const tools = new Map<string, Tool>();
    const host = { registerTool: (tool: Tool) => tools.set(tool.definition.name, tool), on: mock.fn() };
    apply(host as unknown as PluginHost, options);
    return tools;
}

test('greets by name', async () => {
    const greet = toolsOf(defaults).get('greet');
    assert.equal(await greet?.run({ name: 'Ada' }, {} as ToolContext), 'Hello, Ada!');
});

test('uses the configured greeting', async () => {
    const greet = toolsOf({ greeting: 'Welcome' }).get('greet');
    assert.equal(await greet?.run({ name: 'Ada' }, {} as ToolContext), 'Welcome, Ada!');
});
