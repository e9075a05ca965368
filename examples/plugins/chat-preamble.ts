// What each new chat of a session begins with: the model is told which other chats there are. Nobody sees it in the chat
// itself.

import type { PluginHost } from '@ostler/sdk';

export function apply(host: PluginHost): void {
    host.registerChatPreamble(({ chats }) => {
        const titles = chats.map(({ title }) => title).filter((title) => title !== '');
        if (titles.length === 0) return undefined;
        return ['Beside this chat there are:', ...titles.map((title) => `- ${title}`)].join('\n');
    });
}
