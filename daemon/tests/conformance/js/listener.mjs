export const name = 'listener';

export function apply(host) {
  const told = (event, context) => {
    let frozen = 0;
    try {
      event.session = 'forged';
    } catch {
      frozen += 1;
    }
    try {
      context.hostName = 'forged';
    } catch {
      frozen += 1;
    }
    if (frozen !== 2) throw new Error('an event could be written to');
    const { type, session, provider, client, status, reason } = event;
    const facts = [session, provider, client, status, reason].filter((fact) => fact !== undefined);
    context.log(`${[type, ...facts].join(' ')} on ${context.hostName}`);
    return { refused: true };
  };
  for (const event of ['session_start', 'turn_start', 'turn_end', 'session_end']) host.on(event, told);
  host.on('turn_end', async () => {
    await null;
    throw new Error('deaf');
  });
  host.on('turn_end', (event, { log }) => log('after the deaf one'));
  host.on('listening', ({ port, runtime }, { say, configDir }) => say(`hears ${runtime} on ${port} at ${configDir}`));
  host.registerTool({
    definition: { name: 'late' },
    run: () => {
      try {
        return host.on('turn_end', () => host.log('never'));
      } catch (error) {
        return error.message;
      }
    },
  });
  host.registerTool({ definition: { name: 'say' }, run: () => host.say('too late') });
  host.registerClose(async () => {
    await null;
    host.log('closes first');
  });
  host.registerClose(() => {
    throw new Error('stuck');
  });
  host.registerClose(() => host.log('closes last'));
}
