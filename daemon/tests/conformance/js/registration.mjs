export const name = 'registration';

export function apply(host, options) {
  const agent = { provider: 'a', displayName: 'A', schema: () => ({}), defaults: () => ({}), create: () => ({}) };
  const vault = { get: () => null, set() {}, delete: () => false, list: () => [] };
  const trigger = (type, ...ids) => ({ type, title: 'T', events: ids.map((id) => ({ id, title: id })) });
  const tool = (name) => ({ definition: { name }, run: () => name });
  const channel = { grant: 'x-board:get', snapshot: () => null };
  const method = { grant: 'x-board:move', handle: () => null };
  const reads = { read: () => ({ data: '' }) };
  const fatal = {
    agent: () => { host.registerAgent(agent); host.registerAgent(agent); },
    port: () => { host.registerVault(vault, 'replace'); host.registerVault(vault, 'replace'); },
    reserved: () => host.registerAgent({ ...agent, provider: 'ahp-mine' }),
    scheme: () => host.registerResourceProvider('https', reads),
    throw: () => { throw new Error('no luck today'); },
  };
  host.registerTool(tool('here'));
  if (options.fatal) fatal[options.fatal]();
  if (options.fatal || options.quiet) return;
  const attempts = [
    () => host.registerAgent({ ...agent, provider: '' }),
    () => host.registerAgent({ ...agent, displayName: '' }),
    () => host.registerAgent({ ...agent, create: undefined }),
    () => host.registerAgent({ ...agent, provider: 'not a scheme' }),
    () => host.registerAgent({ ...agent, provider: 'session' }),
    () => host.registerAgent({ ...agent, provider: 'X-mine' }),
    () => host.registerAgent(agent),
    () => host.registerAgent({ ...agent, provider: 'A' }),
    () => host.registerTool(tool('')),
    () => host.registerTool(tool('here')),
    () => host.registerTool({ definition: { name: 'idle' } }),
    () => host.registerResourceProvider('', reads),
    () => host.registerResourceProvider('file', reads),
    () => host.registerResourceProvider('a', reads),
    () => host.registerResourceProvider('b', {}),
    () => host.registerVault({ ...vault, set: undefined }),
    () => host.registerRecords({}),
    () => host.registerRoute(undefined),
    () => host.registerRoute(() => new Response()),
    () => host.registerRoute(() => new Response()),
    () => host.registerTriggerType(trigger('session', 'e')),
    () => host.registerTriggerType(trigger('watch', 'e')),
    () => host.registerTriggerType(trigger('', 'e')),
    () => host.registerTriggerType(trigger('build')),
    () => host.registerTriggerType(trigger('build', 'e', 'e')),
    () => host.registerTriggerType(trigger('build', 'e')),
    () => host.registerTriggerType(trigger('build', 'e')),
    () => host.registerClose(undefined),
    () => host.on('listening', undefined),
    () => host.registerChannel('', channel),
    () => host.registerChannel('board', channel),
    () => host.registerChannel('x-', channel),
    () => host.registerChannel('x-a board', channel),
    () => host.registerChannel('x-board', { grant: 'x-board:get' }),
    () => host.registerChannel('x-board', { ...channel, grant: '' }),
    () => host.registerChannel('x-board', { ...channel, grant: 'everybody' }),
    () => host.registerChannel('x-board', { ...channel, grant: 'session:shoe' }),
    () => host.registerChannel('x-board', channel),
    () => host.registerChannel('X-Board', channel),
    () => host.registerMethod('board/move', method),
    () => host.registerMethod('x-', method),
    () => host.registerMethod('x-board/ move', method),
    () => host.registerMethod('x-board/move', { ...method, handle: undefined }),
    () => host.registerMethod('x-board/move', { handle() {} }),
    () => host.registerMethod('x-board/move', method),
    () => host.registerMethod('x-board/move', method),
    () => host.registerResourceProvider('x-notes', reads),
  ];
  for (const [at, attempt] of attempts.entries()) {
    try {
      attempt();
      host.log(`${at} taken`);
    } catch (error) {
      host.log(`${at} ${error.message}`);
    }
  }
}
