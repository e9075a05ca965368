export const name = 'module';
export const title = 'A module';
export const defaults = { most: 3, deep: { list: [1] } };
export const optionsSchema = {
  type: 'object',
  properties: {
    most: { type: 'integer' },
    key: { type: 'string', writeOnly: true },
    later: { type: 'string', secretAtUse: true },
    servers: { type: 'object', secretAtUse: true },
    deep: { type: 'object' },
  },
  required: ['most'],
};

export async function apply(host, options) {
  await null;
  host.log(`applied with ${JSON.stringify(options)}`);
  // What is read at use is frozen at every depth.
  for (const write of [
    () => (options.later.$secret = 'host:other'), () => (options.servers.b = {}), () => (options.servers.a.token = 'x'),
    () => (options.servers.a.token.$secret = 'host:other'), () => options.servers.a.args.push('x'),
  ]) {
    let written = true;
    try {
      write();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      written = false;
    }
    if (written) throw new Error(`${write} could write`);
  }
  options.most = 99;
  options.deep.list.push(2);
  host.registerTool({
    definition: { name: 'seen' },
    run: async () => [options.most, options.deep, await host.secret(options.later.$secret)],
  });
  host.registerTool({
    definition: { name: 'late' },
    run: () => {
      try {
        host.problem('late');
      } catch (error) {
        return error.message;
      }
    },
  });
  host.on('turn_end', (event, context) => host.log(`the context has a problem: ${'problem' in context}`));
  return { refused: 'what it answers is nobody\'s business' };
}
