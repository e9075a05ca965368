export const name = 'trigger-type';

export function apply(host) {
  host.registerTriggerType({
    type: 'build',
    title: 'A build',
    description: 'Fired when a build ends.',
    events: [{ id: 'done', title: 'Done' }, { id: 'failed', title: 'Failed', description: 'It did not pass.' }],
    configSchema: { type: 'object', properties: { branch: { type: 'string' } } },
  });
  host.registerTool({
    definition: { name: 'fire' },
    run: async ({ type = 'build', event = 'done', data = {} }) => {
      try {
        return await host.fireTrigger(type, event, data).kept();
      } catch (error) {
        return error.message;
      }
    },
  });
}
