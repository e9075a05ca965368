export const name = 'later';

export function apply(host) {
  host.registerTriggerType({ type: 'build', title: 'Mine', events: [{ id: 'done', title: 'Done' }] });
  host.registerTriggerType({ type: 'deploy', title: 'A deployment', events: [{ id: 'done', title: 'Done' }] });
  host.registerTool({
    definition: { name: 'fire-later' },
    run: async ({ type }) => {
      try {
        return await host.fireTrigger(type, 'done', {}).kept();
      } catch (error) {
        return error.message;
      }
    },
  });
}
