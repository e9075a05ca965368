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
  host.on('listening', ({ port, runtime }, context) => {
    const { path, paths, version, hostName, configDir, log, say, parseYaml, stringifyYaml } = context;
    try {
      paths.push('/forged');
      throw new Error('the paths could be written to');
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    const yaml = parseYaml(stringifyYaml({ yes: ['no', 1] }));
    log(`context ${JSON.stringify([path, paths, version, hostName, configDir, yaml])}`);
    say(`hears ${runtime} on ${port} at ${configDir}`);
  });
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
    // The others would close before it if it were not awaited.
    await new Promise((resolve) => setTimeout(resolve, 20));
    host.log('closes first');
  });
  host.registerClose(() => {
    throw new Error('stuck');
  });
  host.registerClose(() => host.log('closes last'));
}
