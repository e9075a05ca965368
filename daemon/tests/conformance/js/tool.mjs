export const name = 'tool';

export function apply(host) {
  host.registerTool({
    definition: {
      name: 'where',
      title: 'Where',
      description: 'Says where it runs.',
      inputSchema: { type: 'object', properties: { loud: { type: 'boolean' } } },
    },
    effects: { reads: true, network: false },
    run: async ({ loud }, at) => {
      const said = [at.session, at.chat, at.provider, await at.turn()];
      return loud ? said.join(' ').toUpperCase() : said;
    },
  });
  host.registerTool({
    definition: { name: 'plain' },
    run: () => 'plain',
  });
  host.registerTool({
    definition: { name: 'silent' },
    run: () => {},
  });
  host.registerTool({
    definition: { name: 'fails' },
    run: () => {
      throw new TypeError('it has no hands');
    },
  });
  host.registerTool({
    definition: { name: 'advanced' },
    advancedPermission: true,
    run: () => 'let through',
  });
  host.registerTool({
    definition: { name: 'look' },
    run: async (input, at) => {
      const turns = await at.context(at.session);
      let written;
      try {
        turns[0].message.text = 'forged';
        written = 'written';
      } catch (error) {
        written = error.name;
      }
      if (written !== 'TypeError') throw new Error(`a turn could be ${written}`);
      const [chat] = await at.chats(at.session);
      return [turns.map((turn) => turn.message.text), (await at.sessions()).length, chat.resource === at.chat];
    },
  });
  host.registerTool({
    definition: { name: 'act' },
    run: async ({ uri }, at) => {
      await at.rename(at.session, 'Renamed');
      const made = await at.create({ prompt: 'hello', title: 'Made' });
      const removed = await at.remove(at.session).catch((error) => error.message);
      await at.remove(made);
      return [removed, await at.send(at.session, undefined, 'later'), await at.read(uri).catch((error) => error.message)];
    },
  });
}
