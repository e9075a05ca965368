export const name = 'module';
export const title = 'A module';
export const defaults = { most: 3, deep: { list: [1] } };
export const optionsSchema = {
  type: 'object',
  properties: {
    most: { type: 'integer' },
    key: { type: 'string', writeOnly: true },
    later: { type: 'string', secretAtUse: true },
    deep: { type: 'object' },
  },
  required: ['most'],
};

export async function apply(host, options) {
  await null;
  host.log(`applied with ${JSON.stringify(options)}`);
  try {
    options.later.$secret = 'host:other';
    throw new Error('a reference could be written to');
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
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
