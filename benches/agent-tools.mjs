// The tool that agents call through the session's endpoint, and a backend that calls it in process.
export const name = 'agent-tools';

export function apply(host) {
  host.registerTool({
    definition: { name: 'noop', description: 'Does nothing.', inputSchema: { type: 'object' } },
    run: () => 'called',
  });
  host.registerAgent({
    provider: 'inside',
    displayName: 'Inside',
    schema: () => ({ properties: {} }),
    defaults: () => ({}),
    create: ({ emit, tools }) => ({
      async begin(turnId, text) {
        const noop = tools.find((tool) => tool.definition.name === 'noop');
        const took = [];
        for (let at = 0; at < Number(text.split(' ')[1]); at++) {
          const begun = performance.now();
          await noop.run({});
          took.push((performance.now() - begun) * 1000);
        }
        took.sort((a, b) => a - b);
        const content = `took ${took[took.length >> 1]} end`;
        emit('chat', { type: 'chat/responsePart', turnId, part: { kind: 'markdown', id: 'said', content } });
        emit('chat', { type: 'chat/turnComplete', turnId, duration: 0 });
      },
      cancel() {},
      close() {},
    }),
  });
}
