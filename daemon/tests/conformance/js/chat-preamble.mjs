export const name = 'chat-preamble';

export function apply(host) {
  host.registerChatPreamble(async (chat) => {
    let frozen = 0;
    for (const write of [() => (chat.session = 'forged'), () => (chat.chats.length = 0), () => (chat.origin.kind = 'forged')]) {
      try {
        write();
      } catch {
        frozen += 1;
      }
    }
    if (frozen !== 3) throw new Error('what a preamble is handed could be written to');
    const { session, chat: uri, origin, chats } = chat;
    host.log(JSON.stringify([session, uri, origin, chats.map(({ resource, title }) => [resource, title])]));
    await null;
    return `first of ${uri}`;
  });
  host.registerChatPreamble(() => {
    throw new Error('no words');
  });
  host.registerChatPreamble(() => undefined);
  host.registerChatPreamble(() => '  ');
  host.registerChatPreamble(() => 'second');
  host.registerTool({
    definition: { name: 'open' },
    run: ({ session, prompt }, at) => at.createChat(session ?? at.session, { prompt, title: 'Opened by a tool' }),
  });
}
